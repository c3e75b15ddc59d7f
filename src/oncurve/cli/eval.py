"""Measure a model or a run on held-out tasks, or tell which of two is better.

oncurve eval builtin:tiny --data scenes:heldout --limit 200
oncurve eval runs/cat_and_dog --json
oncurve eval runs/cat_and_dog --data 'photos.jsonl?space=pixel_original&order=xywh'
oncurve eval runs/cat_and_dog --samples 8 --temperature 1
oncurve eval builtin:tiny runs/cat_and_dog --paired
oncurve eval Qwen/Qwen2.5-0.5B-Instruct --data general

Answers are greedy, or with --samples sampled, and graded by the rules of their kind; docs/evaluation.md explains every number.
"""

import argparse
import json
from pathlib import Path

MAX_NEW_TOKENS, MAX_NEW_TOKENS_GENERAL = 16, 64
SHOWN_CATEGORIES, SHOWN_CHANGED, SHOWN_CHARACTERS = 12, 5, 60
LABELS = {
    "mean_iou": "mean IoU",
    "coco_ap": "COCO AP",
    "coco_ap50": "COCO AP50",
    "coco_ap75": "COCO AP75",
    "mae": "MAE",
    "cer": "CER",
    "wer": "WER",
    "anls": "ANLS",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", nargs="+", metavar="MODEL", help="builtin:tiny, a run's folder, a model's folder or a hub id"
    )
    parser.add_argument(
        "--data",
        help="such as scenes:heldout, general, FILE.jsonl, FILE.jsonl?space=…&order=… or FILE.json?images=…; "
        "of a run, its own held-out tasks where this is left out",
    )
    parser.add_argument("--limit", type=whole_number, default=500, help="how many tasks at the most (500)")
    parser.add_argument(
        "--samples", type=whole_number, metavar="K", help="sample K answers a task: avg@K, pass@k, maj@K"
    )
    parser.add_argument("--temperature", type=positive, help="of the sampled answers (1)")
    parser.add_argument("--paired", action="store_true", help="compare two models on the same tasks")
    parser.add_argument("--max-new-tokens", type=whole_number, help="of an answer (the run's, or 16; general: 64)")
    parser.add_argument("--batch-size", type=whole_number, default=64)
    parser.add_argument("--allow-unsafe", action="store_true", help="run code without isolation")
    parser.add_argument("--json", action="store_true", help="one JSON document and nothing else")


def whole_number(text: str) -> int:
    """An option's value, a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 is needed, got {text!r}")
    return int(text)


def positive(text: str) -> float:
    """An option's value, a number above 0."""
    try:
        if 0 < float(text) < float("inf"):
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"a number above 0 is needed, got {text!r}")


def run(args: argparse.Namespace) -> int:
    from oncurve.errors import ConfigError

    if len(args.models) != (2 if args.paired else 1):
        raise ConfigError(
            "eval measures one model (oncurve eval MODEL) or compares two (oncurve eval A B --paired); "
            f"{len(args.models)} were given" + (" with --paired" if args.paired else "")
        )
    if args.temperature and not args.samples:
        raise ConfigError("--temperature is of sampled answers; say how many with --samples K")
    if args.paired and args.samples:
        raise ConfigError("--paired compares greedy answers; leave --samples out")

    from oncurve.tasks.sets import load_tasks, parse_data

    trained = next((config for config in map(_trained, args.models) if config), None)
    if args.data is None and not trained:
        raise ConfigError(
            "--data is needed: " + " and ".join(args.models) + " is no run with held-out tasks of its own"
        )
    data = parse_data(args.data) if args.data is not None else trained.heldout
    tasks = load_tasks(data)
    args.data = args.data or tasks.name

    from rich.console import Console

    from oncurve.config.schema import ModelConfig
    from oncurve.evaluate import evaluate, evaluate_sampled
    from oncurve.policy.load import load_policy
    from oncurve.tasks.sets import describe_rejections

    own_tokens = trained.sampling.max_new_tokens if trained else MAX_NEW_TOKENS
    settings = {
        "num_tasks": args.limit,
        "batch_size": args.batch_size,
        "max_new_tokens": args.max_new_tokens or max(own_tokens, MAX_NEW_TOKENS_GENERAL * (args.data == "general")),
        "rules": trained and trained.reward,
        "allow_unsafe": args.allow_unsafe,
    }
    console = Console()
    if args.paired:
        from oncurve.evaluate.paired import paired

        found = paired(*(evaluate(load_policy(ModelConfig(path=m)), tasks, **settings) for m in args.models))
        document, show = _paired_document(args, found), lambda: _show_paired(console, args, found)
    elif args.samples:
        args.temperature = args.temperature or 1.0
        policy = load_policy(ModelConfig(path=args.models[0]))
        sampled = evaluate_sampled(policy, tasks, num_samples=args.samples, temperature=args.temperature, **settings)
        document, show = _sampled_document(args, sampled), lambda: _show_sampled(console, args, sampled)
    else:
        greedy = evaluate(load_policy(ModelConfig(path=args.models[0])), tasks, **settings)
        document, show = _document(args, greedy), lambda: _show(console, args, greedy)
    if args.json:
        from oncurve.record.files import to_json

        print(to_json(document | {"num_rejected_rows": len(tasks.rejections)}))
        return 0
    show()
    if text := describe_rejections(tasks.rejections, len(tasks)):
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    return 0


