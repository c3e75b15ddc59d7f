"""Tell whether two runs are the same bit for bit, and where they differ.

oncurve compare runs/a runs/b
oncurve compare runs/a runs/b --json

Compared are weights, optimizer, answers, probes, events and every metric but clock times, throughput and memory. The
exit status is 0 for identical runs and 1 for others.
"""

import argparse
import json
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", type=Path, metavar="A", help="a run's folder")
    parser.add_argument("b", type=Path, metavar="B", help="another")
    parser.add_argument("--json", action="store_true", help="one JSON document and nothing else")


def run(args: argparse.Namespace) -> int:
    from oncurve.record.reader import RunReader

    for folder in (args.a, args.b):
        RunReader(folder)  # what is no run is refused before torch is imported

    from oncurve.compare import compare

    found = compare(args.a, args.b)
    if args.json:
        print(json.dumps(_document(args, found)))
    else:
        _show(args, found)
    return 0 if found.identical else 1


def _document(args: argparse.Namespace, found) -> dict:
    from dataclasses import asdict

    from oncurve.compare import CLOCKS

    first = found.first_difference
    return {
        "a": str(args.a),
        "b": str(args.b),
        "identical": found.identical,
        "first_difference": None if first is None else asdict(first),
        "num_steps": found.num_steps,
        "checkpoints_compared": found.checkpoints,
        "metrics_left_out": [f"{name}*" for name in CLOCKS],
        "config": found.config,
        "last_evaluations": found.evaluations,
    }


def _show(args: argparse.Namespace, found) -> None:
    from rich.console import Console
    from rich.table import Table

    from oncurve.cli.terminal import evaluated_labels

    console = Console()

    def say(label: str, text: str) -> None:
        console.print(f"{label:<12}{text}", highlight=False, markup=False, soft_wrap=True)

    say("a", f"{args.a}, {found.num_steps[0]} steps")
    say("b", f"{args.b}, {found.num_steps[1]} steps")
    if found.identical:
        compared = ", ".join(map(str, found.checkpoints)) or "none"
        say("identical", "weights, optimizer, answers, probes, events and metrics are the same bit for bit")
        say("", "(clock times, throughput and memory aside); " + f"checkpoints compared: {compared}")
    else:
        first = found.first_difference
        say("different", f"first at step {first.step}, in {first.field}")
        say("", f"a {_text(first.a)}   b {_text(first.b)}" + (f"   by {first.by:.3g}" if first.by is not None else ""))
    if found.config:
        table = Table(title="Configuration", title_justify="left")
        for name in ("", "a", "b"):
            table.add_column(name, overflow="fold")
        for key, (a, b) in found.config.items():
            table.add_row(key, _text(a), _text(b))
        console.print(table)
    a, b = found.evaluations
    if a and b and not found.identical:
        title = f"Held out, {a['eval/accuracy/num_tasks']} and {b['eval/accuracy/num_tasks']} tasks, greedy"
        table = Table(title=title, title_justify="left")
        for name in ("", f"a (step {a['step']})", f"b (step {b['step']})", "b - a"):
            table.add_column(name, justify="right" if name else "left")
        for label, name in evaluated_labels(a, b).items():
            table.add_row(label, f"{a[name]:.3f}", f"{b[name]:.3f}", f"{b[name] - a[name]:+.3f}")
        console.print(table)


def _text(value) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)
