"""The code verifier: a function or a program runs on hidden inputs in the sandbox, and its results are compared here.

Expected values never enter the sandbox, and neither a reference nor anything else of the truth runs together with the
answer. See `oncurve.rewards.code_child` for what runs inside.
"""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from oncurve.config.rewards import CodeRules
from oncurve.errors import BrokenTruth, SandboxError
from oncurve.parsing import MalformedAnswer, not_empty
from oncurve.rewards.code_inputs import drawn, spread
from oncurve.rewards.scores import invalid
from oncurve.sandbox.box import Child, ChildStopped, Sandbox
from oncurve.sandbox.limits import Limits
from oncurve.truths import CodeTruth, truth_json
from oncurve.types import Rollout, Score, Task

VERIFIER = "code/1"
FENCE = "```"
LANGUAGES = ("", "python", "python3", "py")
MAX_SOURCE_CHARACTERS = 200_000
NUM_DRAWN = 8  # inputs of a reference, beside the given ones
REL_TOLERANCE, ABS_TOLERANCE = 1e-9, 1e-12  # of floats
MAX_DEPTH = 64
NOT_PLAIN = "a result must be plain JSON: null, bool, int, float, str, list or object"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one test of an answer came to. `value` is what was returned or printed, where `name` is `returned`."""

    name: str
    value: Any = None
    words: str = ""


TIMEOUT = Outcome("timeout", words="was stopped at the time limit")


class Verifier:
    """Grades code; safe to use from threads. Raises `SandboxError` where no box can be had, unless `allow_unsafe`."""

    version = VERIFIER
    num_threads = os.cpu_count() or 1

    def __init__(self, *, allow_unsafe: bool = False):
        self._sandbox = Sandbox(allow_unsafe=allow_unsafe)
        self.isolation = self._sandbox.level
        self._tests = lru_cache(4096)(self._make_tests)

    def check(self, task: Task, rules: CodeRules) -> None:
        """Raises `BrokenTruth` where the reference raises, is too slow or gives two results for one input, and where
        `accepts` does not accept the truth's own results.
        """
        truth, tests = task.truth, self._tests_of(task.truth, rules)
        right = [Outcome("returned", test.get("result")) for test in tests]
        if truth.reference is not None:
            again = self._results(truth, [test["args"] for test in tests], rules.timeout_s)
            for test, one, other in zip(tests, right, again, strict=True):
                if not same(other.value, one.value):
                    raise BrokenTruth(
                        f"the reference is not deterministic: {_call(truth, test)} differs from run to run"
                    )
        if truth.accepts is not None:
            try:
                passed = self._passed(truth, tests, right, rules.timeout_s)
            except MalformedAnswer as fault:
                raise BrokenTruth(f"accepts fails: {fault}") from None
            if not all(passed):
                raise BrokenTruth(
                    f"accepts refuses the truth's own result of {_call(truth, tests[passed.index(False)])}"
                )

    def grade(self, task: Task, answer: Rollout, rules: CodeRules) -> Score:
        """Score one answer: 1 where every test passes, or the share of those that do where `rules.partial`."""
        truth = task.truth
        try:
            tests = self._tests_of(truth, rules)
        except BrokenTruth as fault:
            raise RuntimeError(f"a reference that passed its check: {fault}") from fault
        try:
            source = source_of(answer.text, rules.fence)
            outcomes = run(self._sandbox, source, truth.entry_point, tests, rules.timeout_s)
        except MalformedAnswer as fault:
            return invalid(fault, rules.floor, self._stamped())
        passed = self._passed(truth, tests, outcomes, rules.timeout_s)
        share = sum(passed) / len(passed)
        return Score(
            status="scored",
            value=share if rules.partial else float(all(passed)),
            correct=all(passed),
            parts={"format": 1.0, "tests": share},
            extracted=source,
            evidence=_evidence(truth, tests, outcomes, passed),
            verifier=self._stamped(),
        )

    def _tests_of(self, truth: CodeTruth, rules: CodeRules) -> Sequence[Mapping[str, Any]]:
        return truth.tests or truth.stdin_tests or self._tests(json.dumps(truth_json(truth)), rules.timeout_s)

    def _stamped(self) -> str:
        return f"{VERIFIER} {self._sandbox.stamp}".strip()

    def _passed(self, truth: CodeTruth, tests: Sequence, outcomes: Sequence[Outcome], timeout_s: float) -> list[bool]:
        if truth.stdin_tests:
            return [
                outcome.name == "returned" and lines(outcome.value) == lines(test["stdout"])
                for test, outcome in zip(tests, outcomes, strict=True)
            ]
        if truth.accepts is None:
            tolerance = truth.tolerance or ABS_TOLERANCE
            return [
                outcome.name == "returned" and same(outcome.value, test["result"], tolerance)
                for test, outcome in zip(tests, outcomes, strict=True)
            ]
        asked = [i for i, outcome in enumerate(outcomes) if outcome.name == "returned"]
        calls = [{**tests[i], "args": [outcomes[i].value, *tests[i].get("args", [])]} for i in asked]
        verdicts = run(self._sandbox, truth.accepts, "accepts", calls, timeout_s) if calls else []
        accepted = {i for i, verdict in zip(asked, verdicts, strict=True) if verdict.value is True}
        return [i in accepted for i in range(len(outcomes))]

    def _make_tests(self, truth_text: str, timeout_s: float) -> list[dict[str, Any]]:
        """The given inputs and some drawn ones, with what the reference returns for them."""
        truth = CodeTruth(**json.loads(truth_text))
        given = list(truth.inputs)
        tests = []
        for args, outcome in zip(given, self._results(truth, given, timeout_s), strict=True):
            if outcome.name != "returned":
                raise BrokenTruth(f"the reference fails: {_call(truth, {'args': args})} {outcome.words}")
            tests.append({"args": args, "result": outcome.value})
        more = list(islice(drawn(given, truth_text), 4 * NUM_DRAWN))
        results = self._results(truth, more, timeout_s / 2)  # a right answer may be slower
        kept = [
            {"args": args, "result": outcome.value}
            for args, outcome in zip(more, results, strict=True)
            if outcome.name == "returned"
        ]
        return tests + spread(kept, NUM_DRAWN)

    def _results(self, truth: CodeTruth, inputs: Sequence[list[Any]], timeout_s: float) -> list[Outcome]:
        try:
            return run(
                self._sandbox, truth.reference, truth.entry_point, [{"args": args} for args in inputs], timeout_s
            )
        except MalformedAnswer as fault:
            raise BrokenTruth(f"the reference fails: {fault}") from None


def source_of(text: str, fence: str) -> str:
    """The Python source that an answer is: all of it, or all of its one fenced block.

    Raises `MalformedAnswer` with reason `empty`, `too_long`, `encoding`, `fence`, `repeated_tags` or `text_around`.
    """
    inner = not_empty(text)
    if len(inner) > MAX_SOURCE_CHARACTERS:
        raise MalformedAnswer("too_long", f"more than {MAX_SOURCE_CHARACTERS} characters of code")
    try:
        inner.encode()
    except UnicodeEncodeError:
        raise MalformedAnswer("encoding", "half a surrogate pair") from None
    rows = inner.split("\n")
    fences = [i for i, row in enumerate(rows) if row.lstrip().startswith(FENCE)]
    if not fences:
        if fence == "required":
            raise MalformedAnswer("fence", f"no block between {FENCE}python and {FENCE}")
        return text.strip("\r\n") + "\n"
    if len(fences) > 2:
        raise MalformedAnswer("repeated_tags", f"{FENCE} stands there {len(fences)} times; one block is asked for")
    if len(fences) == 1 or (rows[-1].strip() != FENCE and fences[1] == len(rows) - 1):
        raise MalformedAnswer("fence", f"a block that {FENCE} does not open and close")
    if fences != [0, len(rows) - 1]:
        raise MalformedAnswer("text_around", f"text before or behind the block between {FENCE}")
    if rows[0][len(FENCE) :].strip().lower() not in LANGUAGES:
        raise MalformedAnswer("fence", f"a block of {rows[0][:40]!r} and not of Python")
    return not_empty("\n".join(rows[1:-1])) and "\n".join(rows[1:-1]) + "\n"


def run(
    sandbox: Sandbox, source: str, entry_point: str | None, tests: Sequence[Mapping[str, Any]], timeout_s: float
) -> list[Outcome]:
    """Run `source` on the inputs of every test, which must end within `timeout_s` together.

    A test that takes more than its share of the time that is left gives way to the others, and is tried again in what
    remains then. A box in which a test was stopped is closed, and the next test gets a new one. Raises `MalformedAnswer`
    where the source does not compile or does not define `entry_point`, where a result is no plain JSON, and where the
    answer writes what is no result.
    """
    outcomes = [TIMEOUT] * len(tests)
    first = {"source": source, "entry_point": entry_point}
    requests = [_request(test) for test in tests]
    child: Child | None = None
    end = None
    try:
        for _ in range(2):
            waiting = [i for i, outcome in enumerate(outcomes) if outcome is TIMEOUT]
            for place, i in enumerate(waiting):
                if end is not None and time.monotonic() >= end:
                    return outcomes
                try:
                    if child is None:
                        child = _opened(sandbox, timeout_s)
                        end = end or time.monotonic() + timeout_s
                        _read(child.ask(first, end - time.monotonic()))
                    reply = child.ask(requests[i], (end - time.monotonic()) / (len(waiting) - place))
                except ChildStopped as stopped:
                    outcomes[i] = (
                        TIMEOUT if stopped.reason == "timeout" else Outcome(stopped.reason, words=f"{stopped}")
                    )
                    child = None
                    continue
                outcomes[i] = _read(reply)
                if reply.get("left"):
                    child.close()
                    child = None
        return outcomes
    finally:
        if child is not None:
            child.close()


def _opened(sandbox: Sandbox, timeout_s: float) -> Child:
    try:
        return sandbox.open(_program(), limits=Limits(wall_s=timeout_s + 1, cpu_s=timeout_s + 1))
    except SandboxError as error:  # the machine's fault at this moment, and no reason to stop a run
        raise RuntimeError(str(error)) from error


def _request(test: Mapping[str, Any]) -> dict[str, Any]:
    if "stdin" in test:
        return {"stdin": test["stdin"]}
    return {"args": test.get("args", []), "kwargs": test.get("kwargs", {})}


def _read(reply: dict[str, Any]) -> Outcome:
    """The outcome that a child tells, its value checked. Raises `MalformedAnswer`."""
    match reply:
        case {"outcome": "syntax", "words": words}:
            raise MalformedAnswer("syntax", f"no Python: {_clean(words)}")
        case {"outcome": "undefined"}:
            raise MalformedAnswer("no_entry_point", "the function that is asked for is not defined")
        case {"outcome": "unplain"}:
            raise MalformedAnswer("result_type", NOT_PLAIN)
        case {"outcome": "wrote"} | {"outcome": "returned" | "exited", "left": "files"}:
            raise MalformedAnswer("wrote_file", "the answer wrote a file, or tried to; a result is returned or printed")
        case {"outcome": "returned" | "exited", "left": "full"}:
            return Outcome("disk", words="filled the disk")
        case {"outcome": "returned", "result": str() as text, "left": ""}:
            return Outcome("returned", _json(text))
        case {"outcome": "exited", "status": 0, "stdout": str() as text, "left": ""}:
            return Outcome("returned", text)
        case {"outcome": "exited", "status": int() as status, "left": ""}:
            return Outcome("exited", words=f"ended with status {status}")
        case {"outcome": "compiled" | "unholdable" | "raised" | "missing" | "output" as name, "words": str() as words}:
            return Outcome(name, words=f"{WORDS.get(name, '')}{_clean(words)}")
    raise MalformedAnswer("forged_result", "something else than one result was written")


WORDS = {"unholdable": "returned ", "raised": "raised ", "missing": "gave no result: ", "output": "wrote "}


def _json(text: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        value = json.loads(text, parse_constant=refuse)
        _shallow(value, MAX_DEPTH)
    except (ValueError, RecursionError):
        raise MalformedAnswer("forged_result", "a result that is no JSON") from None
    return value


def _shallow(value: Any, room: int) -> None:
    if room < 0:
        raise ValueError
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _shallow(item, room - 1)


def same(value: Any, expected: Any, tolerance: float = ABS_TOLERANCE) -> bool:
    """Equality of plain JSON: numbers by value, `true` unlike 1, an expected float within 1e-9 of its size or `tolerance`."""
    if isinstance(expected, bool) or isinstance(value, bool):
        return value is expected
    if isinstance(expected, float) and isinstance(value, int | float):
        try:
            return math.isclose(value, expected, rel_tol=REL_TOLERANCE, abs_tol=tolerance)
        except OverflowError:  # an integer beyond every float
            return False
    if isinstance(expected, list) and isinstance(value, list):
        return len(value) == len(expected) and all(
            same(one, other, tolerance) for one, other in zip(value, expected, strict=True)
        )
    if isinstance(expected, dict) and isinstance(value, dict):
        return value.keys() == expected.keys() and all(same(value[key], expected[key], tolerance) for key in expected)
    return value == expected


def lines(text: str) -> list[str]:
    """The lines of what a program prints, without white space at their ends and without empty lines at the end."""
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _evidence(truth: CodeTruth, tests: Sequence, outcomes: Sequence[Outcome], passed: Sequence[bool]) -> str:
    summary = f"{sum(passed)} of {len(passed)} tests pass"
    if all(passed):
        return summary
    first = passed.index(False)
    test, outcome = tests[first], outcomes[first]
    if outcome.name != "returned":
        words = outcome.words
    elif truth.stdin_tests:
        words = f"printed {_short(outcome.value)} and not {_short(test['stdout'])}"
    elif truth.accepts:
        words = f"returned {_short(outcome.value)}, which is not accepted"
    else:
        words = f"returned {_short(outcome.value)} and not {_short(test['result'])}"
    return f"{summary}; test {first + 1}, {_call(truth, test)}, {words}"


def _call(truth: CodeTruth, test: Mapping[str, Any]) -> str:
    if "stdin" in test:
        return f"input {_short(test['stdin'])}"
    named = [f"{key}={_short(value)}" for key, value in test.get("kwargs", {}).items()]
    return f"{truth.entry_point}({', '.join([*map(_short, test.get('args', [])), *named])})"


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = "a very large number"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _clean(words: Any) -> str:
    return str(words).encode("utf-8", "backslashreplace").decode()


@cache
def _program() -> str:
    return Path(__file__).with_name("code_child.py").read_text("utf-8")
