"""A user's reward function: what it returns is the score; whatever else it does is a masked fault, never a 0."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from oncurve.advantage import advantages
from oncurve.cli.main import main
from oncurve.config.loader import load
from oncurve.config.rewards import GroundingRules, PythonRules
from oncurve.config.schema import TrainConfig
from oncurve.errors import ConfigError
from oncurve.record.reader import RunReader
from oncurve.rewards.grader import LocalGrader
from oncurve.rewards.python import plain
from oncurve.truths import BoxTruth
from oncurve.types import Message, Rollout, Segment, Task, TaskImage

IMAGE = TaskImage.of(Image.new("RGB", (4, 4)), "grey.png")
MESSAGES = (Message("system", "be brief"), Message("user", "box the cat", (IMAGE,)))
TASK = Task("t/1", "grounding", MESSAGES, BoxTruth((0.1, 0.2, 0.5, 0.75)))

FAULTY = """
import os, pathlib, subprocess, sys, time

def score(task, text):
    with open("pids", "a") as file:
        print(os.getpid(), file=file)
    return eval(text)

def hang(child=False):
    if child:
        print(subprocess.Popen(["sleep", "60"]).pid, file=open("pids", "a"))
    while True:
        time.sleep(60)

def fails_once():
    with open("calls", "a") as file:
        file.write("x")
    assert os.path.getsize("calls") > 1, "the first call"
    return 0.5

def leave():
    sys.exit(3)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def grader(source, function="mine.py:score", **options):
    Path("mine.py").write_text(source, "utf-8")
    return LocalGrader(PythonRules(type="python", function=function, **options))


@pytest.fixture
def faulty(folder):
    """Grades a text by what it means as Python, and has faults to call."""
    return grader(FAULTY, timeout_s=0.5, floor=-1.0)


def answers(*texts):
    return [
        (TASK, Rollout("t/1", index, (Segment((1,), (0.0,), True),), text, "end", 0, 1.0, 0))
        for index, text in enumerate(texts)
    ]


def pids():
    return [int(line) for line in Path("pids").read_text().split()]


