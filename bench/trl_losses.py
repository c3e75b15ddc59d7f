"""Oncurve's losses against TRL's on the same tensors: value, gradient, and where they differ, why.

TRL brings its own dependencies, so it gets an environment of its own:

    python3 -m venv peer
    peer/bin/pip install torch==2.13.0 trl==1.16.0 'transformers==5.19.*' pydantic
    PYTHONPATH=src peer/bin/python bench/trl_losses.py --json docs/results/trl_losses.json

TRL's own `_compute_loss` runs, with the log-probabilities handed to it in place of a model's. Everything is in float64.
Exit status 1 where a difference is not the one that is stated.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import torch
import trl
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_trainer import RLOOTrainer

from oncurve.config.schema import CispoObjective, GrpoObjective, KlConfig
from oncurve.objective.reduction import token_weights
from oncurve.objective.terms import TokenInputs, token_terms

MAX_NEW_TOKENS = 8
LENGTHS = [[8, 3, 5, 1], [2, 7, 4, 6]]  # two groups of four answers; the first answer was cut off
SEED, TOLERANCE = 0, 1e-12
SAME = "the same"


def columns() -> dict[str, torch.Tensor]:
    """Log-probabilities `(answers, tokens)` with ratios on both sides of both clips, advantages `(answers,)`, a mask."""
    generator = torch.Generator().manual_seed(SEED)
    lengths = torch.tensor([n for group in LENGTHS for n in group])

    def normal(scale: float) -> torch.Tensor:
        return scale * torch.randn(len(lengths), MAX_NEW_TOKENS, dtype=torch.float64, generator=generator)

    old = -normal(1.0).abs() - 0.1
    rewards = torch.rand(len(lengths), dtype=torch.float64, generator=generator).reshape(2, 4)
    return {
        "old": old,
        "logps": old + normal(0.3),
        "sampler": old + normal(0.5),
        "reference": old + normal(0.4),
        "entropies": normal(1.0).abs(),
        "advantages": ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).flatten(),
        "mask": (torch.arange(MAX_NEW_TOKENS) < lengths[:, None]).long(),
        "lengths": lengths,
    }


def ours(objective, given: dict[str, torch.Tensor]) -> tuple[float, torch.Tensor]:
    """Loss and its gradient by `logps`, as `oncurve.update` adds them up."""
    logps, kept = given["logps"].clone().requires_grad_(), given["mask"].bool()
    cut = given["lengths"] == MAX_NEW_TOKENS
    masked = cut if objective.truncated == "mask" else torch.zeros_like(cut)
    lengths = torch.where(masked, 0, given["lengths"]).reshape(2, 4).tolist()
    weights = torch.tensor(token_weights(lengths, objective.reduction, MAX_NEW_TOKENS), dtype=torch.float64).flatten()
    rows = torch.arange(len(kept))[:, None].expand_as(kept)
    terms = token_terms(
        objective,
        TokenInputs(
            logps[kept],
            given["old"][kept],
            given["sampler"][kept],
            given["advantages"][rows[kept]],
            rows[kept],
            given["reference"][kept] if objective.kl.beta else None,
            given["entropies"][kept],
        ),
    )
    loss = (weights[rows[kept]] * terms.loss_T).sum()
    return loss.item(), torch.autograd.grad(loss, logps)[0]


def theirs(given: dict[str, torch.Tensor], **options) -> tuple[float, torch.Tensor]:
    """The same of TRL's trainer. `options` are its settings; `cap` weighs by truncated importance weights."""
    cap, masked, rloo = options.pop("cap", None), options.pop("masked", False), options.pop("rloo", False)
    logps, mask = given["logps"].clone().requires_grad_(), given["mask"].clone()
    if masked:
        mask[given["lengths"] == MAX_NEW_TOKENS] = 0
    settings = {
        "loss_type": "grpo",
        "importance_sampling_level": "token",
        "beta": 0.0,
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "entropy_coef": 0.0,
    } | options
    trainer = SimpleNamespace(
        **settings,
        _entropy_bonus_enabled=settings["entropy_coef"] > 0,
        use_adaptive_entropy=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        aux_loss_enabled=False,
        max_completion_length=MAX_NEW_TOKENS,
        current_gradient_accumulation_steps=1,
        use_vllm=cap is not None,
        vllm_importance_sampling_correction=cap is not None,
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        accelerator=SimpleNamespace(
            num_processes=1, sync_gradients=True, gather=lambda x: x, reduce=lambda x, reduction: x
        ),
        _metrics=defaultdict(lambda: defaultdict(list)),
        _get_per_token_logps_and_entropies=lambda *_, **__: (logps, given["entropies"], None),
    )
    trainer.accelerator.gather_for_metrics = trainer.accelerator.gather
    ids = torch.zeros_like(mask)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": mask[:, :1],
        "completion_ids": ids,
        "completion_mask": mask,
        "advantages": given["advantages"],
        "old_per_token_logps": given["old"],
        "old_logps": (given["old"] * mask).sum(1),
        "ref_per_token_logps": given["reference"],
        "num_items_in_batch": mask.sum(),
        "importance_sampling_ratio": (given["old"] - given["sampler"]).exp().clamp(max=cap) if cap else None,
    }
    loss = (RLOOTrainer if rloo else GRPOTrainer)._compute_loss(trainer, trainer.model, inputs)
    return loss.item(), torch.autograd.grad(loss, logps)[0]


