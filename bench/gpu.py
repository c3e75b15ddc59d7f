"""On a GPU: shared rows against plain ones in bfloat16, and whole steps of a model of 2 billion random weights.

    python bench/gpu.py [--json]

Both attentions, sdpa and FlexAttention, take the same self-check as every run of Oncurve at its start, on random
Qwen2.5-VLs; then steps of 1 prompt of about 1,000 tokens, 56 answers of 20, with seconds, tokens a second, and peak
memory. Without a CUDA device it says that it has not run, with status 3. It has been run on none so far.
"""

import argparse
import json
import statistics
import sys
from datetime import date

import torch
import workload
from side_oncurve import Side, make_policy, make_task

from oncurve.policy.check import check_shared_prefix

LIKE_2B = {
    "text": {
        "vocab_size": 151_936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "default", "mrope_section": [16, 24, 24], "rope_theta": 1e6},
    },
    "vision": {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "fullatt_block_indexes": [7, 15, 23, 31],
    },
}
MODELS = {"tiny": {}, "like 2B": LIKE_2B}
ATTENTIONS = ("sdpa", "flex_attention")
SHAPE = {
    "threads": 8, "answers": 56, "new_tokens": 20, "image_tokens": (36, 28), "beta": 0.0, "micro_batch_tokens": 16_384,
}  # fmt: skip


def measure(sizes: dict, attention: str, num_steps: int) -> dict:
    """The self-check in bfloat16, then steps, the first of which does not count."""
    policy = make_policy(workload.build_model(attention=attention, **sizes).cuda(), torch.bfloat16)
    check = check_shared_prefix(policy, make_task(0, SHAPE["image_tokens"]))
    side = Side(SHAPE, policy)
    torch.cuda.reset_peak_memory_stats()
    steps = []
    for number in range(num_steps + 1):
        steps.append(side.step(number))
        torch.cuda.synchronize()
    stages = {name: statistics.median(step["stages"][name] for step in steps[1:]) for name in steps[0]["stages"]}
    return {
        "shared": check.shared,
        "why_plain": check.why_plain,
        "max_logp_error": check.max_logp_error,
        "gradient_error": check.gradient_error,
        "step_seconds": statistics.median(step["seconds"] for step in steps[1:]),
        "stages": stages,
        "peak_bytes": torch.cuda.max_memory_allocated(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON document and nothing else")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench/gpu.py has not run: torch finds no CUDA device here", file=sys.stderr)
        return 3
    found = {"date": date.today().isoformat(), "device": torch.cuda.get_device_name(), "torch": torch.__version__}
    found["runs"] = {
        f"{name}, {attention}": measure(sizes, attention, args.steps)
        for name, sizes in MODELS.items()
        for attention in ATTENTIONS
    }
    if args.json:
        print(json.dumps(found, indent=1))
        return 0
    print(found["device"], "torch", found["torch"], found["date"])
    for name, run in found["runs"].items():
        print(
            f"{name:24} {'shared' if run['shared'] else run['why_plain']}: off by {run['max_logp_error']:.1e} nats, "
            f"{run['gradient_error']:.1e} of the gradient; {run['step_seconds']:.2f} s a step, "
            f"{run['peak_bytes'] / 2**30:.1f} GiB"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