def alive(pid):
    """Whether a process runs; a zombie, which only waits to be counted, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(numbers, wait_s=10.0):
    deadline = time.monotonic() + wait_s
    while any(map(alive, numbers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, numbers))


def test_the_task_is_told_in_plain_json():
    assert plain(TASK) == {
        "id": "t/1",
        "kind": "grounding",
        "question": "box the cat",
        "truth": {"box": (0.1, 0.2, 0.5, 0.75)},
        "options": {},
        "image_sha256": [IMAGE.sha256],
    }


def test_the_function_gets_task_and_text(folder):
    found = grader("def score(task, text): return {'value': 1, 'extracted': [task, text]}")
    task, text = found.grade(answers("<box>ä\ud800\n</box>"))[0].extracted
    assert task == json.loads(json.dumps(plain(TASK)))
    assert text == "<box>ä\ud800\n</box>"


def test_scores(faulty):
    number, whole, full, invalid = faulty.grade(
        answers(
            "0.25",
            "-3",
            "{'value': 0.5, 'correct': True, 'parts': {'iou': 0.5}, 'extracted': [1, None], 'evidence': 'half'}",
            "{'invalid': 'no_box', 'evidence': 'empty'}",
        )
    )
    assert (number.status, number.value, number.correct, number.parts) == ("scored", 0.25, None, {})
    assert (whole.status, whole.value) == ("scored", -3.0)
    assert (full.value, full.correct, full.parts, full.extracted, full.evidence) == (
        0.5, True, {"iou": 0.5}, [1, None], "half",
    )  # fmt: skip
    assert (invalid.status, invalid.value, invalid.correct) == ("invalid", -1.0, False)
    assert (invalid.reason, invalid.evidence) == ("no_box", "empty")


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        ("1 / 0", "raised", "ZeroDivisionError: division by zero (mine.py, line 7)"),
        ("leave()", "raised", "SystemExit: 3 (mine.py, line 22)"),
        ("open('\\ud800')", "raised", "UnicodeEncodeError"),
        ("hang()", "timeout", "an answer took more than 0.5 s"),
        ("7 ** (10 ** 9)", "timeout", "an answer took more than 0.5 s"),
        ("os._exit(0)", "crash", "the worker ended itself with status 0 during an answer"),
        ("os._exit(3)", "crash", "the worker ended itself with status 3 during an answer"),
        ("os.kill(os.getpid(), 11)", "crash", "the worker was ended by SIGSEGV during an answer"),
        ("float('nan')", "result", "returned a float: ValueError: Out of range float values"),
        ("float('-inf')", "result", "returned a float: ValueError: Out of range float values"),
        ("{1, 2}", "result", "returned a set: TypeError: Object of type set is not JSON serializable"),
        ("True", "result", "returned no score (value: Input should be a valid number)"),
        ("None", "not_graded", "the function returned None: it does not grade this answer"),
        ("'1.0'", "result", "returned no score (value: Input should be a valid number)"),
        ("[1.0]", "result", "returned no score (value: Input should be a valid number)"),
        ("10 ** 400", "result", "returned no score (value: "),
        ("{}", "result", "returned no score (value: Field required)"),
        ("{'value': 1.0, 'corect': True}", "result", "corect: Extra inputs are not permitted"),
        ("{'value': 1.0, 'correct': 1}", "result", "correct: Input should be a valid boolean"),
        ("{'value': 1.0, 'parts': {'iou': None}}", "result", "parts.iou: Input should be a valid number"),
        (
            "{'value': 1.0, 'evidence': '\\ud800'}",
            "result",
            "evidence: Value error, 'utf-8' codec can't encode character",
        ),
        ("{'invalid': 'no box at all'}", "result", "invalid: String should match pattern"),
        ("{'invalid': 'empty', 'value': 1.0}", "result", "value: Extra inputs are not permitted"),
    ],
)
def test_a_fault_is_masked_and_said_and_the_next_answer_is_graded(faulty, text, reason, words):
    before, fault, after = faulty.grade(answers("1.0", text, "0.0"))
    assert (fault.status, fault.reason, fault.correct) == ("error", reason, None)
    assert math.isnan(fault.value)
    assert words in fault.evidence
    assert (before.value, after.value) == (1.0, 0.0)
    scored = [score.status != "error" for score in (before, fault, after)]
    found = advantages([before.value, fault.value, after.value], scored, eps=1e-4)
    assert found.tolist() == pytest.approx([0.5 / (math.sqrt(0.5) + 1e-4), 0.0, -0.5 / (math.sqrt(0.5) + 1e-4)])


def test_a_fault_is_tried_once_more(faulty):
    assert faulty.grade(answers("fails_once()"))[0].value == 0.5
    assert os.path.getsize("calls") == 2


def test_a_lasting_fault_is_tried_twice_and_no_more(faulty):
    faulty.grade(answers("open('calls', 'a').write('x') / 0"))
    assert os.path.getsize("calls") == 2


def test_at_the_deadline_the_worker_is_killed_with_its_children(faulty):
    assert faulty.grade(answers("hang(child=True)"))[0].reason == "timeout"
    assert len(pids()) == 4  # worker and child, twice
    assert gone(pids(), wait_s=1.0)


def test_the_order_of_answers_holds_and_workers_are_reused(faulty):
    for _ in range(3):
        scores = faulty.grade(answers(*(f"{i}.0" for i in range(20))))
        assert [score.value for score in scores] == [float(i) for i in range(20)]
        assert len(faulty.latencies_ms) == 20
        assert min(faulty.latencies_ms) > 0
    assert 1 <= len(set(pids())) <= 2


def test_latencies_count_the_wait_for_a_slow_function(folder):
    found = grader("import time\ndef score(task, text): time.sleep(float(text)); return 1")
    found.grade(answers("0.2", "0"))
    assert found.latencies_ms[0] >= 200


MEETING = """
import os, time

