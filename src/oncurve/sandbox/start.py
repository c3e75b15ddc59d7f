"""What runs first inside the box: limits itself, loads the program, and serves its `answer`.

Runs as `python -c`; standard library only, nothing of Oncurve is inside. JSON lines come in and go out; the first one
that comes has the settings and the program's source.
"""

import _thread
import faulthandler
import json
import os
import resource
import select
import signal
import sys
from contextlib import suppress

OUT_OF_MEMORY = 77  # the exit status that says so


def main() -> None:
    requests, replies = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    settings = json.loads(requests.readline())
    for name, limits in settings["limits"].items():
        resource.setrlimit(getattr(resource, name), limits)
    for source, names in settings["walls"]:
        exec(compile(source, "walls", "exec"), {"__name__": "walls", **names})  # before there is a second thread
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # of itself, process 1 of a box hears no signal from inside
    alone = os.getpid() == 1

    def watch() -> None:
        owner = select.poll()
        owner.register(requests, 0)
        owner.poll()  # until nobody has the other end: the process that opened this box is no more
        if not alone:
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    _thread.start_new_thread(watch, ())
    faulthandler.dump_traceback_later(settings["wall_s"], exit=True, file=nowhere)  # where C code stops all threads

    def close_channel() -> None:
        os.close(requests.fileno())
        os.close(replies)

    def kill_others() -> None:
        if alone:
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)  # whatever group or session they went to
        with suppress(ChildProcessError):
            while os.waitpid(-1, 0 if alone else os.WNOHANG)[0]:
                pass

    def say(reply: dict) -> None:
        rest = memoryview(json.dumps(reply).encode() + b"\n")
        while rest:
            rest = rest[os.write(replies, rest) :]

    sys.path += settings["path"]
    program = {"__name__": "__main__", "FILES": settings["files"]}
    program |= {"close_channel": close_channel, "kill_others": kill_others}
    exec(compile(settings["program"], "program", "exec"), program)
    os.dup2(nowhere, 2)
    say({"ready": True})
    for line in requests:
        say(program["answer"](json.loads(line)))


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
