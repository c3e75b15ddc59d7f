"""Attack a configuration's reward before a model does.

oncurve audit recipes/cat_and_dog.toml
oncurve audit recipes/cat_and_dog.toml --html audit.html
oncurve audit recipes/cat_and_dog.toml --json --fail-on exploit

Every known exploit that applies is executed on the configuration's own tasks, and answers whose verdict is known are
graded. The exit status is 0 unless --fail-on asks for more.
"""

import argparse
import json
from pathlib import Path

from oncurve.cli.eval import whole_number

TAKES_OVERRIDES = True
MAX_SHOWN = 700  # characters of an answer on the terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, help="a TOML file, such as recipes/cat_and_dog.toml")
    parser.add_argument("--json", action="store_true", help="one JSON list, an object for each exploit and check")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with every worst example in full")
    parser.add_argument(
        "--fail-on", choices=["exploit"], help="exit status 1 where one exploit or check is not as it should be"
    )
    parser.add_argument("--quick", action="store_true", help="few tasks, and no bombs: what `oncurve train` runs first")
    parser.add_argument("--allow-unsafe", action="store_true", help="run code without isolation")
    parser.add_argument("--limit", type=whole_number, metavar="N", help="tasks of each kind (8, in a quick audit 3)")


def run(args: argparse.Namespace) -> int:
    from oncurve.config.loader import load
    from oncurve.config.schema import TrainConfig
    from oncurve.rewards.audit.run import audit
    from oncurve.rewards.grader import LocalGrader
    from oncurve.tasks.sets import load_tasks

    config = load(args.config, args.overrides, TrainConfig)
    tasks = load_tasks(config.data)
    grader = LocalGrader(config.reward, allow_unsafe=args.allow_unsafe)
    findings = audit(grader, config.reward, tasks, quick=args.quick, limit=args.limit)
    if args.html:
        _write_page(args.html, f"{args.config} on {tasks.name}", findings)
    if args.json:
        print(json.dumps([finding.row() for finding in findings]))
    else:
        _show(f"{args.config} on {tasks.name}", findings)
        if args.html:
            print(f"\npage      {args.html}")
    return int(args.fail_on is not None and not all(finding.ok for finding in findings))


def _write_page(path: Path, title: str, findings: list) -> None:
    from oncurve.errors import DataError
    from oncurve.rewards.audit.page import page

    try:
        path.write_text(page(title, findings), "utf-8", "backslashreplace")
    except OSError as error:
        raise DataError(
            f"--html {path}: can't be written: {error.strerror}; name a file in a folder that exists"
        ) from None


def _show(title: str, findings: list) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for kind in dict.fromkeys(finding.kind for finding in findings):
        mine = [finding for finding in findings if finding.kind == kind]
        table = Table(title=Text(f"{title}: {kind}"), title_justify="left")
        for name in ("exploit or check", "", "worst verdict"):
            table.add_column(name, overflow="fold")
        table.add_column("wrong", justify="right")
        for finding in (finding for finding in mine if finding.applies):
            mark = Text("ok", "green") if finding.ok else Text("BROKEN", "bold red")
            wrong = f"{finding.num_wrong}/{finding.num_attacks}" if finding.num_attacks else "-"
            table.add_row(finding.exploit, mark, Text(finding.verdict), wrong)
        console.print(table)
        if left := [finding.exploit for finding in mine if not finding.applies]:
            console.print(f"no attack for {kind}: {', '.join(left)}", style="dim", highlight=False)
    for finding in (finding for finding in findings if not finding.ok):
        _show_broken(console, finding)
    broken = sum(not finding.ok for finding in findings)
    applied = sum(finding.applies for finding in findings)
    console.print()
    if broken:
        console.print(
            f"{broken} of {applied} are broken: a model will find them. Mend the reward first.", style="bold red"
        )
    else:
        console.print(f"All {applied} as they should be.", style="green", highlight=False)


def _show_broken(console, finding) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print()
    console.print(Text(f"{finding.exploit} ({finding.kind})", "bold red"))
    lines = [("attack", finding.does), ("should be", finding.right), ("is", finding.verdict)]
    if example := finding.example:
        lines += [("task", example.task_id), ("answer", _shortened(example.text)), ("evidence", example.score.evidence)]
        lines += [("parts", ", ".join(f"{name} {value:.3g}" for name, value in example.score.parts.items()))]
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(min_width=11)
    grid.add_column(overflow="fold")
    for label, text in lines:
        if text:
            grid.add_row(f"  {label}", Text(text))
    console.print(grid)


def _shortened(text: str) -> str:
    """Long padding, with its middle left out; white space and what is invisible is shown as an escape."""
    shown = "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
    if not text.strip():
        return repr(text)
    if len(shown) <= MAX_SHOWN:
        return shown
    return f"{shown[: MAX_SHOWN // 2]} … ({len(text):,} characters) … {shown[-MAX_SHOWN // 4 :]}"
