"""Children in the sandbox: what they can do, how they end, and that nothing stays behind."""

import errno
import gc
import os
import platform
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from oncurve.errors import SandboxError
from oncurve.sandbox import box
from oncurve.sandbox.box import ChildStopped, Limits, Sandbox

ECHO = "def answer(request): return request"
FOREVER = "import time\ndef answer(request): time.sleep(600)"


def traces() -> tuple[set[str], set[str]]:
    """The processes that this one started and that are alive or not collected, and its open files by number."""
    mine, tree = set(), [str(os.getpid())]
    while tree:
        for task in Path("/proc", tree.pop(), "task").iterdir():
            children = (task / "children").read_text().split()
            mine.update(children)
            tree += children
    return mine, set(os.listdir("/proc/self/fd"))


def test_an_answer_comes_back_whatever_the_text(bubblewrap):
    request = {"text": 'ä\ud800\n"\0', "number": 2**70, "nested": [[{}]]}
    with Sandbox().open(ECHO) as child:
        assert child.ask(request, 10.0) == request
        assert child.ask({}, 10.0) == {}
        assert child.stamp == ""


def test_a_long_request_and_a_long_answer(bubblewrap):
    request = {"text": "x" * 3_000_000}
    with Sandbox().open(ECHO) as child:
        assert child.ask(request, 10.0) == request


def test_a_child_that_does_not_read_is_out_of_time(bubblewrap):
    with Sandbox().open(FOREVER) as child:
        with pytest.raises(ChildStopped, match=r"no answer within 0.2 s") as stopped:
            child.ask({"text": "x" * 3_000_000}, 0.2)
        assert stopped.value.reason == "timeout"


def test_what_a_child_sees(run):
    assert run("import os; value = sorted(os.listdir('/tmp')), os.getcwd()") == [[], "/tmp"]
    assert run("import os; value = sorted(os.listdir('/dev'))") == ["null", "random", "urandom", "zero"]
    assert run("import os; value = os.path.exists('/proc'), os.getpid()") == [False, 1]
    assert run("value = open(FILES + '/a').read()", files={"a": b"text"}) == "text"
    with pytest.raises(ChildStopped):
        run("open(FILES + '/a', 'w')", files={"a": b"text"})


def test_paths_and_packages_are_there_where_asked_for(run, tmp_path):
    (tmp_path / "data").write_text("42")
    tmp_path.chmod(0o755)
    code = f"value = open({str(tmp_path / 'data')!r}).read()"
    assert run(code, read_only=[tmp_path]) == "42"
    with pytest.raises(ChildStopped):
        run(code)
    assert run("import numpy; value = int(numpy.arange(4).sum())", site_packages=True) == 6
    with pytest.raises(ChildStopped):
        run("import numpy")


def test_a_set_has_the_same_order_each_time(run):
    code = "value = list({'a', 'b', 'c', 'd', 'e', 'f', 'g'})"
    assert run(code) == run(code)


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        ("while True: pass", "timeout", "no answer within 0.3 s"),
        ("import time; time.sleep(9)", "timeout", "no answer within 0.3 s"),
        ("x = [0] * 10**10", "memory", "more than 1024 MiB"),
        ("value = 'x' * 9_000_000", "output", "longer than 4194304 bytes"),
        ("import os; os._exit(3)", "crash", "ended with status 3"),
        ("raise SystemExit(0)", "crash", "ended with status 0"),
        ("import ctypes; ctypes.string_at(0)", "crash", "SIGSEGV"),
        ("def f(): return f()\nf()", "crash", "ended with status 1"),
        ("import os; os.closerange(3, 64)\nimport time; time.sleep(9)", "timeout", "no answer within 0.3 s"),
        ("import os; os.write(4, b'[1]\\n{')", "crash", "more than an answer"),
        ("import os; os.write(4, b'[1]\\n'); os._exit(0)", "crash", "no JSON object"),
        ("import os; os.write(4, b'{\\n'); os._exit(0)", "crash", "no JSON object"),
        ("import os; os.write(4, b'[' * 60000 + b'\\n'); os._exit(0)", "crash", "no JSON object"),
        ("value = int('9' * 4000) ** 2", "crash", "ended with status 1"),
    ],
)
def test_a_child_that_misbehaves_is_stopped_for_a_reason(run, code, reason, words):
    with pytest.raises(ChildStopped, match=words) as stopped:
        run(code, 0.3 if "0.3" in words else 10.0)
    assert stopped.value.reason == reason


