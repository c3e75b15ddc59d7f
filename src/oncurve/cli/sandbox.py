"""Attack the sandbox that untrusted code runs in, and print the isolation that it reaches.

The exit status is 0 where that is bubblewrap or better, and 1 below."""

import argparse
import json
from dataclasses import asdict
from textwrap import wrap

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from oncurve.sandbox.probes import LEVELS, Report, report

STYLES = {"blocked": "green", "allowed": "bold red", "not_tried": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["probe"], help="run every attack, each in a sandbox of its own kind")
    parser.add_argument("--json", action="store_true", help="one JSON document: level, probes, why not a higher level")


def run(args: argparse.Namespace) -> int:
    found = report()
    if args.json:
        print(json.dumps(asdict(found), indent=2))
    else:
        show(found, Console())
    return 0 if LEVELS.index(found.level) >= LEVELS.index("bubblewrap") else 1


def show(found: Report, console: Console) -> None:
    blocked = sum(probe.outcome == "blocked" for probe in found.probes)
    console.print(f"isolation  [bold]{found.level}[/bold]: {blocked} of {len(found.probes)} attacks blocked")
    for level, why in found.missed.items():
        first, *more = wrap(f"{level}: {why}", console.width - 11)
        console.print(
            f"not        {first}", *(f"           {line}" for line in more), sep="\n", markup=False, highlight=False
        )
    table = Table(box=SIMPLE_HEAD)
    for name in ("attack from inside", "outcome", "how"):
        table.add_column(name)
    for probe in found.probes:
        outcome = probe.outcome.replace("_", " ")
        table.add_row(probe.tries, f"[{STYLES[probe.outcome]}]{outcome}[/]", probe.detail)
    console.print(table)
