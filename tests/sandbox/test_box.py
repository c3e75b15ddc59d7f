"""Children in the sandbox: what they can do, and how they end."""

import pytest

from oncurve.errors import SandboxError
from oncurve.sandbox.box import ChildStopped, Sandbox, reached
from oncurve.sandbox.limits import Limits

pytestmark = pytest.mark.skipif(reached() != "bubblewrap", reason="bubblewrap is not installed or can't start here")
RUN = """
def answer(request):
    names = {"FILES": FILES}
    exec(request["run"], names)
    return {"value": names.get("value")}
"""


def run(code: str, timeout_s: float = 5.0, **options):
    with Sandbox().open(RUN, **options) as child:
        return child.ask({"run": code}, timeout_s)["value"]


def test_an_answer_comes_back():
    assert run("value = 6 * 7") == 42


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("while True: pass", "timeout"),
        ("x = [0] * 10**10", "memory"),
        ("value = 'x' * 9_000_000", "output"),
        ("import os; os._exit(0)", "crash"),
        ("import ctypes; ctypes.string_at(0)", "crash"),
        ("import os\nfor f in range(3, 60):\n try: os.write(f, b'[1]\\n[')\n except OSError: pass", "crash"),
    ],
)
def test_a_child_that_misbehaves_is_stopped_for_a_reason(code, reason):
    with pytest.raises(ChildStopped) as stopped:
        run(code, 0.3 if reason == "timeout" else 5.0)
    assert stopped.value.reason == reason


def test_a_program_that_is_broken_is_no_fault_of_an_answer():
    with pytest.raises(SandboxError, match="ZeroDivisionError"):
        Sandbox().open("1 / 0", limits=Limits(wall_s=5.0))