@pytest.mark.parametrize(
    ("code", "limits", "reason"),
    [
        ("while True: pass", Limits(cpu_s=1), "timeout"),
        ("import time; time.sleep(9)", Limits(wall_s=0.5), "timeout"),
        ("value = 'x' * 2000", Limits(output_bytes=1000), "output"),
        ("x = bytearray(150 << 20)", Limits(memory_bytes=100 << 20), "memory"),
        ("for i in range(10**6): open(f'/tmp/{i}', 'w').close()", Limits(memory_bytes=50 << 20), "memory"),
        (
            "import os, time\nfor _ in range(3): os.fork()\nx = bytes(60 << 20)\nx = x.replace(b'\\0', b'x')\ntime.sleep(9)",
            Limits(memory_bytes=200 << 20),
            "memory",
        ),
    ],
)
def test_limits_that_stop_a_child(run, code, limits, reason):
    with pytest.raises(ChildStopped) as stopped:
        run(code, limits=limits)
    assert stopped.value.reason == reason


def test_limits_that_a_child_runs_into(run):
    forks = """
import os, time
value = 0
try:
    while True:
        if os.fork() == 0: time.sleep(60)
        value += 1
except BlockingIOError:
    kill_others()
if os.fork() == 0: os._exit(0)  # they are gone, and so are their numbers
os.wait()
"""
    assert run(forks, limits=Limits(processes=5)) == 5
    assert (
        run(
            "import os\nvalue = 0\ntry:\n while os.dup(0): value += 1\nexcept OSError: pass",
            limits=Limits(open_files=20),
        )
        < 20
    )
    fill = "value = 0\ntry:\n for i in range(99): value += open(f'/tmp/{i}', 'wb', 0).write(bytes(1 << 18))\nexcept OSError: pass"
    assert run(fill, limits=Limits(scratch_bytes=1 << 20)) == 1 << 20


def test_the_limit_of_processes_is_each_childs_own(run):
    hold = "import os, time\nfor _ in range(4):\n if os.fork() == 0: time.sleep(60)\n"
    with Sandbox().open(box_program(hold), limits=Limits(processes=4)) as one:
        one.ask({}, 10.0)
        with Sandbox().open(box_program(hold), limits=Limits(processes=4)) as other:
            assert other.ask({}, 10.0) == {}


def box_program(code: str) -> str:
    return f"def answer(request):\n exec({code!r}, {{}})\n return {{}}"


def test_no_child_can_end_its_first_process(run):
    code = (
        "import os\nif (child := os.fork()) == 0:\n os.kill(1, 9)\n os._exit(7)\nvalue = os.waitpid(child, 0)[1] >> 8"
    )
    assert run(code) == 7


def test_what_escaped_is_ended_by_kill_others(run):
    code = """
import os, time
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
os.wait()
os.close(writing)
kill_others()
value = os.read(reading, 1).decode()  # the end of the pipe: nobody has its other end
"""
    assert run(code) == ""


def test_a_forked_process_can_close_the_channel(run):
    code = """
import os
if os.fork() == 0:
    close_channel()
    for descriptor in range(3, 64):
        try: os.write(descriptor, b'{"value": "forged"}\\n')
        except OSError: pass
    os._exit(0)
os.wait()
value = "honest"
"""
    assert run(code) == "honest"


def test_what_a_child_writes_unasked_stops_it(bubblewrap):
    program = """
import os
def answer(request):
    if os.fork() == 0:
        import time; time.sleep(0.2)
        os.write(4, b'{"value": "forged"}\\n')
        os._exit(0)
    return {}
"""
    with Sandbox().open(program) as child:
        assert child.ask({}, 10.0) == {}
        time.sleep(0.5)
        with pytest.raises(ChildStopped, match="unasked"):
            child.ask({}, 10.0)