def score(task, text):
    open(text, "w").close()
    while not (os.path.exists("a") and os.path.exists("b")):
        time.sleep(0.01)
    return 1
"""


def test_workers_run_at_the_same_time(folder):
    """Two answers that wait for one another."""
    assert [score.value for score in grader(MEETING, timeout_s=10.0).grade(answers("a", "b"))] == [1.0, 1.0]


def test_what_the_function_prints_is_no_reply(folder, capfd):
    found = grader(
        "import os, sys\ndef score(task, text): print(text); os.write(1, b'{}\\n'); return len(sys.stdin.read())"
    )
    assert found.grade(answers("hello"))[0].value == 0.0
    assert capfd.readouterr().out == ""


def test_workers_end_with_the_grader(faulty):
    faulty.grade(answers("1.0", "2.0"))
    assert all(map(alive, pids()))
    faulty._verifier = None
    assert gone(pids(), wait_s=1.0)


TRAINER = """
import sys
from tests_of_workers import TASK, answers
from oncurve.config.rewards import PythonRules
from oncurve.rewards.grader import LocalGrader
grader = LocalGrader(PythonRules(type="python", function="mine.py:score", timeout_s=0.5))
assert "torch" not in sys.modules
grader.grade(answers("1.0", "2.0"))
print("graded", flush=True)
grader.grade(answers(sys.argv[1]))
"""


@pytest.mark.parametrize("text", ["1.0", "sys.stdin.close() or os.kill(os.getppid(), 9) or hang()"])
def test_workers_outlive_no_trainer(folder, text):
    """One that ends, and one that is killed in the middle of an answer."""
    Path("mine.py").write_text(FAULTY, "utf-8")
    Path("tests_of_workers.py").write_text(Path(__file__).read_text("utf-8"), "utf-8")
    Path("trainer.py").write_text(TRAINER, "utf-8")
    trainer = subprocess.run([sys.executable, "trainer.py", text], capture_output=True, text=True, timeout=30)
    assert trainer.stdout == "graded\n", trainer.stderr
    assert trainer.returncode == (0 if text == "1.0" else -signal.SIGKILL), trainer.stderr
    assert gone(pids())


@pytest.mark.parametrize(
    ("source", "function", "words"),
    [
        ("", "yours.py:score", "there is no file yours.py in "),
        ("def scores(task, text): return 1", "mine.py:score", "mine.py has no function score; did you mean scores?"),
        ("import os\nx = 1", "mine.py:score", "mine.py has no function score; it has: no function"),
        ("score = 1", "mine.py:score", "mine.py has no function score"),
        ("import no_such_package", "mine.py:score", "No module named 'no_such_package' (mine.py, line 1)"),
        ("def score(task, text) return 1", "mine.py:score", 'mine.py", line 1'),
        ("raise ValueError('no key')", "mine.py:score", "ValueError: no key (mine.py, line 1)"),
        ("import os; os._exit(0)", "mine.py:score", "the worker ended itself with status 0 during loading"),
        ("", "no_such_package:score", "No module named 'no_such_package'"),
        ("", "sys:exit", "sys has no source file"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_an_error_before_training(folder, source, function, words):
    with pytest.raises(ConfigError) as caught:
        grader(source, function)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f'reward.function "{function}" can\'t be loaded: ')
    assert "mine" not in sys.modules


def test_modules_by_name_and_neighbours_are_found(folder):
    package = folder / "rewards_of_mine"
    package.mkdir()
    (package / "helper.py").write_text("VALUE = 0.75")
    (package / "whole.py").write_text("import helper\ndef score(task, text): return helper.VALUE")
    (package / "named.py").write_text("from .helper import VALUE\ndef score(task, text): return VALUE / 3")
    assert grader("", "rewards_of_mine/whole.py:score").grade(answers("x"))[0].value == 0.75
    assert grader("", "rewards_of_mine.named:score").grade(answers("x"))[0].value == 0.25


def test_rules_name_the_source_and_change_with_it(folder):
    first, same = (grader("def score(task, text): return 1.0") for _ in range(2))
    other = grader("def score(task, text): return 2.0")
    assert first.rules == same.rules != other.rules
    assert "mine.py:score" in first.rules
    assert first.grade(answers("x"))[0].verifier != other.grade(answers("x"))[0].verifier


def test_a_file_that_changes_during_a_run_is_a_fault(faulty):
    Path("mine.py").write_text(FAULTY + "\n# changed", "utf-8")
    scores = faulty.grade(answers("os._exit(0)"))
    assert (scores[0].reason, "changed during the run" in scores[0].evidence) == ("crash", True)


def test_grounding_stays_in_this_process_and_is_timed():
    found = LocalGrader(GroundingRules())
    assert found.grade(answers("<box>0.10,0.20,0.50,0.75</box>"))[0].value == pytest.approx(1.0)
    assert len(found.latencies_ms) == 1


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    """Returns what the answer's text says in JSON."""
    source = tmp_path_factory.mktemp("mirror") / "mirror.py"
    source.write_text("import json\ndef score(task, text): return json.loads(text)")
    return LocalGrader(PythonRules(type="python", function=f"{source}:score", workers=1, floor=-2.0))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda part: st.lists(part) | st.dictionaries(st.sampled_from(["value", "invalid", "parts"]) | st.text(), part),
    max_leaves=6,
)


