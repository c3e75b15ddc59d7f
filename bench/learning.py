"""Does the reward teach more than more labels do? GRPO against supervised training of the same length, for each seed.

    python bench/learning.py       # seeds 0, 1 and 2; writes docs/results/learning.json and docs/results.md

For each seed: `oncurve train recipes/cat_and_dog.toml`, then `oncurve sft recipes/control.toml` for exactly the seconds
that the training (sampling to record, evaluation apart) took, from the same model, on loose labels as in its warm-up.
Both are evaluated greedily on the same held-out scenes.
"""

import argparse
import json
import subprocess
from pathlib import Path

from oncurve.geometry.boxes import iou
from oncurve.record.reader import RunReader
from oncurve.tasks.labels import loosen
from oncurve.tasks.scenes import make_scene

OUT = Path("docs/results/learning.json")
KEPT = {
    "mean_iou": "eval/mean_iou/mean",
    "acc@0.5": "eval/accuracy/mean",
    "acc@0.75": "eval/heldout/acc@0.75",
    "acc@0.95": "eval/heldout/acc@0.95",
    "valid_format": "eval/heldout/valid_format",
    "num_tasks": "eval/accuracy/num_tasks",
}


def evaluations(run: Path) -> list[dict[str, float]]:
    rows = [row for row in RunReader(run).metrics() if "eval/mean_iou/mean" in row]
    return [{short: row[name] for short, name in KEPT.items()} | {"step": row["step"]} for row in rows]


def training_seconds(run: Path) -> float:
    rows = RunReader(run).metrics()
    return sum(s for row in rows for name, s in row.items() if name.startswith("time/") and name != "time/evaluate_s")


PAGE = """\
# What the reward teaches

Written by `python bench/learning.py` from `docs/results/learning.json`; do not edit.

The built-in tiny model was warmed up on loosely drawn labels (`recipes/warmup.toml`: each side of a box up to 30 % too
far out, as quick annotators draw). From there two ways go on for the same number of seconds on the same machine, two CPU
cores without a GPU:

- **GRPO**: `recipes/cat_and_dog.toml` samples eight answers a question and rewards IoU² with the exact box.
- **Control**: `recipes/control.toml` goes on with supervised training on the same loose labels.

Both are then asked about the same {tasks} held-out scenes, greedily. No scene of theirs was in training.

| seed | seconds | start | GRPO | control | GRPO - start | GRPO - control |
|---|---|---|---|---|---|---|
{rows}

Mean IoU; valid format was {valid_before:.3f} at the start and at least {valid_after:.3f} after GRPO. Acc@0.75 after GRPO
and after the control: {tight}.

What this shows and what not: the control is held back by its labels, whose average box has an IoU of about {ceiling:.2f}
with the exact one. That is the point of the comparison: where exact boxes are known to a grader, but not written as
answers, a reward on the whole box finishes what cheap imitation began. Supervised training on exact boxes would not be
held back so; where those can be had as answers, start with them.

Each seed again:

{commands}
"""


def label_iou(num_scenes: int = 2_000) -> float:
    """The mean IoU of a loose label with the exact box."""
    boxes = [make_scene("train", i).box for i in range(num_scenes)]
    return sum(iou(loosen(box, 0.3, str(i)), box) for i, box in enumerate(boxes)) / num_scenes


def page(results: list[dict]) -> str:
    def row(r: dict) -> str:
        start, after, control = (r[name]["mean_iou"] for name in ("before", "after", "control"))
        numbers = f"{start:.3f} | {after:.3f} | {control:.3f} | {after - start:+.3f} | {after - control:+.3f}"
        return f"| {r['seed']} | {r['seconds']:.0f} | {numbers} |"

    return PAGE.format(
        tasks=results[0]["num_tasks"],
        rows="\n".join(map(row, results)),
        valid_before=results[0]["before"]["valid_format"],
        valid_after=min(r["after"]["valid_format"] for r in results),
        tight="; ".join(f"{r['after']['acc@0.75']:.3f} and {r['control']['acc@0.75']:.3f}" for r in results),
        ceiling=label_iou(),
        commands="\n".join(f"    {r[name]}" for r in results for name in ("command", "control_command")),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs-folder", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    results = []
    for seed in args.seeds:
        train = ["oncurve", "train", "recipes/cat_and_dog.toml", f"--seed={seed}", f"--name=learning-{seed}"]
        subprocess.run([*train, f"--runs_folder={args.runs_folder}", "--replace"], check=True)
        run = args.runs_folder / f"learning-{seed}"
        seconds = training_seconds(run)
        sft = ["oncurve", "sft", "recipes/control.toml", f"--seed={seed}", f"--name=control-{seed}"]
        sft.append(f"--max_seconds={seconds:.1f}")
        subprocess.run([*sft, f"--runs_folder={args.runs_folder}", "--replace"], check=True)
        control = args.runs_folder / f"control-{seed}"
        before, *_, after = evaluations(run)
        num_tasks = before.pop("num_tasks")
        results.append(
            {
                "seed": seed,
                "num_tasks": num_tasks,
                "before": before,
                "after": after,
                "control": evaluations(control)[-1],
                "seconds": round(seconds, 1),
                "command": " ".join(train),
                "control_command": " ".join(sft),
            }
        )
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        args.out.parent.with_suffix(".md").write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