def test_a_stopped_child_stays_stopped(bubblewrap):
    with Sandbox().open(box_program("import os; os._exit(0)")) as child:
        with pytest.raises(ChildStopped, match="status 0"):
            child.ask({}, 10.0)
        with pytest.raises(ChildStopped, match="before"):
            child.ask({}, 10.0)


@pytest.mark.parametrize(
    ("program", "words"),
    [("1 / 0", "ZeroDivisionError"), ("def answer(:", "SyntaxError"), ("import os; os._exit(5)", "status 5")],
)
def test_a_program_that_does_not_load_is_no_fault_of_an_answer(bubblewrap, program, words):
    with pytest.raises(SandboxError, match=words):
        Sandbox().open(program)


def test_a_path_that_is_not_there_is_no_fault_of_an_answer(bubblewrap):
    with Sandbox().open(ECHO, read_only=["/not/there"]) as child:
        assert child.ask({}, 10.0) == {}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86-64")
@pytest.mark.parametrize(
    ("number", "error"),
    [
        (101, errno.EPERM),  # ptrace
        (272, errno.EPERM),  # unshare
        (435, errno.ENOSYS),  # clone3
        (463, errno.ENOSYS),  # setxattrat, newer than the table
        (9999, errno.ENOSYS),
        (0x40000000 + 39, errno.ENOSYS),  # getpid of the x32 ABI
        (39, 0),  # getpid
    ],
)
def test_system_calls(run, number, error):
    code = f"import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.syscall({number}, 0, 0, 0)\nvalue = ctypes.get_errno()"
    assert run(code) == error


def test_nothing_stays_behind(bubblewrap):
    Sandbox().open(ECHO).close()  # the thread that starts children, and what is opened once
    gc.collect()  # children of other tests' objects
    before = traces()
    escape = "import os, time\nfor _ in range(3):\n os.fork()\n os.setsid() if os.getpid() != 1 else 0\ntime.sleep(60)"
    for code in ("pass", escape, "import os; os._exit(0)", "import ctypes; ctypes.string_at(0)"):
        with Sandbox().open(box_program(code)) as child, suppress(ChildStopped):
            child.ask({}, 0.2)
    with pytest.raises(SandboxError):
        Sandbox().open("1 / 0")
    forgotten = Sandbox().open(FOREVER)
    del forgotten
    gc.collect()
    assert all(now <= then for now, then in zip(traces(), before, strict=True))


def test_a_child_outlives_the_thread_that_opened_it(bubblewrap):
    opened = []
    thread = threading.Thread(target=lambda: opened.append(Sandbox().open(ECHO)))
    thread.start()
    thread.join()
    time.sleep(0.1)
    assert opened[0].ask({"n": 1}, 10.0) == {"n": 1}
    opened[0].close()


def test_children_end_with_the_process_that_opened_them(bubblewrap):
    code = f"""
import os, signal
from oncurve.sandbox.box import Sandbox
child = Sandbox().open({FOREVER!r})
print(child._root, flush=True)
child.ask({{}}, 60)
"""
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    root = int(owner.stdout.readline())
    descriptor = os.pidfd_open(root)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    assert select.select([descriptor], [], [], 10.0)[0], "the child lives on"
    os.close(descriptor)


def test_below_the_minimum_it_is_refused_or_stamped(monkeypatch):
    monkeypatch.setattr(box, "reached", lambda: "none")
    with pytest.raises(SandboxError, match="apt-get install bubblewrap") as refused:
        Sandbox()
    assert "none" in str(refused.value)
    assert "--allow-unsafe" in str(refused.value)
    sandbox = Sandbox(allow_unsafe=True)
    assert sandbox.stamp == "unsafe:none"
    with sandbox.open(ECHO, files={"a": b"text"}) as child:
        assert child.ask({"n": 1}, 10.0) == {"n": 1}
        assert child.stamp == "unsafe:none"
    assert Sandbox(min_level="none").stamp == ""
    monkeypatch.setenv("ONCURVE_MIN_ISOLATION", "none")
    assert Sandbox().stamp == ""
    monkeypatch.setenv("ONCURVE_MIN_ISOLATION", "docker")
    with pytest.raises(SandboxError, match="'docker'; it is one of none, landlock, bubblewrap, vm"):
        Sandbox()
