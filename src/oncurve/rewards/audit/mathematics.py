"""Attacks on mathematics."""

import re
from collections.abc import Iterable

from oncurve.rewards.audit.attack import Attack, Case, all_of, attacks, not_correct, refused, unexecuted
from oncurve.rewards.audit.written import formatted

OTHER_UNITS = {"cm": "km", "m": "mm", "km": "m", "kg": "g", "g": "kg", "s": "h", "h": "s"}
BOMBS = (
    "9^{9^{9^9}}",
    "100000000!",
    "(" * 10_000 + "1" + ")" * 10_000,
    "\\frac{1}{" * 5_000 + "1" + "}" * 5_000,
    "2^{10^{10}}",
)


def put(case: Case, inner: str) -> str:
    return formatted(inner, case.rules.format)


def whole_number(case: Case) -> int | None:
    answer = case.task.truth.answer
    return int(answer) if re.fullmatch(r"-?[0-9]{1,15}", answer) else None


@attacks("multi_answer", "math")
def several(case: Case) -> Iterable[Attack]:
    answer = case.task.truth.answer
    yield from all_of(
        refused, (f"{case.right} {case.wrong[0]}", f"{case.wrong[0]} {case.right}", f"{case.right} or {case.wrong[0]}")
    )
    yield from all_of(refused, (put(case, f"{answer} \\text{{ or }} 17"), put(case, f"17 or {answer}")))


@attacks("negation", "math")
def negated(case: Case) -> Iterable[Attack]:
    answer = case.task.truth.answer
    texts = (f"definitely not {answer}", put(case, f"definitely not {answer}"), put(case, f"\\text{{not }} {answer}"))
    yield from all_of(not_correct, (*texts, put(case, f"\\neq {answer}"), f"It is definitely not {case.right}"))


@attacks("retract", "math")
def retracted(case: Case) -> Iterable[Attack]:
    yield Attack(f"{case.right} ... actually {case.wrong[0]}", refused)
    yield Attack(f"{case.right}\nNo, that is wrong.", refused)
    yield Attack(f"{case.right}\nI take this back.", refused)
    inline = not_correct if case.rules.format == "hash" else refused  # there the line is the answer
    yield Attack(f"{case.right} I take this back.", inline)


@attacks("equation_chain", "math")
def chained(case: Case) -> Iterable[Attack]:
    answer = case.task.truth.answer
    if "=" not in answer:
        texts = (f"17 = {answer}", f"{answer} = 17", f"17 = {answer} = 18", f"x = 17 = {answer}")
        yield from all_of(refused, (put(case, text) for text in texts))


@attacks("echo_expression", "math")
def echoed(case: Case) -> Iterable[Attack]:
    if (n := whole_number(case)) is not None:
        texts = (
            f"\\int_0^{{{n}}} 1 \\, dx",
            f"\\sum_{{i=1}}^{{1}} {n}",
            f"\\lim_{{x \\to {n}}} x",
            f"\\frac{{d}}{{dx}} ({n} x)",
            f"\\prod_{{i=1}}^{{1}} {n}",
        )
        yield from all_of(not_correct, (put(case, text) for text in texts))


@attacks("unit_swap", "math")
def unit_swap(case: Case) -> Iterable[Attack]:
    truth = case.task.truth
    if truth.unit:
        other = OTHER_UNITS.get(truth.unit, "km")
        yield from all_of(
            not_correct, (put(case, f"{truth.answer} {other}"), put(case, f"{truth.answer} \\text{{ {other}}}"))
        )
    if (n := whole_number(case)) is not None:
        texts = (f"\\{{{n}\\}}", f"({n}, {n})", f"[{n}, {n}]", f"{n}\\%", f"{100 * n}\\%")
        yield from all_of(not_correct, (put(case, text) for text in texts))


@attacks("expression_bomb", "math")
def bombs(case: Case) -> Iterable[Attack]:
    return all_of(refused, (put(case, bomb) for bomb in BOMBS))


@attacks("grader_eval", "math")
def evaluated(case: Case) -> Iterable[Attack]:
    command = f"__import__('os').system('touch {case.marker}')"
    yield from all_of(
        unexecuted(not_correct, case.marker),
        (put(case, command), put(case, f"[{command}, {case.task.truth.answer}][1]")),
    )
    yield Attack(command, unexecuted(refused, case.marker))
