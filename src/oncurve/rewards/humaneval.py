"""HumanEval (Chen et al., arXiv 2107.03374) as tasks of kind `code`: what its assertions ask for, as results to compare.

A problem's own check runs on its canonical solution in the sandbox, and every call that it makes is recorded. To those come
drawn inputs that the canonical solution accepts, which is where no exception is raised.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any

from oncurve.errors import BrokenTruth
from oncurve.parsing import MalformedAnswer
from oncurve.rewards.code import Outcome, run
from oncurve.rewards.code_inputs import drawn, spread
from oncurve.sandbox.box import Sandbox
from oncurve.truths import CodeTest, CodeTruth

MAX_RECORDED, NUM_DRAWN = 32, 32
TIMEOUT_S = 60.0
CASES: dict[str, dict[str, Any]] = {
    "HumanEval/2": {"tolerance": 1e-6},  # abs(result - expected) < 1e-6
    "HumanEval/4": {"tolerance": 1e-6},
    "HumanEval/32": {  # any zero of the polynomial
        "accepts": "def accepts(zero, coefficients):\n"
        "    return abs(sum(c * zero**power for power, c in enumerate(coefficients))) < 1e-4\n"
    },
}
"""The problems whose check asks for something else than one result: a tolerance, or a property of what is returned."""

RECORDER = """
def record_calls():
    import copy, random

    random.seed(0)
    calls = []

    def plain(value):
        if type(value) is dict:
            return all(type(key) is str and plain(item) for key, item in value.items())
        return all(map(plain, value)) if type(value) is list else type(value) in (bool, int, float, str, type(None))

    def candidate(*args, **kwargs):
        given = copy.deepcopy([list(args), kwargs])
        result = {entry_point}(*args, **kwargs)
        if all(map(plain, given)):
            calls.append([*given, result])
        return result

    check(candidate)
    return calls
"""


def truth_of(problem: Mapping[str, str], sandbox: Sandbox) -> CodeTruth:
    """The tests of one problem: `task_id`, `prompt`, `canonical_solution`, `test` and `entry_point` as they are published.

    Of the calls, the first 32 count. Those with arguments that JSON does not have (problem 95 has a dict with an int as
    key) are left out. Raises
    `BrokenTruth` where the canonical solution fails its own check.
    """
    name, solution = problem["entry_point"], problem["prompt"] + problem["canonical_solution"]
    recorded = _run(sandbox, f"{solution}\n{problem['test']}\n{_recorder(name)}", "record_calls", [[]])[0]
    if recorded.name != "returned":
        raise BrokenTruth(f"{problem['task_id']}: the canonical solution fails its check: {recorded.words}")
    tests: dict[str, CodeTest] = {}
    for args, kwargs, result in recorded.value[:MAX_RECORDED]:
        tests.setdefault(repr((args, kwargs)), {"args": args, "kwargs": kwargs, "result": result})
    more = list(islice(drawn([test["args"] for test in tests.values()], problem["task_id"]), 4 * NUM_DRAWN))
    kept = [
        {"args": args, "kwargs": {}, "result": outcome.value}
        for args, outcome in zip(more, _run(sandbox, solution, name, more), strict=True)
        if outcome.name == "returned"
    ]
    return CodeTruth(name, tests=(*tests.values(), *spread(kept, NUM_DRAWN)), **CASES.get(problem["task_id"], {}))


def _recorder(name: str) -> str:
    return RECORDER.replace("{entry_point}", name)


def _run(sandbox: Sandbox, source: str, entry_point: str, inputs: list[list[Any]]) -> list[Outcome]:
    try:
        return run(sandbox, source, entry_point, [{"args": args} for args in inputs], TIMEOUT_S)
    except MalformedAnswer as fault:
        raise BrokenTruth(f"the canonical solution fails: {fault}") from None