def _trained(model: str):
    """The configuration of a run of `oncurve train`; None for any other model."""
    from oncurve.cli.train import config_of
    from oncurve.errors import RunError

    try:
        return config_of(Path(model))
    except (RunError, OSError):
        return None


def _values(measures) -> dict:
    intervals = {name: one.interval for name, one in measures.items() if one.interval}
    return {name: one.value for name, one in measures.items()} | {"intervals_95": intervals}


def _document(args: argparse.Namespace, found) -> dict:
    from oncurve.evaluate.measures import by_category, by_kind, by_length

    graded = found.graded
    kinds = {kind: _values(own) for kind, own in by_kind(graded).items()}
    categories = {name: {"num_tasks": n} | _values(own) for name, (n, own) in by_category(graded).items()}
    lengths = [
        {"from": low, "to": high, "num_tasks": n, "accuracy": one.value, "interval_95": one.interval}
        for low, high, n, one in by_length(graded)
    ]
    return {
        "model": args.models[0],
        "data": args.data,
        **_values(found.measures),
        "num_tasks": len(graded),
        "num_verifier_errors": len(found.scores) - len(graded),
        "by_kind": kinds,
        "by_category": categories,
        "by_length_tokens": lengths,
    }


def _sampled_document(args: argparse.Namespace, found) -> dict:
    return {
        "model": args.models[0],
        "data": args.data,
        "samples": args.samples,
        "temperature": args.temperature,
        "num_tasks": len(found.tasks),
        **_values(found.measures),
    }


def _paired_document(args: argparse.Namespace, found) -> dict:
    metrics = {
        name: {
            "a_mean": one.a_mean,
            "b_mean": one.b_mean,
            "difference": one.difference,
            "interval_95": one.interval_95,
            "p_value": one.p_value,
            "p_b_better": one.p_b_better,
            "verdict": one.verdict,
        }
        for name, one in found.differences.items()
    }
    first = next(iter(metrics))
    a, b = args.models
    changed = {"gained": [one.row() for one in found.gained], "lost": [one.row() for one in found.lost]}
    document = {"a": a, "b": b, "data": args.data, "num_tasks": found.num_tasks, "metric": first, **metrics[first]}
    return document | {"metrics": metrics, "changed": changed}


def _show(console, args: argparse.Namespace, found) -> None:
    from oncurve.evaluate.measures import by_category, by_kind, by_length

    graded = found.graded
    _show_measures(console, f"{args.models[0]} on {args.data}, {len(graded)} tasks, greedy", found.measures)
    if lost := len(found.scores) - len(graded):
        console.print(f"left out: {lost} answers that the verifier failed on", style="yellow", highlight=False)
    if len(kinds := by_kind(graded)) > 1:
        _show_kinds(console, {kind: (sum(one.task.kind == kind for one in graded), own) for kind, own in kinds.items()})
    rows = [(name, n, own["accuracy"]) for name, (n, own) in by_category(graded).items() if "accuracy" in own]
    _show_accuracy(console, "By category", "category", rows[:SHOWN_CATEGORIES])
    if len(rows) > SHOWN_CATEGORIES:
        console.print(f"and {len(rows) - SHOWN_CATEGORIES} more (--json has all)", style="dim", highlight=False)
    lengths = [(f"{one.low} to {one.high}", one.num, one.accuracy) for one in by_length(graded)]
    if len(lengths) > 1:
        _show_accuracy(console, "By length of the answer", "tokens", lengths)


