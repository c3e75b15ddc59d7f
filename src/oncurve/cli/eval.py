"""Measure a model or a run on held-out tasks, answered greedily.

oncurve eval builtin:tiny --data scenes:heldout --limit 200
oncurve eval runs/cat_and_dog --data scenes:heldout --json
oncurve eval runs/cat_and_dog --data 'photos.jsonl?space=pixel_original&order=xywh'
"""

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="builtin:tiny, a run's folder, a model's folder or a hub id")
    parser.add_argument(
        "--data", required=True, help="such as scenes:heldout, FILE.jsonl?space=…&order=… or FILE.json?images=…"
    )
    parser.add_argument("--limit", type=whole_number, default=500, help="how many tasks at the most (500)")
    parser.add_argument("--max-new-tokens", type=whole_number, default=16)
    parser.add_argument("--batch-size", type=whole_number, default=64)
    parser.add_argument("--json", action="store_true", help="one JSON document and nothing else")


def whole_number(text: str) -> int:
    """An option's value, a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 is needed, got {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    from oncurve.tasks.sets import describe_rejections, load_tasks, parse_data

    tasks = load_tasks(parse_data(args.data))

    from rich.console import Console
    from rich.table import Table

    from oncurve.config.schema import ModelConfig
    from oncurve.evaluate import evaluate
    from oncurve.policy.load import load_policy

    evaluation = evaluate(
        load_policy(ModelConfig(path=args.model)),
        tasks,
        num_tasks=args.limit,
        batch_size=args.batch_size,
        max_new_tokens=args.max_new_tokens,
    )
    summary, intervals = evaluation.summary, evaluation.intervals
    if args.json:
        document = {"model": args.model, "data": args.data, **summary}
        document |= {"intervals_95": intervals, "num_rejected_rows": len(tasks.rejections)}
        print(json.dumps(document))
        return 0
    table = Table(title=f"{args.model} on {args.data}, {summary['num_tasks']} tasks, greedy", title_justify="left")
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    for name, (low, high) in intervals.items():
        table.add_row(name.replace("_", " "), f"{summary[name]:.3f}", f"{low:.3f} to {high:.3f}")
    console = Console()
    console.print(table)
    if text := describe_rejections(tasks.rejections, len(tasks)):
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    return 0
