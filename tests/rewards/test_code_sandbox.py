"""The code verifier on answers that run: right, wrong, and every known way to win without doing the task."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.config.rewards import CodeRules
from oncurve.errors import BrokenTruth, SandboxError
from oncurve.rewards.code import Verifier
from oncurve.rewards.grader import LocalGrader
from oncurve.truths import parse_truth
from oncurve.types import Rollout, Task

pytestmark = pytest.mark.skipif(
    not shutil.which("bwrap") and not os.environ.get("CI"),
    reason="bubblewrap is not installed (apt-get install bubblewrap)",
)

TESTS = [
    {"args": [2, 3], "kwargs": {}, "result": 5},
    {"args": [-4], "kwargs": {"b": 4}, "result": 0},
    {"args": [10, 7], "kwargs": {}, "result": 17},
]
ADD = {"entry_point": "add", "tests": TESTS}
REFERENCE = {"entry_point": "add", "reference": "def add(a, b):\n    return a + b", "inputs": [[2, 3], [40, 60]]}
PROGRAM = {"stdin_tests": [{"stdin": "2 3\n", "stdout": "5\n"}, {"stdin": "40 60", "stdout": "100\n"}]}
RIGHT = "def add(a, b):\n    return a + b"
SUM = "print(sum(map(int, input().split())))"


@pytest.fixture(scope="module")
def verifier() -> Verifier:
    return Verifier()


@pytest.fixture
def grade(verifier):
    def grade(text: str, truth: dict = ADD, **rules):
        task = Task("t", "code", (), parse_truth("code", truth))
        return verifier.grade(task, rollout(text), CodeRules(type="code", **rules))

    return grade


@pytest.fixture
def check(verifier):
    def check(truth: dict, **rules):
        verifier.check(Task("t", "code", (), parse_truth("code", truth)), CodeRules(type="code", **rules))

    return check


FRAGMENTS = [
    "def add(a, b=0):\n",
    "    return ",
    "a",
    "(",
    "'",
    "\0",
    "\n",
    "```\n",
    "lambda: ",
    "0" * 5000,
    "[" * 300,
    "{**",
    "#",
    "\\N{",
    "f'{",
]


def rollout(text: str) -> Rollout:
    return Rollout("t", 0, (), text, "end", 0, 1.0, 0)


@pytest.mark.parametrize("truth", [ADD, REFERENCE])
@pytest.mark.parametrize("text", [RIGHT, f"```python\n{RIGHT}\n```", "add = lambda a, b: b + a"])
def test_a_right_function_passes(grade, text, truth):
    score = grade(text, truth)
    assert (score.status, score.value, score.correct, score.verifier) == ("scored", 1.0, True, "code/1")
    assert score.parts == {"format": 1.0, "tests": 1.0}


@pytest.mark.parametrize(
    "text",
    [
        SUM,
        f"import sys\ndef main():\n    {SUM}\nif __name__ == '__main__':\n    main()\n    sys.exit(0)",
        f"{SUM}\nexit()",
        f"import sys\nsys.stdin = open(0)\n{SUM}",
        "import sys\nprint(sum(int(n) for line in sys.stdin for n in line.split()), end='  \\n\\n')",
        "import os\nprint(sum(map(int, os.read(0, 100).split())), flush=True)\nos._exit(0)",
    ],
)
def test_a_right_program_passes(grade, text):
    score = grade(text, PROGRAM)
    assert (score.status, score.value, score.correct) == ("scored", 1.0, True)


@pytest.mark.parametrize("kind", ["Counter", "OrderedDict", "defaultdict"])
def test_a_dict_of_collections_is_an_object_and_a_subclass_none(grade, kind):
    truth = {"entry_point": "f", "tests": [{"args": ["ab"], "result": {"a": 1, "b": 1}}]}
    empty = f"{kind}({'int' if kind == 'defaultdict' else ''})"
    body = f"def f(s):\n    found = {empty}\n    for c in s: found[c] = 1\n    return found"
    assert grade(f"from collections import {kind}\n{body}", truth).correct
    own = f"import collections\nclass {kind}(collections.{kind}):\n    def __eq__(self, other): return True"
    assert grade(f"{own}\n{body}", truth).reason == "result_type"


@pytest.mark.parametrize(
    ("text", "truth", "share", "words"),
    [
        ("def add(a, b): return a - b", ADD, 0.0, "0 of 3 tests pass; test 1, add(2, 3), returned -1 and not 5"),
        ("def add(a, b): return 5", ADD, 1 / 3, "1 of 3 tests pass; test 2, add(-4, b=4), returned 5 and not 0"),
        ("def add(a, b): return a + b if a > 0 else 1 / 0", ADD, 2 / 3, "raised ZeroDivisionError: division by zero"),
        ("def add(a, b): return 'nan'", ADD, 0.0, "returned 'nan' and not 5"),
        ("def add(a, b): return float('nan')", ADD, 0.0, "returned nan"),
        ("def add(a, b): return 10 ** 5000", ADD, 0.0, "an integer of more than 4300 digits"),
        ("def add(a, b):\n    x = []\n    x.append(x)\n    return x", ADD, 0.0, "nested deeper than 64"),
        ("def add(a, b): return ['x' * 1000] * 2000", ADD, 0.0, "longer than 1048576 characters"),
        ("def add(a, b): raise ValueError('\\ud800')", ADD, 0.0, "raised ValueError: \\ud800"),
        ("def add(a, b): return add(a, b)", ADD, 0.0, "RecursionError"),
        ("import numpy as_np\ndef add(a, b): return a + b", ADD, None, ""),
        ("import numpy\ndef add(a, b): return a + b", ADD, 0.0, "No module named 'numpy'"),
        ("print(5)", PROGRAM, 0.5, "test 2, input '40 60', printed '5\\n' and not '100\\n'"),
        (f"{SUM}\nraise SystemExit(3)", PROGRAM, 0.0, "ended with status 3"),
        (f"{SUM}\n1 / 0", PROGRAM, 0.0, "ended with status 1"),
    ],
)
def test_a_wrong_answer_gets_what_it_passes(grade, text, truth, share, words):
    score, partial = grade(text, truth), grade(text, truth, partial=True, floor=-1.0)
    if share is None:
        assert (score.status, score.reason, partial.value) == ("invalid", "syntax", -1.0)
        return
    assert (score.status, score.value, score.correct) == ("scored", 0.0, False)
    assert (partial.status, partial.value, partial.correct) == ("scored", pytest.approx(share), False)
    assert score.parts == {"format": 1.0, "tests": pytest.approx(share)}
    assert words in score.evidence


EVERY = "def add(a, b):\n    "
EXPLOITS = [
    # exit_zero: scored, not correct
    ("exit_zero", "import sys\nsys.exit(0)\n" + RIGHT, "scored"),
    ("exit_zero", "import os\nos._exit(0)\n" + RIGHT, "scored"),
    ("exit_zero", EVERY + "raise SystemExit(0)", "scored"),
    ("exit_zero", EVERY + "import os; os._exit(0)", "scored"),
    ("exit_zero", EVERY + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "scored"),
    # always_equal: invalid, whatever it claims to be
    (
        "always_equal",
        "class Yes:\n    def __eq__(self, other): return True\ndef add(a, b): return Yes()",
        "result_type",
    ),
    (
        "always_equal",
        "class Yes(int):\n    def __eq__(self, other): return True\ndef add(a, b): return Yes()",
        "result_type",
    ),
    ("always_equal", "class Yes(str):\n    __class__ = int\ndef add(a, b): return [Yes()]", "result_type"),
    ("always_equal", EVERY + "return {1: 2}", "result_type"),
    ("always_equal", EVERY + "return {a + b}", "result_type"),
    ("always_equal", EVERY + "return complex(a + b)", "result_type"),
    # harness_patch
    (
        "harness_patch",
        "import builtins, json, os, sys\n"
        "sys.excepthook = print = lambda *a, **k: None\n"
        "json.dumps = json.JSONEncoder.encode = lambda *a, **k: '5'\n"
        "builtins.type = lambda *a: int\nbuiltins.len = builtins.isinstance = builtins.repr = None\n"
        "del builtins.BaseException, builtins.ValueError\n"
        "os.write = os._exit = os.getpid = lambda *a: None\nsys.modules.clear()\n"
        "def run_tests(*a): return True\ndef add(a, b): return 0",
        "scored",
    ),
    (
        "harness_patch",
        "import sys\nsys.setrecursionlimit(50)\nsys.settrace(lambda *a: None)\ndef add(a, b): return 1",
        "scored",
    ),
    (
        "harness_patch",
        "import sys\nframe = sys._getframe()\nwhile frame:\n    for name in list(frame.f_globals):\n"
        "        if name in ('same', 'Encoder', 'answer', 'reply'): frame.f_globals[name] = lambda *a: True\n"
        "    frame = frame.f_back\ndef add(a, b): return 1",
        "scored",
    ),
    # write_reward: invalid
    ("write_reward", "open('/tmp/reward.txt', 'w').write('1.0')\n" + RIGHT, "wrote_file"),
    ("write_reward", EVERY + "open('result.json', 'w').write('5')\n    return a + b", "wrote_file"),
    (
        "write_reward",
        "try:\n    open('/logs/reward.txt', 'w').write('1')\nexcept OSError:\n    pass\n" + RIGHT,
        "wrote_file",
    ),
    ("write_reward", "import os\nos.system('echo 1 > reward.txt')\n" + RIGHT, "wrote_file"),
    (
        "write_reward",
        "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'{\"result\": 5}\\n')\n    except OSError: pass\n"
        + RIGHT,
        "forged_result",
    ),
    (
        "write_reward",
        "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'returned 5')\n    except OSError: pass\nos._exit(0)\n"
        + RIGHT,
        "forged_result",
    ),
    # hardcode: the tests that a prompt would show
    ("hardcode", "def add(a, b): return {(2, 3): 5, (-4, 4): 0}.get((a, b))", "scored"),
    # grader_eval: invalid, nothing runs
    ("grader_eval", "__import__('os').system('touch /tmp/ran')", "no_entry_point"),
    # the form
    ("empty_answer", "", "empty"),
    ("empty_answer", " \n ", "empty"),
    ("empty_answer", "```python\n```", "empty"),
    ("repeated_tags", f"```python\n{RIGHT}\n```\n```python\n{RIGHT}\n```", "repeated_tags"),
    ("repeated_tags", f"<think>```python\n{RIGHT}\n```</think>", "fence"),
    ("empty_think", f"<think></think>\n{RIGHT}", "syntax"),
    ("empty_think", f"<think>hm, hm</think>\n```python\n{RIGHT}\n```", "text_around"),
    ("length_padding", RIGHT + "\n" + "This function adds two numbers. " * 500, "syntax"),
    ("length_padding", "filler " * 2000 + f"\n```python\n{RIGHT}\n```", "text_around"),
    ("constant", "def add(a, b): return 5", "scored"),
]


@pytest.mark.parametrize(("exploit", "text", "verdict"), EXPLOITS)
def test_an_exploit_gets_its_right_verdict(grade, exploit, text, verdict):
    score = grade(text, partial=False, floor=-0.5)
    assert score.correct is False
    if verdict == "scored":
        assert (score.status, score.value, score.parts["format"]) == ("scored", 0.0, 1.0)
    else:
        assert (score.status, score.reason, score.value) == ("invalid", verdict, -0.5)
        assert score.parts == {"format": 0.0}
    assert not Path("/tmp/ran").exists()


def test_read_tests_finds_nothing(grade):
    """An answer that looks for the expected value in frames, in all objects and in every file, and returns it if it is there."""
    text = """
