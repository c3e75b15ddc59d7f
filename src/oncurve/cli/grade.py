"""Grade answers from a file: the way to try a verifier.

oncurve grade answers.jsonl            a table for people
oncurve grade answers.jsonl --json     one Score a line, in the file's order

A row is one JSON object: `kind`, `truth`, `answer`, and as you like `options`, `prompt`, `id`. docs/rewards.md shows one
for each kind. A row that can't be graded (unknown kind, key or option, a broken truth) stops the command with exit status 2.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ANSWER_KEYS = ("answer", "text")
COLORS = {"scored": "green", "invalid": "yellow", "error": "red"}
MAX_FAULTS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="rows as JSONL; - reads standard input")
    parser.add_argument("--json", action="store_true", help="one Score a line and nothing else")
    parser.add_argument(
        "--allow-unsafe", action="store_true", help="run code without isolation, which every score says"
    )


def run(args: argparse.Namespace) -> int:
    from oncurve.config.rewards import KindsRules
    from oncurve.errors import BrokenTruth, DataError
    from oncurve.rewards.answers import text_answer
    from oncurve.rewards.grader import LocalGrader
    from oncurve.tasks.questions import parse_question, read_lines, read_text, task_of

    grader = LocalGrader(KindsRules(type="kinds"), allow_unsafe=args.allow_unsafe)
    rows, pairs, faults = [], [], []
    for place, row in read_lines(args.file, sys.stdin.read() if str(args.file) == "-" else read_text(args.file)):
        try:
            task = task_of(parse_question(row | {"prompt": _prompt(row)}, beside=ANSWER_KEYS), place)
            answer = _answer(row)
            grader.check([task])
        except (DataError, BrokenTruth) as error:
            faults.append(f"{place}: {error}")
            continue
        rows.append(row)
        pairs.append((task, text_answer(task, answer)))
    if faults:
        more = f"\n… and {len(faults) - MAX_FAULTS} more" if len(faults) > MAX_FAULTS else ""
        raise DataError("\n".join(faults[:MAX_FAULTS]) + more)
    scores = grader.grade(pairs)
    if args.json:
        for row, score in zip(rows, scores, strict=True):
            print(json.dumps({key: row[key] for key in ("id", "prompt") if key in row} | score_json(score)))
    else:
        _table(rows, scores)
    return 0


def score_json(score) -> dict[str, Any]:
    """A score as JSON; the value of one whose verifier failed is null."""
    from dataclasses import asdict

    return asdict(score) | {"value": None if score.status == "error" else score.value, "parts": dict(score.parts)}


def _answer(row: dict[str, Any]) -> str:
    from oncurve.errors import DataError

    given = [key for key in ANSWER_KEYS if key in row]
    if len(given) != 1 or not isinstance(row[given[0]], str):
        raise DataError('answer: the text of one answer is needed, "answer": "…"')
    return row[given[0]]


def _prompt(row: dict[str, Any]) -> Any:
    """A prompt comes back as it is; only a text or messages say something to a verifier."""
    prompt = row.get("prompt", "")
    return "" if prompt is None else prompt


def _table(rows, scores) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("kind", "answer", "status", "value", "correct", "why"):
        table.add_column(name, overflow="fold" if name == "why" else "ellipsis", no_wrap=name != "why")
    table.columns[1].max_width = 32
    table.columns[3].justify = "right"
    for row, score in zip(rows, scores, strict=True):
        answer = row.get("answer", row.get("text"))
        value = "" if score.status == "error" else f"{score.value:.4g}"
        correct = {True: "yes", False: "no", None: "-"}[score.correct]
        why = f"{score.reason}: {score.evidence}" if score.reason else score.evidence
        table.add_row(
            row["kind"],
            escape(json.dumps(answer, ensure_ascii=False)[1:-1]),
            f"[{COLORS[score.status]}]{score.status}[/]",
            value,
            correct,
            escape(why),
        )
    Console().print(table)
