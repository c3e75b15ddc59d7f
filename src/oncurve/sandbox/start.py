"""What runs first inside the box: gives up what is left of its rights, loads the program, and serves its `answer`.

Runs as `python -c`; standard library only, nothing of Oncurve is inside. JSON lines come in and go out; the first one
has the settings and the program's source.
"""

import json
import os
import resource
import sys

OUT_OF_MEMORY = 77  # the exit status that says so


def main() -> None:
    requests, replies = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    settings = json.loads(requests.readline())
    if uid := settings["uid"]:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    for name, limits in settings["limits"].items():
        resource.setrlimit(getattr(resource, name), limits)

    def close_channel() -> None:
        os.close(requests.fileno())
        os.close(replies)

    def say(reply: dict) -> None:
        rest = memoryview(json.dumps(reply).encode() + b"\n")
        while rest:
            rest = rest[os.write(replies, rest) :]

    sys.path += settings["path"]
    program = {"__name__": "__main__", "FILES": settings["files"], "close_channel": close_channel}
    exec(compile(settings["program"], "program.py", "exec"), program)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    say({"ready": True})
    for line in requests:
        say(program["answer"](json.loads(line)))


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