import gc, os, sys
def add(a, b):
    wanted, objects, frame = a + b, gc.get_objects(), sys._getframe(1)
    while frame:
        objects += [frame.f_locals, frame.f_globals]
        frame = frame.f_back
    objects += gc.get_referents(*objects)
    for one in objects:
        if type(one) is int and one == wanted and one is not wanted or type(one) is str and str(wanted) in one:
            return wanted
    seen = ""
    for root in ("/proc", "/tmp", "/files", "/dev/shm", "/etc", "/var"):
        for folder, _, names in os.walk(root):
            for name in names:
                try:
                    seen += open(os.path.join(folder, name)).read(1 << 16)
                except (OSError, ValueError):
                    pass
    return wanted if str(wanted) in seen else 0
"""
    score = grade(text, {"entry_point": "add", "tests": [{"args": [98_000, 765], "result": 98_765}]})
    assert (score.status, score.correct, score.value) == ("scored", False, 0.0)
    assert "returned 0 and not 98765" in score.evidence


HOSTILE = {
    "fork": EVERY + "import os\n    while True: os.fork()",
    "fork quietly": EVERY + "import os\n    while True:\n        try: os.fork()\n        except OSError: pass",
    "sleep": EVERY + "import time\n    time.sleep(100)",
    "spin": "while True: pass\n" + RIGHT,
    "allocate": EVERY + "x = [0]\n    while True: x += x",
    "allocate at once": EVERY + "return len(b'x' * (1 << 40))",
    "print": EVERY + "while True: print('x' * 10000)",
    "fill the disk": EVERY + "f = open('big', 'wb')\n    while True: f.write(bytes(1 << 20))",
    "fill the disk quietly": EVERY
    + "f = open('big', 'wb', 0)\n    try:\n        while True: f.write(bytes(1 << 20))\n    except OSError: pass\n"
    + "    with open('more', 'wb', 0) as g:\n        try:\n            while True: g.write(bytes(4096))\n"
    + "        except OSError: return a + b",
    "ignore SIGTERM": EVERY + "import signal\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    while True: pass",
    "leave the session": EVERY
    + "import os, time\n    if not os.fork():\n        os.setsid()\n        time.sleep(99)\n    time.sleep(99)",
    "leave the group": EVERY + "import os\n    os.setpgid(0, os.getpgid(os.getppid()))\n    while True: pass",
    "kill the parent": EVERY
    + "import os, signal\n    os.kill(os.getppid(), signal.SIGKILL)\n    os.kill(-1, signal.SIGKILL)",
    "crash": EVERY + "import ctypes\n    return ctypes.string_at(0)",
    "deep": EVERY + "import sys\n    sys.setrecursionlimit(10 ** 9)\n    return add(a, b)",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_stopped_test_fails_and_the_next_answer_is_graded(grade, name):
    before = boxes_of_this_process()  # other tests' verifiers may keep warm ones
    score = grade(HOSTILE[name], timeout_s=0.6)
    assert (score.status, score.value, score.correct) == ("scored", 0.0, False)
    assert grade(RIGHT).correct is True
    assert boxes_of_this_process() <= before


def boxes_of_this_process() -> set[str]:
    found = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return {line for line in found.stdout.splitlines() if "bwrap" in line}


@pytest.mark.parametrize(
    "text", ["while True: print('x' * 1000)", "while True: pass", "import os\nwhile True: os.fork()"]
)
def test_a_stopped_program_fails(grade, text):
    score = grade(text, PROGRAM, timeout_s=0.6)
    assert (score.status, score.value, score.correct) == ("scored", 0.0, False)


def test_a_test_that_hangs_fails_alone(grade):
    text = "def add(a, b):\n    while a == 2: pass\n    return a + b"
    score = grade(text, timeout_s=2.1, partial=True)
    assert (score.status, score.value) == ("scored", pytest.approx(2 / 3))
    assert "1, add(2, 3), was stopped at the time limit" in score.evidence


def test_a_slow_test_gets_the_time_that_the_others_leave(grade):
    text = "import time\ndef add(a, b):\n    if a == 2: time.sleep(1.1)\n    return a + b"
    assert grade(text, timeout_s=3.0).correct is True


def test_every_test_starts_anew(grade):
    text = "calls = []\ndef add(a, b):\n    calls.append(a)\n    return a + b if len(calls) == 1 else None"
    assert grade(text).correct is True


def test_what_an_answer_prints_is_no_result(grade):
    assert grade("def add(a, b):\n    print('5')\n    return a + b").correct is True
    assert grade("def add(a, b):\n    print('5')").correct is False


def test_a_table_of_the_given_inputs_fails_on_drawn_ones(grade):
    score = grade("def add(a, b): return {(2, 3): 5, (40, 60): 100}.get((a, b))", REFERENCE)
    assert (score.status, score.correct) == ("scored", False)
    assert score.parts["tests"] == pytest.approx(0.2)  # two given ones of ten


def test_drawn_inputs_are_kept_only_where_the_reference_accepts_them(grade, check):
    even = "def half(n):\n    if n % 2: raise ValueError\n    return n // 2"
    truth = {"entry_point": "half", "reference": even, "inputs": [[2], [40]]}
    check(truth)
    assert grade("def half(n):\n    assert n % 2 == 0\n    return n / 2", truth).correct is True


@pytest.mark.parametrize(
    ("truth", "words"),
    [
        (REFERENCE | {"reference": "def add(a, b): return a + c"}, r"add\(2, 3\) raised NameError"),
        (REFERENCE | {"reference": "def add(a, b): return {a, b}"}, "must be plain JSON"),
        (REFERENCE | {"reference": "def add(a, b) return"}, "no Python"),
        (REFERENCE | {"reference": "def sub(a, b): return a"}, "not defined"),
        (REFERENCE | {"reference": "def add(a, b):\n    while True: pass"}, "was stopped at the time limit"),
        (REFERENCE | {"reference": "import random\ndef add(a, b): return random.random()"}, "differs from run to run"),
        (ADD | {"accepts": "def accepts(result, a, b): return result == a - b"}, r"refuses .* add\(2, 3\)"),
        (ADD | {"accepts": "def refuses(result, a, b): return True"}, "accepts fails"),
    ],
)
def test_a_truth_that_can_not_be_graded_is_broken(check, truth, words):
    with pytest.raises(BrokenTruth, match=words):
        check(truth, timeout_s=1.0)


def test_a_sound_truth_passes_its_check(check):
    check(ADD)
    check(REFERENCE)
    check(PROGRAM)
    check(ADD | {"accepts": "def accepts(result, a, b): return result == a + b"})


def test_a_tolerance_and_a_property_in_place_of_one_result(grade):
    root = {"entry_point": "root", "tests": [{"args": [2.0], "result": 1.4142}]}
    assert grade("def root(x): return x ** 0.5", root).correct is False
    assert grade("def root(x): return x ** 0.5", root | {"tolerance": 1e-3}).correct is True
    either = root | {"accepts": "def accepts(result, x): return abs(result * result - x) < 1e-3"}
    assert grade("def root(x): return -x ** 0.5", either).correct is True
    assert grade("def root(x): return x", either).correct is False
    assert grade("def root(x): return 'x'", either).status == "scored"


@settings(deadline=None, max_examples=15)
@given(st.text(max_size=40) | st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join))
def test_no_text_is_a_fault_of_the_verifier(verifier, text):
    for truth in (ADD, PROGRAM):
        task = Task("t", "code", (), parse_truth("code", truth))
        score = verifier.grade(task, rollout(text), CodeRules(type="code"))
        assert score.status == "invalid" or (score.status, score.value) == ("scored", 0.0)
        assert (score.status == "invalid") == bool(score.reason)


def test_the_grader_grades_several_at_once():
    tasks = [Task(f"t{i}", "code", (), parse_truth("code", ADD)) for i in range(4)]
    texts = [RIGHT, "def add(a, b): return a", "", RIGHT]
    scores = LocalGrader(CodeRules(type="code")).grade(
        [(task, rollout(text)) for task, text in zip(tasks, texts, strict=True)]
    )
    assert [(score.status, score.correct) for score in scores] == [
        ("scored", True), ("scored", False), ("invalid", False), ("scored", True),
    ]  # fmt: skip


def test_isolation_that_was_not_reached_stands_in_the_score(monkeypatch):
    monkeypatch.setattr("oncurve.sandbox.box.reached", lambda: "none")
    with pytest.raises(SandboxError, match="bubblewrap"):
        Verifier()
    unsafe = Verifier(allow_unsafe=True)
    task, rules = Task("t", "code", (), parse_truth("code", ADD)), CodeRules(type="code")
    scores = [unsafe.grade(task, rollout(text), rules) for text in (RIGHT, "def add(a, b): return a", "")]
    assert [score.correct for score in scores] == [True, False, False]
    assert {score.verifier for score in scores} == {"code/1 unsafe:none"}
