r"""The mathematics verifier: one final answer, equal to the truth in value, unit and type.

Numbers that are written out are compared as exact fractions here. Whatever needs algebra goes to a process
(`oncurve.rewards.math_child`) that is killed at its deadline.
"""

from fractions import Fraction
from queue import Empty, SimpleQueue
from typing import Any

from oncurve.config.rewards import MathRules
from oncurve.errors import BrokenTruth
from oncurve.parsing import MalformedAnswer
from oncurve.rewards.final import final_answer
from oncurve.rewards.math_text import Answer, commands, is_numeric, number, operations, read, unit_name
from oncurve.rewards.process import VerifierFault, Worker
from oncurve.rewards.scores import invalid
from oncurve.truths import MathTruth
from oncurve.types import Rollout, Score, Task

VERIFIER = "math/1"
CHILD = "oncurve.rewards.math_child"
CHECK_TIMEOUT_S = 60.0
MAX_ANSWERS = 500  # of one process, whose caches grow
_LAYOUT = {r"\frac", r"\sqrt", r"\pi", r"\cdot", r"\times", r"\infty", r"\pm"} | {
    r"\text",
    r"\circ",
    r"\%",
    r"\{",
    r"\}",
    r"\$",
}
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
UNORDERED = ("list", "set")


class Verifier:
    """Safe to call from threads; processes start when they are needed and end with this object."""

    version = VERIFIER

    def __init__(self) -> None:
        self._idle: SimpleQueue[tuple[Worker, int]] = SimpleQueue()

    def check(self, task: Task, rules: MathRules) -> None:
        truth = truth_of(task.truth)
        if all(number(item) for item in truth.items) or truth.form == "text":
            return
        try:
            reply = self._ask(truth, truth, CHECK_TIMEOUT_S)
        except VerifierFault as fault:
            raise BrokenTruth(f"truth.answer: {task.truth.answer!r} can't be worked out: {fault}") from None
        if not reply.get("equal"):
            why = "it is not worked out" if "open" in reply else "it can't be read as mathematics"
            raise BrokenTruth(f"truth.answer: {task.truth.answer!r}: {why}")

    def grade(self, task: Task, answer: Rollout, rules: MathRules) -> Score:
        """1 where equal, 0 where not. Raises `BrokenTruth`, or `RuntimeError` where no process starts."""
        truth = truth_of(task.truth)
        try:
            final = final_answer(answer.text, rules.format)
            said = read(final.inner, allowed=task.truth.answer + (task.truth.unit or ""))
            why = _apart(truth, said)
            if why is None and (said.items, said.marks) != (truth.items, truth.marks):
                why = self._unequal(truth, said, rules.timeout_s)
        except MalformedAnswer as fault:
            return invalid(fault, rules.floor, VERIFIER)
        correct = not why
        return Score(
            status="scored",
            value=float(correct),
            correct=correct,
            parts={"format": float(final.reasoned)},
            extracted=final.inner,
            evidence=f"equal to the truth, {task.truth.answer}" if correct else f"not {task.truth.answer}: {why}",
            verifier=VERIFIER,
        )

    def _unequal(self, truth: Answer, said: Answer, timeout_s: float) -> str | None:
        """Why they are not equal; None where they are."""
        if all(map(number, truth.items + said.items)) and truth.form != "relation":
            one, other = ([number(item).value for item in side.items] for side in (truth, said))
            return None if _ordered(one, truth.form) == _ordered(other, truth.form) else "another value"
        try:
            reply = self._ask(truth, said, timeout_s)
        except VerifierFault as fault:
            reason = "timeout" if fault.reason == "timeout" else "memory"
            raise MalformedAnswer(reason, f"the answer can't be worked out: {fault}") from None
        match reply:
            case {"equal": True}:
                return None
            case {"equal": False}:
                return "another value"
            case {"open": "answer"}:
                return "it is not worked out"
            case {"unread": "answer"}:
                raise MalformedAnswer("syntax", "it can't be read as mathematics")
            case {"memory": True}:
                raise MalformedAnswer("memory", "working it out takes more memory than there is")
            case _:
                raise BrokenTruth(f"truth.answer: {truth.items} can't be read")

    def _ask(self, truth: Answer, said: Answer, timeout_s: float) -> dict[str, Any]:
        worker, num_answers = self._worker()
        reply = worker.ask(
            {
                "truth": truth.items,
                "answer": said.items if said.marks == truth.marks else said.items[::-1],
                "ordered": truth.form not in UNORDERED,
                "equation": truth.marks == ("=",),
            },
            timeout_s,
        )
        if num_answers + 1 < MAX_ANSWERS:
            self._idle.put((worker, num_answers + 1))
        return reply

    def _worker(self) -> tuple[Worker, int]:
        try:
            worker, num_answers = self._idle.get_nowait()
        except Empty:
            return self._start(), 0
        return (worker, num_answers) if worker.alive else (self._start(), 0)

    def _start(self) -> Worker:
        try:
            return Worker(CHILD)
        except VerifierFault as fault:
            raise RuntimeError(f"the process for mathematics does not start: {fault}") from None


