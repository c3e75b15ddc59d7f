"""GSM8K's own answers in several spellings, and perturbed ones, through the mathematics verifier.

    python tools/gsm8k_study.py FILE.jsonl … [--json]

The files have GSM8K's `answer`, ending in `#### number`. Every truth is spelt in every way and format behind its own
reasoning; what is refused of these is a false reject. Every truth is then made wrong in every way; what is accepted of
these is a false accept. Exit status 1 where one is accepted, or more than 1 % are refused.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from oncurve.config.rewards import MathRules
from oncurve.rewards.math import Verifier
from oncurve.truths import MathTruth
from oncurve.types import Rollout, Task

MAX_FALSE_REJECTS = 0.01


def spellings(value: Fraction) -> Iterator[tuple[str, str]]:
    """Right answers, by the name of the spelling."""
    plain = f"{float(value):g}" if value.denominator > 1 else str(value.numerator)
    commas = f"{value.numerator:,}" if value.denominator == 1 else plain
    yield "digits", plain
    yield "thousands", commas
    yield "thousands in LaTeX", commas.replace(",", "{,}")
    yield "one decimal", plain if "." in plain else f"{plain}.0"
    yield "two decimals", f"{float(value):.2f}"
    yield "dollars around", f"${plain}$"
    yield "dollar sign", rf"\${commas}"
    yield "dollar word", f"{plain} dollars"
    yield "dollar text", rf"{plain} \text{{ dollars}}"
    yield "full stop", f"{plain}."
    yield "fraction", rf"\frac{{{value.numerator}}}{{{value.denominator}}}" if value.denominator > 1 else plain
    yield "leading zero", f"-0{-value}" if value < 0 else f"0{plain}"
    yield "spaces", f"  {plain} "


def wrongs(value: Fraction) -> Iterator[tuple[str, str]]:
    """Wrong answers, and right ones that are not given as they must be, by what is wrong."""
    plain = f"{float(value):g}" if value.denominator > 1 else str(value.numerator)
    digits = plain.lstrip("-")
    yield "one more", str(float(value + 1))
    yield "one less", str(float(value - 1))
    yield "ten times", str(float(10 * value or 10))
    yield "a hundredth more", f"{float(value) + 0.01:.2f}"
    yield "sign", str(float(-value or -1))
    yield "a digit more", f"{plain}1"
    yield "digits swapped", digits[::-1] if float(digits[::-1]) != value else f"{plain}7"
    yield "per cent", rf"{plain}\%"
    yield "unit", rf"{plain} \text{{ km}}"
    yield "cents", f"{plain} cents"
    yield "set", rf"\{{{plain}\}}"
    yield "pair", f"({plain}, {plain})"
    yield "two answers", f"{plain} or {float(value + 1):g}"
    yield "list", f"{float(value + 1):g}, {plain}"
    yield "chain", f"{float(value + 1):g} = {plain}"
    yield "assignment", f"x = {plain}"
    yield "sum", f"{float(value - 1):g} + 1"
    yield "quotient", rf"\frac{{{2 * value.numerator}}}{{2}}" if value.denominator == 1 else f"{plain} + 0"
    yield "root", rf"\sqrt{{{float(value * value):g}}}"
    yield "denied", f"not {plain}"
    yield "words", f"the answer is {plain}"
    yield "full width", "".join(chr(ord(c) + 0xFEE0) if c.isdigit() else c for c in plain)


def wrap(answer: str, form: str, reasoning: str) -> str:
    wrapped = {"boxed": rf"\boxed{{{answer}}}", "hash": f"#### {answer}", "tag": f"<answer>{answer}</answer>"}[form]
    return f"{reasoning}\n{wrapped}"


def study(rows: list[dict]) -> dict:
    verifier, accepted, refused = Verifier(), [], []
    counts, by_spelling, by_wrong = Counter(), Counter(), Counter()
    for number, row in enumerate(rows):
        reasoning, _, truth = row["answer"].rpartition("\n#### ")
        task = Task(str(number), "math", (), MathTruth(truth))
        value = Fraction(truth.replace(",", ""))
        for form in ("boxed", "hash", "tag"):
            rules = MathRules(type="math", format=form)
            verifier.check(task, rules)
            for right, makers in ((True, spellings), (False, wrongs)):
                for name, answer in makers(value):
                    text = wrap(answer, form, reasoning)
                    score = verifier.grade(task, Rollout(task.id, 0, (), text, "end", 0, 1.0, 0), rules)
                    counts[right] += 1
                    if right and not score.correct:
                        by_spelling[name] += 1
                        refused.append({"truth": truth, "format": form, "spelling": name, "evidence": score.evidence})
                    if score.status == "error" or (score.correct and not right):
                        by_wrong[name] += 1
                        accepted.append({"truth": truth, "format": form, "wrong": name, "answer": answer})
    return {
        "truths": len(rows),
        "right": counts[True],
        "false_rejects": sum(by_spelling.values()),
        "false_rejects_by_spelling": dict(by_spelling),
        "wrong": counts[False],
        "false_accepts": sum(by_wrong.values()),
        "false_accepts_by_wrong": dict(by_wrong),
        "refused": refused[:50],
        "accepted": accepted[:50],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = [json.loads(line) for file in arguments.files for line in file.read_text("utf-8").splitlines()]
    found = study(rows)
    if arguments.json:
        print(json.dumps(found))
    else:
        print(f"{found['truths']:,} truths")
        print(
            f"right answers {found['right']:,}, refused {found['false_rejects']:,} {found['false_rejects_by_spelling']}"
        )
        print(
            f"wrong answers {found['wrong']:,}, accepted {found['false_accepts']:,} {found['false_accepts_by_wrong']}"
        )
        for example in found["refused"][:10] + found["accepted"][:10]:
            print(" ", example)
    return int(bool(found["false_accepts"]) or found["false_rejects"] > MAX_FALSE_REJECTS * found["right"])


if __name__ == "__main__":
    sys.exit(main())
