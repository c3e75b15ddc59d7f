"""How the cost of a step grows with prompt length, number of answers and their length; draws docs/img/growth_*.png.

    python bench/growth.py

One thing grows and the others stay at 1,008 image tokens, 16 answers and 20 new tokens. Each point is the median of three
steps of `bench/peers.py`'s model, after one that does not count. Dashed: the update with one row for each answer.
"""

import argparse
import json
import statistics
from pathlib import Path

import matplotlib
from side_oncurve import Side

matplotlib.use("Agg")
from matplotlib import pyplot

HERE = Path(__file__).parents[1]
USUAL = {"image_tokens": (36, 28), "answers": 16, "new_tokens": 20, "beta": 0.0, "micro_batch_tokens": 16_384}
GROWING = {
    "prompt": ("image tokens of the prompt", "image_tokens", [(8, 8), (16, 16), (36, 28), (48, 42), (64, 63)]),
    "answers": ("answers", "answers", [4, 8, 16, 32, 56]),
    "length": ("tokens of an answer", "new_tokens", [10, 20, 40, 80]),
}
STAGES = ("sample", "update")


def measure(shape: dict, num_steps: int, with_plain: bool) -> dict:
    side = Side(shape)
    steps = [side.step(number) for number in range(num_steps + 1)][1:]
    found = {stage: statistics.median(step["stages"][stage] for step in steps) for stage in STAGES}
    if with_plain:
        found["plain update"] = side.plain_update(0)["seconds"]
    return found


def draw(name: str, label: str, places: list[int], points: list[dict]) -> None:
    figure, axes = pyplot.subplots(figsize=(4.2, 3.0), layout="constrained")
    for stage in points[0]:
        axes.plot(places, [point[stage] for point in points], "o--" if stage == "plain update" else "o-", label=stage)
    axes.set(xlabel=label, ylabel="seconds", xlim=(0, None), yscale="log")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(HERE / f"docs/img/growth_{name}.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-plain", action="store_true", help="leave the plain rows out, which take most of the time")
    args = parser.parse_args()
    (HERE / "docs/img").mkdir(exist_ok=True)
    found = {}
    for name, (label, key, values) in GROWING.items():
        shapes = [USUAL | {"threads": args.threads, key: value} for value in values]
        points = [measure(shape, args.steps, not args.no_plain) for shape in shapes]
        places = [value[0] * value[1] if isinstance(value, tuple) else value for value in values]
        draw(name, label, places, points)
        found[name] = [{key: place, **point} for place, point in zip(places, points, strict=True)]
    text = json.dumps(found, indent=1) + "\n"
    (HERE / "docs/results/growth.json").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
