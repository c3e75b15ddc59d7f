"""The process that works mathematics out: JSON lines in, JSON lines out. It may hang or die of an answer; it is then killed.

Begins with `{"ready": true}`. Each `{"truth": [LaTeX, …], "answer": [LaTeX, …], "ordered": …, "equation": …}` is answered by
`{"equal": …}`, `{"unread": "truth" | "answer"}`, `{"open": true}` for an answer that is not worked out, or
`{"memory": true}`. Text is parsed by the grammar of math-verify alone; nothing of it is ever run as Python.
"""

import json
import logging
import os
import resource
import sys
from typing import TextIO

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from math_verify import verify
from math_verify.grader import should_treat_as_complex

MAX_BYTES = 1 << 30  # of address space
DIGITS = 40
UNEVALUATED = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit, sympy.Derivative)
POINTS = (sympy.Rational(7, 5), sympy.Rational(23, 7), sympy.Rational(41, 37), sympy.Rational(13, 3))


class _Unread(Exception):
    pass


def parsed(latex: str, complex_numbers: bool) -> sympy.Basic | sympy.MatrixBase:
    """Exact: decimals become fractions."""
    try:
        expression = latex2sympy(
            latex,
            is_real=not complex_numbers,
            normalization_config=None,
            conversion_config=ConversionConfig(lowercase_symbols=False),
        )
        if not isinstance(expression, sympy.Basic | sympy.MatrixBase) or expression.has(sympy.nan, sympy.zoo):
            raise _Unread
        return expression.xreplace({x: sympy.Rational(str(x)) for x in expression.atoms(sympy.Float)})
    except (MemoryError, RecursionError):
        raise
    except Exception:
        raise _Unread from None


def equal(truth: sympy.Basic | sympy.MatrixBase, answer: sympy.Basic | sympy.MatrixBase) -> bool:
    """math-verify's verdict, unless the numbers deny it: it rounds to 15 digits, and tiny numbers to 0."""
    if not answer.free_symbols <= truth.free_symbols:
        return False
    return not _denied(truth, answer) and verify(truth, answer, timeout_seconds=None, raise_on_error=True)


def _denied(truth: sympy.Basic, answer: sympy.Basic) -> bool:
    if not (isinstance(truth, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return False
    symbols = sorted(truth.free_symbols, key=str)
    for shift in range(3 if symbols else 1):
        point = {symbol: POINTS[(i + shift) % len(POINTS)] + i for i, symbol in enumerate(symbols)}
        one, other = (sympy.N(side.subs(point), DIGITS) for side in (truth, answer))
        if one.is_number and other.is_number and one.is_finite and other.is_finite:
            size = abs(one) + abs(other)
            if abs(one - other) > size * sympy.Float(10) ** (10 - DIGITS):
                return True
    return False


def same(truth: list, answer: list, ordered: bool) -> bool:
    """Member by member, or each with one of its own."""
    if len(truth) != len(answer):
        return False
    if ordered:
        return all(map(equal, truth, answer))
    rest = list(answer)
    for member in truth:
        match = next((i for i, other in enumerate(rest) if equal(member, other)), None)
        if match is None:
            return False
        del rest[match]
    return True


def same_equation(truth: list, answer: list) -> bool:
    """Sides equal, also the other way round; an equation that is not solved for a symbol may be a multiple."""
    if same(truth, answer, True) or same(truth, answer[::-1], True):
        return True
    left, right = truth
    if any(one.is_Symbol and one not in other.free_symbols for one, other in ((left, right), (right, left))):
        return False
    ratio = sympy.simplify((answer[0] - answer[1]) / (left - right))
    return bool(ratio.is_number and ratio.is_finite and ratio.is_nonzero)


def answered(request: dict) -> dict:
    try:
        complex_numbers = any(map(should_treat_as_complex, request["truth"] + request["answer"]))
        sides = {}
        for name in ("truth", "answer"):
            try:
                sides[name] = [parsed(latex, complex_numbers) for latex in request[name]]
            except _Unread:
                return {"unread": name}
            if any(side.has(*UNEVALUATED) for side in sides[name]):
                return {"open": name}
        if request["equation"]:
            return {"equal": same_equation(**sides)}
        return {"equal": same(**sides, ordered=request["ordered"])}
    except (MemoryError, RecursionError):
        return {"memory": True}
    except Exception:  # sympy can't compare the two
        return {"equal": False}


def serve(requests: TextIO, replies: TextIO) -> None:
    logging.disable()
    answered(
        {"truth": [r"\frac{1}{2} + \sqrt{3}x"], "answer": [r"x\sqrt{3} + 0.5"], "ordered": True, "equation": False}
    )
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in requests:
        print(json.dumps(answered(json.loads(line))), file=replies, flush=True)


if __name__ == "__main__":
    own_output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, own_output)
