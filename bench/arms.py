"""What the studies share: arms and seeds as runs of `oncurve train`, their held-out curves, intervals over seeds, a plot.

Every finished run is a line of a JSONL file, and is not made again; so a study can be stopped and gone on with.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from statistics import fmean, stdev
from threading import Lock

import numpy as np
from scipy.stats import t as student

from oncurve.record.reader import RunReader

HERE = Path(__file__).parents[1]
COMMON = {
    "num_steps": 40,
    "data.num_scenes": 320,
    "sampling.prompts_per_step": 16,
    "sampling.answers_per_prompt": 8,
    "optimizer.schedule": "constant",
    "optimizer.learning_rate": 2e-4,  # at the recipe's 1e-3, which falls in the recipe, held-out IoU fell after 10 steps
    "evaluate.every_steps": 10,
    "evaluate.num_tasks": 200,
    "evaluate.num_probes": 0,
    "checkpoint.every_steps": 0,
}
KEPT = {"mean_iou": "eval/mean_iou/mean", "acc@0.75": "eval/heldout/acc@0.75", "valid": "eval/heldout/valid_format"}
MEANS = {
    "no_signal": "groups/no_signal/share",
    "trained_groups": "groups/trained/share",
    "group_size": "groups/size/mean",
    "distinct_answers": "groups/distinct_answers/mean",
    "duplicates": "groups/duplicate_answers/share",
    "reward_std_in_group": "reward/total/std_in_group",
}

Arms = dict[
    str, dict[str, object]
]  # by name, the overrides of the recipe that make it; `program`: in place of `oncurve`


def parser(about: str, arms: Arms, out: Path, runs: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds 0 to N - 1")
    made.add_argument("--arms", default=",".join(arms), metavar="A,B", help="of: " + ", ".join(arms))
    made.add_argument("--steps", type=int, default=COMMON["num_steps"], help="of one run")
    made.add_argument("--jobs", type=int, default=2, help="runs at a time, one thread each")
    made.add_argument("--runs-folder", type=Path, default=Path(runs), help="finished runs are kept there as lines")
    made.add_argument("--out", type=Path, default=out)
    made.add_argument("--figure", type=Path, default=HERE / "docs/img" / f"{out.stem}.png")
    made.add_argument("--json", action="store_true", help="print the result as one JSON document")
    return made


def study(args: argparse.Namespace, arms: Arms, panels: dict[str, list[str]], about: dict[str, object]) -> dict:
    """Make the runs that are missing, and write what all of them say.

    A panel of the figure shows the arms that are named under its title, against the first of them.
    """
    baselines = {arm: panel[0] for panel in panels.values() for arm in panel}
    chosen = args.arms.split(",")
    if unknown := [name for name in chosen if name not in arms]:
        raise SystemExit(f"no arm {unknown[0]}; there are {', '.join(arms)}")
    args.runs_folder.mkdir(parents=True, exist_ok=True)
    record, lock = args.runs_folder / "finished.jsonl", Lock()
    lines = record.read_text().splitlines() if record.exists() else []
    found = {(r["arm"], r["seed"]): r for r in map(json.loads, lines) if r["steps"] == args.steps}

    def make(arm: str, seed: int) -> None:
        result = run(args, arm, seed, arms[arm])
        with lock:
            found[arm, seed] = result
            with record.open("a") as file:
                file.write(json.dumps(result) + "\n")
            done = sum(name in chosen and at < args.seeds for name, at in found)
            print(f"{done}/{len(chosen) * args.seeds}  {arm}, seed {seed}: mean IoU {result['curve'][-1]['mean_iou']:.3f}",
                  file=sys.stderr, flush=True)  # fmt: skip

    missing = [(arm, seed) for seed in range(args.seeds) for arm in chosen if (arm, seed) not in found]
    with ThreadPoolExecutor(args.jobs) as threads:
        list(threads.map(lambda pair: make(*pair), missing))
    results = {arm: [found[arm, seed] for seed in range(args.seeds)] for arm in chosen}
    document = about | {"common": COMMON | {"num_steps": args.steps}, "seeds": args.seeds}
    document["arms"] = {
        arm: {"overrides": arms[arm], **summary(results[arm], results.get(baselines[arm]), baselines[arm])}
        for arm in chosen
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(document, indent=1) + "\n")
    args.figure.parent.mkdir(parents=True, exist_ok=True)
    draw(args.figure, document["arms"], panels)
    print(json.dumps(document) if args.json else table(document["arms"]))
    return document


def run(args: argparse.Namespace, arm: str, seed: int, overrides: dict[str, object]) -> dict:
    """One run, its held-out curve over the answers and tokens that were sampled, and means of its steps."""
    folder = args.runs_folder / f"{arm}-{seed}"
    options = COMMON | {"num_steps": args.steps, "seed": seed, "name": folder.name, "runs_folder": str(folder.parent)}
    program = [str(HERE / overrides["program"])] if "program" in overrides else ["-m", "oncurve"]
    given = {key: value for key, value in (options | overrides).items() if key != "program"}
    command = [sys.executable, *program, "train", str(HERE / "recipes/cat_and_dog.toml"), "--replace", "--no-audit"]
    command += [f"--{key}={toml(value)}" for key, value in given.items()]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    rows = RunReader(folder).metrics()
    steps = [row for row in rows if "answers/num" in row]
    answers = [0, *accumulate(row["answers/num"] for row in steps)]
    tokens = [0, *accumulate(row["answers/num"] * row["answers/length_tokens/mean"] for row in steps)]
    curve = [
        {"step": row["step"], "answers": answers[row["step"]], "tokens": round(tokens[row["step"]])}
        | {short: row[name] for short, name in KEPT.items()}
        for row in rows
        if KEPT["mean_iou"] in row
    ]
    seconds = sum(s for row in steps for name, s in row.items() if name.startswith("time/"))
    means = {short: fmean(row[name] for row in steps if name in row) for short, name in MEANS.items()}
    shutil.rmtree(folder)
    return {"arm": arm, "seed": seed, "steps": args.steps, "curve": curve, "seconds": round(seconds, 1), **means}


def at_budget(curve: list[dict], answers: float, name: str) -> float:
    """The curve's value after so many answers, between two evaluations by a straight line."""
    return float(np.interp(answers, [point["answers"] for point in curve], [point[name] for point in curve]))


