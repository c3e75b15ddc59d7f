"""HumanEval as tests of results: canonical and other right solutions pass, broken ones fail."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oncurve.config.rewards import CodeRules
from oncurve.errors import BrokenTruth
from oncurve.rewards import humaneval
from oncurve.rewards.code import Verifier
from oncurve.rewards.humaneval import truth_of
from oncurve.sandbox.box import Sandbox
from oncurve.types import Rollout, Task

pytestmark = pytest.mark.skipif(
    not shutil.which("bwrap") and not os.environ.get("CI"),
    reason="bubblewrap is not installed (apt-get install bubblewrap)",
)

FOLDER = Path(__file__).parents[1] / "reference/humaneval"
PROBLEMS = {
    problem["task_id"].removeprefix("HumanEval/"): problem
    for problem in map(json.loads, (FOLDER / "problems.jsonl").read_text("utf-8").splitlines())
}
OTHER = {path.stem: path.read_text("utf-8") for path in (FOLDER / "other").glob("*.py")}
BROKEN = {  # problem: what is replaced in its canonical solution, by what
    "0": ("distance < threshold", "distance > threshold"),
    "2": ("% 1.0", "% 2.0"),
    "8": ("prod_value = 1", "prod_value = 0"),
    "12": ("max(len", "min(len"),
    "20": ("new_distance < distance", "new_distance > distance"),
    "32": ("1e-10", "1e-1"),
    "47": ("/ 2.0", "// 2"),
    "56": ("depth < 0", "depth < -1"),
    "99": ("res = ceil(num)", "res = floor(num)"),
    "111": ("t=list1.count(i)\n    if", "t=1\n    if"),
    "112": ("s[::-1] == s", "s[::-1] != s"),
}


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    sandbox = Sandbox()
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as threads:
        patch.setattr(humaneval, "NUM_DRAWN", 8)  # quicker
        truths = threads.map(lambda problem: truth_of(problem, sandbox), PROBLEMS.values())
        return {name: Task(name, "code", (), truth) for name, truth in zip(PROBLEMS, truths, strict=True)}


def canonical(name: str) -> str:
    return PROBLEMS[name]["prompt"] + PROBLEMS[name]["canonical_solution"]


def grade(task: Task, text: str):
    return Verifier().grade(
        task, Rollout(task.id, 0, (), text, "end", 0, 1.0, 0), CodeRules(type="code", timeout_s=20.0)
    )


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_canonical_solution_passes(tasks, name):
    score = grade(tasks[name], canonical(name))
    assert (score.status, score.correct) == ("scored", True), score.evidence


@pytest.mark.parametrize("name", OTHER)
def test_another_right_solution_passes(tasks, name):
    score = grade(tasks[name], OTHER[name])
    assert (score.status, score.correct) == ("scored", True), score.evidence


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_solution_fails(tasks, name):
    before, after = BROKEN[name]
    assert before in canonical(name)
    score = grade(tasks[name], canonical(name).replace(before, after))
    assert (score.status, score.correct) == ("scored", False)


def test_what_was_recorded(tasks):
    """The first assertions of three problems; a tuple is a list in JSON, and a dict with an int as key is not in it."""
    assert tasks["8"].truth.tests[0] == {"args": [[]], "kwargs": {}, "result": [0, 1]}
    assert tasks["12"].truth.tests[0] == {"args": [[]], "kwargs": {}, "result": None}
    assert tasks["112"].truth.tests[0] == {"args": ["abcde", "ae"], "kwargs": {}, "result": ["bcd", False]}
    assert {"args": [{"p": "pineapple", "5": "banana"}]} not in [test["args"] for test in tasks["95"].truth.tests]
    assert all(isinstance(key, str) for test in tasks["95"].truth.tests for key in test["args"][0])
    assert tasks["2"].truth.tolerance == 1e-6
    assert "accepts" in tasks["32"].truth.accepts


def test_a_table_of_the_asserted_results_fails_on_the_drawn_inputs(tasks):
    asserted = PROBLEMS["99"]["test"].count("candidate(")
    table = {test["args"][0]: test["result"] for test in tasks["99"].truth.tests[:asserted]}
    score = grade(tasks["99"], f"def closest_integer(value): return {table!r}.get(value)")
    assert score.correct is False
    assert score.parts["tests"] == pytest.approx(asserted / len(tasks["99"].truth.tests))


def test_a_canonical_solution_that_fails_its_check_is_refused():
    broken = PROBLEMS["8"] | {"canonical_solution": "    return 0, 1\n"}
    with pytest.raises(BrokenTruth, match="HumanEval/8: the canonical solution fails its check: raised AssertionError"):
        truth_of(broken, Sandbox())
