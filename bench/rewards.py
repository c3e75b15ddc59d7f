"""Verdicts a second, by kind of task, through the grader that training uses.

    python bench/rewards.py              a table
    python bench/rewards.py --json       one JSON document

Answers of a kind are right, wrong and malformed ones in turn (grounding has the malformed ones apart). Kinds that start no
process are graded on one thread, the others on as many as the machine has cores. `code` counts answers, each in a box of its
own, and their test executions.
Every figure is the best of several rounds: other work on the machine can only make a round slower.
"""

import argparse
import json
import os
import time
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from oncurve.config.rewards import KIND_RULES
from oncurve.rewards.answers import text_answer
from oncurve.rewards.grader import LocalGrader
from oncurve.truths import parse_truth
from oncurve.types import Message, Task

SETUP = "CREATE TABLE cats (name TEXT, age INTEGER); INSERT INTO cats VALUES {};"
CATS = [SETUP.format(", ".join(f"('{c}{i}', {(i * k) % 19})" for i, c in enumerate("abcdefghij"))) for k in (3, 7)]
SQL_ANSWERS = [
    "SELECT name FROM cats WHERE age > 4",
    "SELECT name FROM cats WHERE age > 5",
    "SELECT nam FROM cats",
    "DROP TABLE cats",
]
SEEN = {"region": [0.3, 0.1, 0.5, 0.3], "type": "face_region", "description": "The head is down.", "confidence": 0.9}
REPORT = json.dumps(
    {"observable_evidence": [SEEN], "mental_state_conclusion": None, "limits": "Feelings can't be known."}
)


@dataclass(frozen=True, slots=True)
class Case:
    """What is graded: `count` answers a round, taken from `answers` in turn."""

    kind: str
    truth: dict[str, Any]
    answers: list[str]
    count: int
    options: dict[str, Any]
    tests: int = 0  # executions of one answer, of code


def case(kind: str, truth: dict, answers: list[str], count: int, tests: int = 0, **options: Any) -> Case:
    return Case(kind, truth, answers, count, options, tests)


CASES = {
    "grounding": case(
        "grounding", {"box": [0.2, 0.3, 0.6, 0.7]},
        ["<box>0.21,0.31,0.59,0.69</box>", "<box>0.70,0.40,0.90,0.80</box>"], 1_000,
    ),
    "grounding, malformed": case("grounding", {"box": [0.2, 0.3, 0.6, 0.7]}, ["<box>0.20,0.30,0.60</box>"], 1_000),
    "detection": case(
        "detection", {"boxes": [[0.1, 0.1, 0.3, 0.3], [0.5, 0.5, 0.9, 0.9]]},
        ["<box>0.1,0.1,0.3,0.3</box><box>0.5,0.5,0.9,0.8</box>", "none", "<box>0.5,0.1,0.3,0.3</box>"], 1_000,
    ),
    "pointing": case(
        "pointing", {"box": [0.2, 0.3, 0.6, 0.7]}, ["<point>0.4,0.5</point>", "<point>0.9,0.5</point>", "0.4"], 1_000,
    ),
    "counting": case("counting", {"count": 3}, ["3", "4", "three"], 1_000),
    "ocr": case("ocr", {"text": "STOP, school ahead"}, ["STOP, school ahead", "SHOP, school a head", ""], 1_000),
    "choice": case("choice", {"choice": "B"}, ["B", "C", "B or C"], 1_000),
    "short_answer": case("short_answer", {"answers": ["New York"]}, ["new york", "Boston", ""], 1_000),
    "math, a number": case("math", {"answer": "42"}, ["so \\boxed{42}", "so \\boxed{41}", "42"], 1_000),
    "math, an expression": case("math", {"answer": "x^2-1"}, ["\\boxed{(x-1)(x+1)}", "\\boxed{x^2+1}"], 50),
    "code": case(
        "code",
        {"entry_point": "f", "tests": [{"args": [i, 2], "kwargs": {}, "result": i + 2} for i in range(5)]},
        ["def f(a, b):\n    return a + b", "def f(a, b):\n    return a - b", "def f(a, b):\n    raise ValueError"], 60, 5,
    ),
    "code, many tests": case(
        "code",
        {"entry_point": "f", "tests": [{"args": [i, 2], "kwargs": {}, "result": i + 2} for i in range(100)]},
        ["def f(a, b):\n    return a + b"], 8, 100,
    ),
    "sql, sqlite": case("sql", {"sql": "SELECT name FROM cats WHERE age > 4"}, SQL_ANSWERS, 200, setup=CATS),
    "sql, duckdb": case("sql", {"sql": "SELECT name FROM cats WHERE age > 4"}, SQL_ANSWERS, 100, setup=CATS, engine="duckdb"),
    "evidence": case(
        "evidence", {"regions": [{"region": [0.3, 0.1, 0.5, 0.3], "type": "face_region", "attributes": ["down"]}]},
        [REPORT, REPORT.replace("0.3", "0.35"), "{}"], 200,
    ),
    "reply": case("reply", {"evidence": [SEEN]}, ["Your head is down, though I can't know how you feel.", "You are sad."], 200),
    "text": case("text", {}, ["one two three " * 20, "a"], 500, parts=[{"type": "repetition"}, {"type": "language"}]),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the answers of a round")
    parser.add_argument("--only", default="", help="cases whose name begins with this")
    args = parser.parse_args()
    found = {name: measure(one, args.rounds, args.scale) for name, one in CASES.items() if name.startswith(args.only)}
    document = {"cores": os.cpu_count(), "rounds": args.rounds, "verdicts_per_s": found}
    print(json.dumps(document, indent=1) if args.json else table(document))


def measure(one: Case, rounds: int, scale: float) -> dict[str, Any]:
    """The best round's verdicts a second; what comes once a task, such as building databases, is done before."""
    rules = KIND_RULES[one.kind](type=one.kind)
    grader = LocalGrader(rules)
    task = Task(
        "bench", one.kind, (Message("user", "I had a long day."),), parse_truth(one.kind, one.truth), one.options
    )
    grader.check([task])
    count = max(len(one.answers), int(one.count * scale))
    pairs = [(task, text_answer(task, text)) for text in islice(cycle(one.answers), count)]
    scores = grader.grade(pairs[: len(one.answers)])
    assert all(score.status != "error" for score in scores), scores
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        grader.grade(pairs)
        times.append(time.perf_counter() - begin)
    per_s = count / min(times)
    executions = {"test_executions_per_s": per_s * one.tests} if one.tests else {}
    return {"verdicts_per_s": per_s, "answers": count} | executions


def table(document: dict[str, Any]) -> str:
    lines = [f"{'':<22}{'verdicts a second':>18}{'test executions a second':>26}"]
    for name, found in document["verdicts_per_s"].items():
        tests = f"{found['test_executions_per_s']:>26,.0f}" if "test_executions_per_s" in found else ""
        lines.append(f"{name:<22}{found['verdicts_per_s']:>18,.0f}{tests}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