def along(curve: list[dict], answers: float, name: str) -> float:
    """The curve's mean over the answers up to there: what was gained early counts for longer."""
    x = [0, *sorted(point["answers"] for point in curve if 0 < point["answers"] < answers), answers]
    return float(np.trapezoid([at_budget(curve, at, name) for at in x], x) / answers)


MEASURES = {name: (at_budget, name) for name in KEPT} | {"mean_iou_along": (along, "mean_iou")}


def summary(results: list[dict], baseline: list[dict] | None, name: str) -> dict:
    """At the budget of the baseline's shortest run: means over seeds with 95 % intervals (Student's t), and the paired gain."""
    budget = min(r["curve"][-1]["answers"] for r in [*results, *(baseline or [])])
    made = {"budget_answers": budget}
    for measure, (value, metric) in MEASURES.items():
        values = [value(r["curve"], budget, metric) for r in results]
        made[measure] = interval(values)
        if baseline and baseline is not results:
            pairs = zip(values, baseline, strict=True)
            made[f"{measure} over {name}"] = interval([v - value(b["curve"], budget, metric) for v, b in pairs])
    made |= {short: fmean(r[short] for r in results) for short in ("seconds", *MEANS)}
    made["curves"] = [r["curve"] for r in results]
    return made


def interval(values: list[float]) -> dict[str, float]:
    """Mean and half the width of its 95 % interval; no width of a single value."""
    if len(values) < 2:
        return {"mean": values[0]}
    half = student.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return {"mean": fmean(values), "plus_minus": float(half)}


def table(arms: dict[str, dict]) -> str:
    """Markdown: each arm at its budget."""
    columns = ("arm", "answers", "mean IoU", "over its baseline", "along the way", "Acc@0.75", "no signal", "s")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for arm, r in arms.items():
        end, way = (
            next((shown(value, "+.3f") for key, value in r.items() if key.startswith(f"{measure} over")), "")
            for measure in ("mean_iou", "mean_iou_along")
        )
        lines.append(
            f"| {arm} | {r['budget_answers']:,} | {shown(r['mean_iou'], '.3f')} | {end} | {way} | "
            f"{shown(r['acc@0.75'], '.3f')} | {r['no_signal']:.2f} | {r['seconds']:.0f} |"
        )
    return "\n".join(lines)


def shown(value: dict[str, float], form: str) -> str:
    return format(value["mean"], form) + (f" ± {value['plus_minus']:.3f}" if "plus_minus" in value else "")


def draw(path: Path, arms: dict[str, dict], panels: dict[str, list[str]]) -> None:
    """Held-out mean IoU against sampled tokens, the mean over seeds and its 95 % interval; baselines in grey."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = {title: kept for title, panel in panels.items() if (kept := [arm for arm in panel if arm in arms])}
    rows = -(-len(shown) // 2)
    figure, axes = pyplot.subplots(
        rows, min(2, len(shown)), figsize=(10.5, 3.9 * rows), layout="constrained", sharey=True, squeeze=False
    )
    for axis, (title, names) in zip(axes.flat, shown.items(), strict=False):
        for number, arm in enumerate(names):
            curves, is_baseline = arms[arm]["curves"], arm == panels[title][0]
            x = [fmean(curve[i]["tokens"] for curve in curves) / 1000 for i in range(len(curves[0]))]
            points = [interval([curve[i]["mean_iou"] for curve in curves]) for i in range(len(curves[0]))]
            means = np.array([point["mean"] for point in points])
            half = np.array([point.get("plus_minus", 0.0) for point in points])
            color = "#555555" if is_baseline else f"C{number}"
            axis.plot(x, means, color=color, lw=2.6 if is_baseline else 1.5, label=arm)
            axis.fill_between(x, means - half, means + half, color=color, alpha=0.12, lw=0)
        axis.set(xlabel="thousand sampled tokens", title=title)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8)
    for axis in axes[:, 0]:
        axis.set_ylabel("held-out mean IoU")
    for axis in axes.flat[len(shown) :]:
        axis.set_axis_off()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def toml(value: object) -> str:
    """A value as an override writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)
