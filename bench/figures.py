"""The README's two figures, out of one run.

    python bench/figures.py runs/cat_and_dog --model-before builtin:tiny --out docs/img

`boxes.png`: the first held-out scenes, none of them picked, with the truth and the boxes that the model gives greedily
before and after training. The model sees a scene at 64 px; the figure draws the same scene at 256 px.
`curve.png`: the reward of every step, and the mean IoU on held-out scenes.
"""

import argparse
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from oncurve.config.schema import ModelConfig, TrainConfig
from oncurve.errors import OncurveError, RunError
from oncurve.evaluate import Evaluation, evaluate
from oncurve.policy.load import load_policy
from oncurve.record.reader import RunReader
from oncurve.tasks.scenes import draw_scene, make_scene
from oncurve.tasks.sets import SceneTasks, load_tasks
from oncurve.types import Box

NUM_SCENES, COLUMNS = 8, 4
SCENE_PX = 256
WIDTH_IN, DPI = 9.0, 200  # 1,800 px, shown at half of that
INK, PALE = "#333333", "#d0d0d0"
TRUTH, BEFORE, AFTER = "#ffffff", "#e69f00", "#0072b2"  # orange and blue of M. Okabe and K. Ito's palette

plt.rcParams |= {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": PALE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
}


def boxes_figure(tasks: SceneTasks, before: Evaluation, after: Evaluation) -> plt.Figure:
    """Scenes with truth and both boxes; below each its phrase, and the IoU before and after."""
    rows = -(-len(before.tasks) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(WIDTH_IN, 2.68 * rows + 0.4), squeeze=False)
    for index, axis in enumerate(axes.flat):
        scene = make_scene(tasks.config.split, index, tasks.config.max_things)
        axis.imshow(draw_scene(scene, SCENE_PX), extent=(0, 1, 1, 0), interpolation="antialiased")
        axis.set_axis_off()
        _outline(axis, scene.box, TRUTH, "-", INK)
        for evaluation, color, style in ((before, BEFORE, (0, (4, 1.5))), (after, AFTER, "-")):
            if box := evaluation.scores[index].extracted:
                _outline(axis, box, color, style, "white")
        axis.text(0.5, 1.05, scene.phrase, ha="center", va="top", size=10, weight="bold")
        for x, align, evaluation, color in ((0.46, "right", before, "#a86f00"), (0.54, "left", after, AFTER)):
            axis.text(x, 1.15, _overlap(evaluation, index), ha=align, va="top", color=color)
        axis.text(0.5, 1.15, "→", ha="center", va="top")
    handles = [
        Line2D([], [], color=TRUTH, lw=2, path_effects=[withStroke(linewidth=4, foreground=INK)], label="truth"),
        Line2D([], [], color=BEFORE, lw=2, ls=(0, (4, 1.5)), label="before training"),
        Line2D([], [], color=AFTER, lw=2, label="after training"),
    ]
    figure.legend(handles=handles, loc="upper center", ncols=3, frameon=False, fontsize=10, handlelength=2.6)
    figure.subplots_adjust(
        left=0.01, right=0.99, top=1 - 0.4 / figure.get_figheight(), bottom=0.08, wspace=0.06, hspace=0.2
    )
    return figure


def curve_figure(config: TrainConfig, rows: list[dict]) -> plt.Figure:
    """Reward of each step with its running mean, beside the held-out mean IoU of each evaluation."""
    reward = [(row["step"], row["reward/total/mean"]) for row in rows if "reward/total/mean" in row]
    heldout = [(row["step"], row["eval/mean_iou/mean"]) for row in rows if "eval/mean_iou/mean" in row]
    if not reward or not heldout:
        raise RunError("the record holds no step or no evaluation; train for a step at least")
    figure, (left, right) = plt.subplots(1, 2, figsize=(WIDTH_IN, 3.0))
    steps, values = np.array(reward).T
    left.plot(steps, values, color=PALE, lw=0.8)
    window = max(1, len(values) // 20)
    left.plot(*_running_mean(steps, values, window), color=AFTER, lw=2)
    smooth = "" if window == 1 else f" (line: mean of {window} steps)"
    left.set_title(f"Mean reward of a step{smooth}", loc="left", size=10)
    steps, values = np.array(heldout).T
    right.plot(steps, values, color=AFTER, lw=2, marker="o", ms=5, clip_on=False)
    for place, offset, align in ((0, (7, -9), "left"), (-1, (0, 8), "right")):
        label, point = f"{values[place]:.3f}", (steps[place], values[place])
        right.annotate(label, point, offset, textcoords="offset points", ha=align, weight="bold")
    num_tasks = next(row["eval/accuracy/num_tasks"] for row in rows if "eval/accuracy/num_tasks" in row)
    right.set_title(f"Mean IoU on {num_tasks} held-out tasks, greedy", loc="left", size=10)
    for axis in (left, right):
        axis.set_xlabel("step")
        axis.set_xlim(0, config.num_steps)
        axis.set_ylim(0, max(0.1, 1.15 * max(line.get_ydata().max() for line in axis.lines)))
        axis.grid(axis="y", color=PALE, lw=0.5)
        axis.tick_params(length=0)
    figure.tight_layout(w_pad=2.5)
    return figure


def _outline(axis: Axes, box: Box, color: str, style, casing: str) -> None:
    x1, y1, x2, y2 = box
    for width, edge, line in ((4, casing, "-"), (2, color, style)):
        axis.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec=edge, lw=width, ls=line))


def _overlap(evaluation: Evaluation, index: int) -> str:
    score = evaluation.scores[index]
    return f"IoU {score.parts['iou']:.2f}" if score.status == "scored" else "no box"


def _running_mean(steps: np.ndarray, values: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean of each run of `window` values, at the middle of its steps."""
    kernel = np.full(window, 1 / window)
    return np.convolve(steps, kernel, "valid"), np.convolve(values, kernel, "valid")


def make_figures(run_folder: Path, model_before: str, out: Path) -> None:
    """Write both figures. Raises `OncurveError` where the run, a model or its held-out scenes are missing."""
    reader = RunReader(run_folder)
    config = TrainConfig.model_validate_json(json.dumps(reader.config))
    tasks = load_tasks(config.heldout)
    if not isinstance(tasks, SceneTasks):
        raise RunError(f"{run_folder}: its held-out set is {tasks.name}; the figure draws the built-in scenes only")
    evaluations = [
        evaluate(
            load_policy(ModelConfig(path=path)),
            tasks,
            num_tasks=NUM_SCENES,
            batch_size=NUM_SCENES,
            max_new_tokens=config.sampling.max_new_tokens,
        )
        for path in (model_before, str(run_folder))
    ]
    out.mkdir(parents=True, exist_ok=True)
    for name, figure in (
        ("boxes.png", boxes_figure(tasks, *evaluations)),
        ("curve.png", curve_figure(config, reader.metrics())),
    ):
        figure.savefig(out / name, dpi=DPI, facecolor="white")
        print(out / name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--model-before", default="builtin:tiny", help="the model that the run began with")
    parser.add_argument("--out", type=Path, default=Path("docs/img"), help="the folder for the figures")
    args = parser.parse_args()
    try:
        make_figures(args.run, args.model_before, args.out)
    except OncurveError as error:
        print(f"figures: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