@settings(deadline=None, max_examples=50)
@given(json_values)
def test_whatever_is_returned_becomes_one_kind_of_score(mirror, returned):
    (score,) = mirror.grade(answers(json.dumps(returned)))
    if isinstance(returned, int | float) and not isinstance(returned, bool) and math.isfinite(returned):
        assert (score.status, score.value) == ("scored", float(returned))
    elif score.status == "error":
        assert math.isnan(score.value)
        assert score.reason == ("not_graded" if returned is None else "result")
    else:
        assert isinstance(returned, dict)
        assert score.value == (-2.0 if score.status == "invalid" else returned["value"])


@pytest.mark.parametrize("function", ["", "mine.py", "mine.py:", ":score", "mine.py:a b", "my-mod:score"])
def test_a_name_that_names_no_function_is_a_fault_of_the_config(folder, function):
    Path("a.toml").write_text(f'[reward]\ntype = "python"\nfunction = "{function}"\n')
    with pytest.raises(ConfigError, match="names no function") as caught:
        load(Path("a.toml"), [], TrainConfig)
    assert str(caught.value).splitlines()[2] == "a.toml:3"


CONFIG = """
name = "mine"
num_steps = 2
[model]
path = "builtin:untrained"
[sampling]
prompts_per_step = 2
answers_per_prompt = 4
[reward]
type = "python"
function = "mine.py:score"
[evaluate]
every_steps = 0
num_tasks = 8
"""


ODD = """
def score(task, text):
    assert int(task["id"][-1]) % 2, "even"
    return {"value": len(text), "parts": {"two": 2}}
"""


