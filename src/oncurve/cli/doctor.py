"""Tell what is wrong with a run, since when, and what to do.

oncurve doctor runs/cat_and_dog
oncurve doctor runs/cat_and_dog --json
oncurve doctor --metrics metrics.jsonl --json

A metrics file may come from any trainer that writes the names of docs/metrics.md; rules whose metrics are not there
stay silent. The exit status is 0 for no verdict above info, 1 for a warning, 3 for what is critical.
"""

import argparse
import json
from pathlib import Path

STYLES = {"info": "cyan", "warning": "yellow", "critical": "bold red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN", help="a run's folder")
    parser.add_argument(
        "--metrics", type=Path, metavar="FILE", help="a bare metrics file instead, one JSON object a line"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document and nothing else: a list of verdicts")


def run(args: argparse.Namespace) -> int:
    from oncurve.config.health import HealthConfig
    from oncurve.errors import DataError
    from oncurve.monitor.doctor import answers_that_show, diagnose, exit_status, health_of, read_metrics
    from oncurve.record.reader import RunReader

    if (args.run is None) == (args.metrics is None):
        raise DataError("name one thing to look at: oncurve doctor RUN, or oncurve doctor --metrics FILE")
    reader = RunReader(args.run) if args.run else None
    rows = reader.metrics() if reader else read_metrics(args.metrics)
    verdicts = diagnose(rows, health_of(reader) if reader else HealthConfig())
    shown = [answers_that_show(reader, verdict) if reader else None for verdict in verdicts]
    if args.json:
        print(json.dumps([_document(*pair) for pair in zip(verdicts, shown, strict=True)]))
    else:
        _show(args, rows, verdicts, shown)
    return exit_status(verdicts)


def _document(verdict, shown) -> dict:
    from dataclasses import asdict

    document = asdict(verdict)
    if shown:
        document["evidence"] += f"; {shown.what}"
        document["answers"] = [dict(zip(("step", "group", "answer"), place, strict=True)) for place in shown.answers]
    return document


def _show(args: argparse.Namespace, rows, verdicts, shown) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from oncurve.monitor.doctor import ADVICE

    console = Console(highlight=False)
    steps = {row["step"] for row in rows}
    span = f"steps {min(steps)} to {max(steps)}" if steps else "no rows"
    console.print(Text(f"{args.run or args.metrics}, {span}"))
    if not any(verdict.rank for verdict in verdicts):
        console.print(Text("nothing to warn of", style="green"))
    for verdict, found in zip(verdicts, shown, strict=True):
        console.print()
        when = f"since step {verdict.onset_step}, seen at step {verdict.detected_step}"
        when += f", gone at step {verdict.cleared_step}" if verdict.cleared_step is not None else ""
        console.print(Text.assemble((f"{verdict.severity} {verdict.verdict}", STYLES[verdict.severity]), f"  {when}"))
        lines = [verdict.evidence]
        if found:
            step, group, answer = found.answers[0]
            lines += [found.what, f"read them: oncurve trace {args.run} --step {step} (group {group}, answer {answer})"]
        lines.append(f"to do: {ADVICE[verdict.verdict]}")
        for text in lines:
            console.print(Padding(Text(text), (0, 0, 0, 2)))