def truth_of(truth: MathTruth) -> Answer:
    """Raises `BrokenTruth` where it can't be read, or where its unit stands in it and beside it."""
    try:
        answer = read(truth.answer, allowed=truth.answer)
    except MalformedAnswer as fault:
        raise BrokenTruth(f"truth.answer: {truth.answer!r}: {fault}") from None
    if truth.unit is None:
        return answer
    if answer.form != "scalar" or answer.unit not in ("", unit_name(truth.unit)):
        raise BrokenTruth(f"truth.unit: {truth.unit!r} does not go with the answer {truth.answer!r}")
    return Answer("scalar", answer.items, (), unit_name(truth.unit))


def _apart(truth: Answer, said: Answer) -> str | None:
    """Why the answer can't be the truth, seen without working it out; None where it may be.

    Raises `MalformedAnswer` with reason `equation` or `multi_answer`.
    """
    if said.form == "relation" and (truth.form != "relation" or len(said.marks) > len(truth.marks)):
        raise MalformedAnswer("equation", "an equation or a chain of them where the truth is none")
    several = said.form in UNORDERED and len(said.items) > 1
    if several and truth.form in ("scalar", "text", "tuple") and (said.form == "list" or truth.form != "tuple"):
        raise MalformedAnswer("multi_answer", "several answers where the truth is one")
    if said.form != truth.form and not (said.form in UNORDERED and truth.form in UNORDERED):
        return f"a {said.form} where the truth is a {truth.form}"
    if said.form == "relation":
        if said.marks not in (truth.marks, tuple(_FLIPPED.get(mark, mark) for mark in truth.marks[::-1])):
            return "another relation"
    elif said.marks != truth.marks:
        return "other brackets"
    if len(said.items) != len(truth.items):
        return f"{len(said.items)} members where the truth has {len(truth.items)}"
    if said.unit != truth.unit and not (said.unit == "$" and not truth.unit):
        return f"the unit {said.unit or 'is missing'} where the truth has {truth.unit or 'none'}"
    if truth.form == "text":
        return None if said.items == truth.items else "another word"
    return _not_closed(truth, said)


def _not_closed(truth: Answer, said: Answer) -> str | None:
    if not all(map(is_numeric, truth.items)):
        return None
    if all(map(number, truth.items)):
        numbers = [number(item) for item in said.items]
        whole = all(number(item).value.denominator == 1 for item in truth.items)
        if not all(numbers) or (whole and not all(found.worked_out for found in numbers)):
            return "it is not worked out: the truth is a number"
        return None
    known = _LAYOUT | set().union(*map(commands, truth.items))
    if not all(map(is_numeric, said.items)) or any(commands(item) - known for item in said.items):
        return "it is not worked out: the truth has no such function or variable"
    if sum(map(operations, said.items)) > sum(map(operations, truth.items)) + len(truth.items):
        return "it is not worked out: it has more operations than the truth"
    return None


def _ordered(values: list[Fraction], form: str) -> list[Fraction]:
    return sorted(values) if form in UNORDERED else values