def test_a_whole_run(folder, capsys):
    """Longer answers pay; the function fails on every task with an even number."""
    Path("a.toml").write_text(CONFIG)
    Path("mine.py").write_text(ODD)
    assert main(["train", "a.toml", "--no-audit"]) == 0
    run = RunReader(Path("runs/mine"))
    rows = [row for step in (1, 2) for row in run.step(step)]
    assert len(rows) == 16
    assert {row.verifier.split("/")[0] for row in rows} == {"mine.py:score"}
    assert {row.status for row in rows} == {"scored", "error"}
    for row in rows:
        if int(row.task_id[-1]) % 2:
            assert (row.value, json.loads(row.parts)) == (len(row.text), {"two": 2.0})
        else:
            assert (row.status, row.reason, row.advantage) == ("error", "raised", 0.0)
            assert row.evidence == "AssertionError: even (mine.py, line 3)"
    logged = [line for line in run.metrics() if "verifier/error/share" in line]
    for step, line in enumerate(logged, 1):
        failed = [row.status == "error" for row in rows if row.step == step]
        assert line["verifier/error/share"] == sum(failed) / 8
        assert line["verifier/latency_ms/p95"] > 0
    assert len(logged) == 2


def test_a_run_whose_function_is_missing_does_not_start(folder, capsys):
    Path("a.toml").write_text(CONFIG)
    assert main(["train", "a.toml"]) == 2
    assert 'oncurve: reward.function "mine.py:score" can\'t be loaded: there is no file' in capsys.readouterr().err
    assert not Path("runs").exists()


TRL = """
def columns(prompts, completions, box, kind, **rest):
    return [float(len(completions) == len(prompts) == 1 and box[0] == truth["box"]) for truth in rest["truth"]]

def few(completions, kind): return [len(kind[0]) / 10]
async def later(completions, **columns):
    import asyncio
    await asyncio.sleep(0)
    return [0.25]
def none(completions, **columns): return [None]
def many(completions, **columns): return [1.0, 2.0]
async def own(task, text): return {"value": 0.75}
"""


@pytest.mark.parametrize(("name", "value"), [("columns", 1.0), ("few", 0.9), ("later", 0.25), ("own", 0.75)])
def test_a_function_with_trls_signature_and_async_ones(folder, name, value):
    assert grader(TRL, f"mine.py:{name}").grade(answers("cat"))[0].value == value


@pytest.mark.parametrize(
    ("name", "reason", "words"),
    [("none", "not_graded", "it does not grade this answer"), ("many", "raised", "one number in a list was expected")],
)
def test_what_trls_signature_may_return(folder, name, reason, words):
    (score,) = grader(TRL, f"mine.py:{name}").grade(answers("cat"))
    assert (score.status, score.reason) == ("error", reason)
    assert words in score.evidence


def test_a_score_may_be_returned(folder):
    source = """
from oncurve.types import Score
def score(task, text):
    if text == "bad": return Score("invalid", 0.0, reason="no_box", evidence="none")
    if text == "broken": return Score("error", float("nan"), evidence="no disk")
    return Score("scored", 0.5, True, {"iou": 0.7}, [1], "half")
"""
    good, bad, broken = grader(source, floor=-2.0).grade(answers("good", "bad", "broken"))
    assert (good.value, good.correct, good.parts, good.extracted, good.evidence) == (
        0.5,
        True,
        {"iou": 0.7},
        [1],
        "half",
    )
    assert (bad.status, bad.value, bad.reason, bad.evidence) == ("invalid", -2.0, "no_box", "none")
    assert (broken.status, broken.reason) == ("error", "raised")


def test_an_installed_packages_entry_point(folder, monkeypatch):
    package = folder / "site"
    (package / "boxes-1.0.dist-info").mkdir(parents=True)
    (package / "boxes-1.0.dist-info" / "entry_points.txt").write_text("[oncurve.rewards]\nbest = boxes:score\n")
    (package / "boxes-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: boxes\nVersion: 1.0\n")
    (package / "boxes.py").write_text("def score(task, text): return 0.625")
    monkeypatch.setenv("PYTHONPATH", str(package), prepend=os.pathsep)
    assert LocalGrader(PythonRules(type="python", function="best")).grade(answers("cat"))[0].value == 0.625
    with pytest.raises(ConfigError, match=r"no installed package has an entry point worst .* there are: best"):
        LocalGrader(PythonRules(type="python", function="worst"))
