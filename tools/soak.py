"""Run hostile answers in the sandbox, one after the other in boxes of their own, and look for what they leave behind.

make soak ANSWERS=20000
python tools/soak.py --answers 20000 --out docs/results/soak.json

An answer is one of `HOSTILE`, chosen by a seed. Before and after, this process looks at the processes that come from it
(zombies too, and those whose parent has ended: it adopts them), its folder for temporary files, its open files, the
mounts, and its own memory. The exit status is 1 where anything is left.
"""

import argparse
import ctypes
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from oncurve.sandbox.box import ChildStopped, Limits, Sandbox
from oncurve.sandbox.child import PAGE_BYTES

DEADLINE_S = 0.2
MAX_GROWN_MIB = 16  # what this process may grow by; its allocator keeps some
PR_SET_CHILD_SUBREAPER = 36
CHUNK = 500
LIMITS = Limits(wall_s=10.0, cpu_s=5.0, memory_bytes=128 << 20, output_bytes=1 << 20, scratch_bytes=4 << 20)
PROGRAM = """
def answer(request):
    names = {}
    exec(request["run"], names)
    return {"value": names.get("value")}
"""
HOSTILE = {
    "exits": "import os; os._exit(0)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "recurses": "def f(): return f()\nf()",
    "spins": "while True: pass",
    "sleeps, deaf to signals": """
import signal, time
for number in set(signal.valid_signals()) - {9, 19}:
    try: signal.signal(number, signal.SIG_IGN)
    except OSError: pass
time.sleep(60)""",
    "forks without end": "import os\nwhile True:\n try: os.fork()\n except OSError: pass",
    "escapes": """
import os, time
for _ in range(3):
    os.fork()
    try: os.setsid()
    except OSError: pass
time.sleep(60)""",
    "leaves orphans, and answers": """
import os, time
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        time.sleep(60)
value = 1""",
    "leaves zombies, and answers": "import os\nfor _ in range(9):\n if os.fork() == 0: os._exit(0)\nvalue = 1",
    "stops its processes": "import os, time\nfor _ in range(3):\n if os.fork() == 0: os.kill(os.getpid(), 19)\ntime.sleep(60)",
    "starts threads": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()",
    "takes memory": "x = []\nwhile True: x.append(bytes(1 << 20))",
    "takes memory together": """
import os, time
for _ in range(2): os.fork()
x = bytes(50 << 20).replace(b"\\0", b"x")
time.sleep(60)""",
    "fills its folder": "for i in range(99): open(f'/tmp/{i}', 'wb').write(bytes(1 << 20))",
    "makes many files": "for i in range(100_000): open(f'/tmp/{i}', 'wb').close()",
    "opens files without end": "import os\nx = [os.pipe() for _ in range(999)]",
    "makes sockets": """
import socket
pairs = [socket.socketpair() for _ in range(20)]
named = socket.socket(socket.AF_UNIX)
named.bind("\\0name")
value = 1""",
    "answers without end": "value = 'x' * (8 << 20)",
    "floods the channel": "import os\nwhile True:\n try: os.write(4, b' ' * 65536)\n except OSError: pass",
    "forges an answer": "import os\nos.write(4, b'{\"value\": 1}\\n')\nvalue = 2",
    "answers no JSON": "import os\nos.write(4, b'[' * 50_000 + b'\\n')",
    "closes the channel": "import os, time\nos.closerange(0, 64)\ntime.sleep(60)",
    "kills all it can": "import os, time\nif os.fork() == 0: time.sleep(60)\nos.kill(1, 9)\nos.kill(-1, 9)\nvalue = 1",
    "writes where it can't": "open('/usr/x', 'w')",
    "is honest": "value = 42",
}


def traces() -> dict[str, set[str]]:
    """What there is that a box could have left, each by its name."""
    mine, tree = set(), [str(os.getpid())]
    while tree:
        for task in Path("/proc", tree.pop(), "task").iterdir():
            children = (task / "children").read_text("utf-8").split()
            mine.update(children)
            tree += children
    return {
        "processes": mine,
        "files": set(os.listdir(tempfile.gettempdir())),
        "open files": set(os.listdir("/proc/self/fd")),
        "mounts": set(Path("/proc/self/mountinfo").read_text("utf-8").splitlines()),
    }


def memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * PAGE_BYTES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--answers", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a file for the result as JSON")
    args = parser.parse_args()

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as tempfile.tempdir:
        found = soak(args)
    text = json.dumps(found, indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", "utf-8")
    return int(bool(found["left_behind"]) or found["memory_grown_mib"] > MAX_GROWN_MIB)


def soak(args: argparse.Namespace) -> dict[str, Any]:
    sandbox = Sandbox()

    def run(name: str) -> tuple[str, str]:
        try:
            with sandbox.open(PROGRAM, limits=LIMITS) as child:
                child.ask({"run": HOSTILE[name]}, DEADLINE_S)
        except ChildStopped as stopped:
            return name, stopped.reason
        return name, "answered"

    chosen = random.Random(args.seed).choices(list(HOSTILE), k=args.answers)
    ends: Counter[tuple[str, str]] = Counter()
    with ThreadPoolExecutor(args.workers) as threads:
        ends.update(threads.map(run, list(HOSTILE) * 2))  # what this process itself opens and allocates once
        before, memory, begin = traces(), memory_bytes(), time.monotonic()
        for done in range(0, args.answers, CHUNK):  # what waits in the pool is memory too
            ends.update(threads.map(run, chosen[done : done + CHUNK]))
            print(f"{min(done + CHUNK, args.answers)} of {args.answers} answers", file=sys.stderr, flush=True)
        seconds, grown = time.monotonic() - begin, memory_bytes() - memory
        left = {kind: sorted(there - before[kind]) for kind, there in traces().items() if there - before[kind]}
    return {
        "answers": args.answers,
        "workers": args.workers,
        "seconds": round(seconds, 1),
        "level": sandbox.level,
        "user": "root" if os.geteuid() == 0 else "ordinary",
        "kernel": platform.release(),
        "left_behind": left,
        "memory_grown_mib": round(grown / 2**20, 2),
        "ends": {
            name: {end: ends[key] for key in sorted(ends) if key[0] == name for end in key[1:]} for name in HOSTILE
        },
    }


if __name__ == "__main__":
    sys.exit(main())