def cases() -> dict[str, tuple]:
    """Name: our objective, TRL's options, what TRL's loss is of ours (a factor or None), in words."""
    kl = KlConfig(beta=0.1)
    num_answers = sum(map(len, LENGTHS))
    return {
        "GRPO": (GrpoObjective(), {}, 1.0, SAME),
        "GRPO, KL in the loss": (GrpoObjective(kl=kl), {"beta": 0.1}, 1.0, f"{SAME} (k3)"),
        "GRPO, importance weights": (
            GrpoObjective(importance_cap=2.0),
            {"cap": 2.0},
            1.0,
            f"{SAME} (token level, cap 2)",
        ),
        "Dr. GRPO": (GrpoObjective(reduction="constant"), {"loss_type": "dr_grpo"}, 1.0, SAME),
        "DAPO": (
            GrpoObjective(reduction="token_mean", clip_high=0.28),
            {"loss_type": "dapo", "epsilon_high": 0.28},
            1.0,
            SAME,
        ),
        "DAPO, overlong masking": (
            GrpoObjective(reduction="token_mean", clip_high=0.28, truncated="mask"),
            {"loss_type": "dapo", "epsilon_high": 0.28, "masked": True},
            1.0,
            SAME,
        ),
        "GRPO, overlong masking": (
            GrpoObjective(truncated="mask"),
            {"masked": True},
            (num_answers - 1) / num_answers,
            "TRL keeps a masked answer in the number of answers; here it leaves the denominator too",
        ),
        "GSPO": (
            GrpoObjective(ratio="sequence", clip_low=3e-4, clip_high=4e-4),
            {"importance_sampling_level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4},
            1.0,
            SAME,
        ),
        "CISPO": (
            CispoObjective(type="cispo", clip_high=0.28),
            {"loss_type": "cispo", "epsilon_high": 1.28},
            1.0,
            f"{SAME}; TRL's `epsilon_high` is the largest weight, here `clip_high` is what it may exceed 1 by",
        ),
        "RLOO, on-policy": (
            GrpoObjective(reduction="constant"),
            {"rloo": True},
            float(MAX_NEW_TOKENS),
            "on-policy (`logps = old`) gradients; TRL sums over an answer's tokens, here that sum is divided by `max_new_tokens`",
        ),
        "entropy bonus, token mean": (
            GrpoObjective(reduction="token_mean", entropy=0.01),
            {"loss_type": "dapo", "entropy_coef": 0.01},
            1.0,
            f"{SAME}",
        ),
        "entropy bonus, sequence mean": (
            GrpoObjective(entropy=0.01),
            {"entropy_coef": 0.01},
            None,
            "TRL averages the entropy over tokens under every loss; here it is a part of the token's loss and weighed as that",
        ),
    }


def compare() -> list[dict]:
    rows = []
    for name, (objective, options, factor, words) in cases().items():
        given = columns()
        if on_policy := bool(options.get("rloo")):
            given["logps"] = given["old"].clone()
        (our_loss, our_gradient), (their_loss, their_gradient) = ours(objective, given), theirs(given, **options)
        off = ((their_gradient - (factor or 1.0) * our_gradient).norm() / their_gradient.norm()).item()
        loss_off = 0.0 if on_policy else abs(their_loss - (factor or 1.0) * our_loss)
        rows.append(
            {
                "loss": name,
                "oncurve": our_loss,
                "trl": their_loss,
                "stated_factor": factor,
                "loss_difference": None if on_policy else loss_off,
                "gradient_difference": off,
                "as_stated": (max(off, loss_off) <= TOLERANCE) if factor else loss_off > TOLERANCE,
                "difference": words,
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there too")
    args = parser.parse_args()
    rows = compare()
    for row in rows:
        print(f"{'ok' if row['as_stated'] else 'NO':3} {row['loss']:30} oncurve {row['oncurve']:+.9f}  trl {row['trl']:+.9f}  "
              f"gradient {row['gradient_difference']:.1e}  {row['difference']}")  # fmt: skip
    if args.json:
        found = {"trl": trl.__version__, "torch": torch.__version__, "dtype": "float64", "seed": SEED, "losses": rows}
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(row["as_stated"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
