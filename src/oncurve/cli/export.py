"""Write a run's model for transformers and vLLM, with a model card.

oncurve export runs/cat_and_dog --out cat_and_dog
oncurve export runs/cat_and_dog --step 400 --merge-adapter --out merged

The folder holds weights, processor, chat template, generation config and README.md: data, reward rules, results before
and after, the command and the versions. `from_pretrained(OUT)` loads it without Oncurve.
"""

import argparse
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oncurve.cli.eval import whole_number

KINDS = {
    "weights": "whole weights: the run trained no adapter",
    "merged": "whole weights, with the adapter merged in",
    "adapter": "the adapter alone, which loads on top of its base; --merge-adapter writes whole weights",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a folder that is new or empty")
    parser.add_argument("--step", type=whole_number, help="the checkpoint's step (the last intact one)")
    parser.add_argument(
        "--merge-adapter", action="store_true", help="write whole weights where the run trained an adapter"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document and nothing else")


def run(args: argparse.Namespace) -> int:
    from oncurve.errors import RunError
    from oncurve.record import checkpoint
    from oncurve.record.files import writing
    from oncurve.record.reader import RunReader

    reader = RunReader(args.run)
    found = checkpoint.latest(args.run, args.step)
    if found is None:
        raise RunError(f"{args.run} has no checkpoint yet; a run saves one every checkpoint.every_steps and at its end")
    with writing(args.out):
        if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
            raise RunError(f"{args.out} is not empty, and an export never overwrites; give a new folder with --out")
        aside = args.out.with_name(f".{args.out.name}.tmp")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)

    from oncurve.policy.export import export_model

    try:
        max_new_tokens = reader.config.get("sampling", {}).get("max_new_tokens", 16)
        kind = export_model(
            found.folder / "model", aside, max_new_tokens=max_new_tokens, merge_adapter=args.merge_adapter
        )
        with writing(args.out):
            (aside / "README.md").write_text(model_card(reader, found.step), encoding="utf-8")
            aside.replace(args.out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    num_bytes = sum(path.stat().st_size for path in args.out.iterdir())
    if args.json:
        files = sorted(path.name for path in args.out.iterdir())
        print(json.dumps({"out": str(args.out), "step": found.step, "kind": kind, "files": files}))
        return 0
    for text in found.passed_over:
        print(f"note      {text}")
    print(f"exported  {args.run}, step {found.step}, to {args.out} ({num_bytes / 1e6:,.1f} MB)")
    print(f"          {KINDS[kind]}")
    print(f"next      oncurve eval {args.out} --data scenes:heldout")
    return 0


def model_card(reader, step: int) -> str:
    """README.md, from the record of the run alone."""
    return "\n".join(_card(reader, step)) + "\n"


def _card(reader, step: int) -> Iterator[str]:
    config, info = reader.config, reader.info
    base, name = config["model"]["path"], config["name"]
    yield from ("---", "library_name: transformers", "pipeline_tag: image-text-to-text", "tags: [oncurve, grpo]")
    if "/" in base and not Path(base).exists():
        yield f"base_model: {base}"
    yield from ("---", "", f"# {name}", "")
    trained = "with GRPO, on rewards that a program computes" if "reward" in config else "on written answers"
    yield f"Trained by Oncurve {trained}, from `{base}`; the weights after step {step}."
    yield from ("", "## Use", "", "```python", _USE, "```", "")
    yield "`generation_config.json` decodes as the evaluation did: greedily, with structural tokens suppressed."
    yield from ("", "## Data", "")
    for data in [config["data"]] if "data" in config else [stage["data"] for stage in config["stages"]]:
        yield f"- training: {_sentence(data)}"
    yield f"- held out: {_sentence(config['heldout'])}"
    if "reward" in config:
        yield from ("", "## Reward rules", "", "```json", json.dumps(config["reward"], indent=2), "```")
        if info.get("reward_rules"):
            yield from ("", f"Graded by `{info['reward_rules'].partition(' {')[0]}`.")
    yield from ("", "## Results", "", *_results(reader.metrics(), step), "", "## How it was made", "")
    yield from ("```", info["command"], "```", "")
    yield f"Started {info['started']}, with {', '.join(f'{k} {v}' for k, v in info['versions'].items() if v)}."
    yield from ("", "The whole configuration:", "", "```json", json.dumps(config, indent=2), "```")


_USE = """\
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

folder = "."  # where this file is
model, processor = AutoModelForImageTextToText.from_pretrained(folder), AutoProcessor.from_pretrained(folder)
question = [{"type": "image"}, {"type": "text", "text": "box the cat"}]
prompt = processor.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
inputs = processor(text=[prompt], images=[Image.open("photo.jpg").convert("RGB")], return_tensors="pt")
answer = model.generate(**inputs)[0, inputs["input_ids"].shape[1]:]
print(processor.decode(answer, skip_special_tokens=True))"""


def _sentence(data: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} `{value}`" for key, value in data.items())


def _results(rows: list[dict[str, Any]], step: int) -> Iterator[str]:
    from oncurve.cli.terminal import evaluated_labels

    evaluated = [row for row in rows if "eval/accuracy/num_tasks" in row and row["step"] <= step]
    if not evaluated:
        yield "The run was not evaluated."
        return
    before, after = evaluated[0], evaluated[-1]
    yield f"On the first {after['eval/accuracy/num_tasks']} held-out tasks, answered greedily:"
    yield from ("", f"| | before (step {before['step']}) | after (step {after['step']}) |", "|---|---|---|")
    for label, name in evaluated_labels(before, after).items():
        yield f"| {label} | {before[name]:.3f} | {after[name]:.3f} |"