def _show_sampled(console, args: argparse.Namespace, found) -> None:
    how = f"{args.samples} answers each at temperature {args.temperature:g}"
    _show_measures(console, f"{args.models[0]} on {args.data}, {len(found.tasks)} tasks, {how}", found.measures)
    if not found.measures:
        console.print("no verifier says what is correct, so there is nothing to count", highlight=False)


def _show_measures(console, title: str, measures) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print(Text(title, "italic"), soft_wrap=True)
    table = Table()
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    for name, one in measures.items():
        table.add_row(*_cells(name, one))
    console.print(table)


def _show_kinds(console, kinds) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print(Text("By kind", "italic"))
    table = Table()
    for name in ("kind", "tasks", "measure", "value", "95 % interval"):
        table.add_column(name, justify="left" if name in ("kind", "measure") else "right")
    for kind, (number, own) in kinds.items():
        first = [kind, str(number)]
        for name, one in own.items():
            table.add_row(*first, *_cells(name, one))
            first = ["", ""]
        table.add_section()
    console.print(table)


def _cells(name: str, one) -> tuple[str, str, str]:
    interval = f"{one.interval[0]:.3f} to {one.interval[1]:.3f}" if one.interval else "-"
    return LABELS.get(name, name.replace("_", " ")), f"{one.value:.3f}", interval


def _show_accuracy(console, title: str, heading: str, rows) -> None:
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    console.print(Text(title, "italic"))
    table = Table()
    table.add_column(heading, overflow="fold")
    for name in ("tasks", "accuracy", "95 % interval"):
        table.add_column(name, justify="right")
    for name, number, one in rows:
        table.add_row(Text(name), str(number), f"{one.value:.3f}", f"{one.interval[0]:.3f} to {one.interval[1]:.3f}")
    console.print(table)


def _show_paired(console, args: argparse.Namespace, found) -> None:
    from rich.table import Table
    from rich.text import Text

    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style), soft_wrap=True)

    a, b = args.models
    say(f"A         {a}\nB         {b}\non        {args.data}, {found.num_tasks} tasks, greedy\n")
    table = Table()
    for name in ("", "A", "B", "B - A", "95 % interval", "p", "verdict"):
        table.add_column(name, justify="right" if name not in ("", "verdict") else "left", no_wrap=True)
    styles = {"B is better": "green", "B is worse": "red", "can't tell": "yellow"}
    for name, one in found.differences.items():
        low, high = one.interval_95
        table.add_row(
            LABELS.get(name, name.replace("_", " ")),
            f"{one.a_mean:.3f}",
            f"{one.b_mean:.3f}",
            f"{one.difference:+.3f}",
            f"{low:+.3f} to {high:+.3f}",
            f"{one.p_value:.4f}",
            Text(one.verdict, styles[one.verdict]),
        )
    console.print(table)
    for label, changed in (("gained", found.gained), ("lost", found.lost)):
        tasks, who = "task" if len(changed) == 1 else "tasks", "B" if label == "gained" else "A"
        say(f"\n{label:<10}{len(changed)} {tasks} that {who} alone got right")
        for one in changed[:SHOWN_CHANGED]:
            say(f"  {one.a.task.id}: {_short(one.a.task.messages[-1].text)}")
            say(f"    A  {_short(one.a.rollout.text)}\n    B  {_short(one.b.rollout.text)}", "dim")
        if len(changed) > SHOWN_CHANGED:
            say(f"  and {len(changed) - SHOWN_CHANGED} more (--json has all)", "dim")


def _short(text: str) -> str:
    line = json.dumps(text, ensure_ascii=False)[1:-1]
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 1] + "…"
