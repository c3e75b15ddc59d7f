"""The trusted program in the sandbox that runs one answer, in a fork of its own for every test. Standard library only.

Requests, one at a time (`oncurve.sandbox`): `{"source", "entry_point"}` first, which is compiled and not run;
`{"args", "kwargs"}` calls the function; `{"stdin"}` runs the source as a program. The reply's `outcome` is

    compiled, syntax, undefined        of the first request; nothing of the source has run
    returned                           `result` is the value as JSON text
    unplain, unholdable, raised        the value is no plain JSON; it is but can't be sent; `words` say what was raised
    wrote                              it was returned, but a file was opened for writing, or that was tried
    exited                             a program's `status` and `stdout`
    missing, output, forged            no result; too much output; something else than one result was written

and `left` is `files` where the answer left any behind, `full` where it also filled the disk, else empty.

The answer runs in the process that writes its result, so it can write what it likes. That is no gain: expected values
never come in here, so a result that is right was computed. What the outcomes rule out is confusion about which
bytes are a result: a fork has one pipe, and its one line must begin with a number that was drawn for it.
Everything that is called after the answer's code is held in a name of this module, out of reach of patched builtins.
"""

import builtins
import json
import os
import signal
import sys
from _json import encode_basestring_ascii as quoted
from collections import Counter, OrderedDict, defaultdict
from types import ModuleType

MAX_DEPTH = 64
MAX_RESULT = 1 << 20  # characters of JSON; also bytes of a program's output
MAX_WORDS = 200

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC

type_of, write, end_process, own_number = type, os.write, os._exit, os.getpid
int_text, float_text, nowhere_path, disk_of = int.__repr__, float.__repr__, os.devnull, os.statvfs
Everything, Overflow = BaseException, ValueError
items_of = dict.items
start_files = set(os.listdir("."))
source: str
entry_point: str | None


class Unplain(Exception):
    """A value that is not of a plain JSON type, exactly."""


class Unholdable(Exception):
    """A value of a plain type that no JSON text of bounded length and depth holds."""


class Encoder:
    """Writes null, bool, int, float, str, list, tuple (as a list) and object; of exactly these types, or a `dict` of
    `collections`.
    """

    def __init__(self):
        self.room = MAX_RESULT

    def text(self, value, depth=0):
        kind = type_of(value)
        if value is None or value is True or value is False:
            return self.fitting("null" if value is None else "true" if value is True else "false")
        if kind is str:
            return self.fitting(quoted(value))
        if kind is int:
            try:
                return self.fitting(int_text(value))
            except Overflow:
                raise Unholdable("an integer of more than 4300 digits") from None
        if kind is float:
            if value - value != 0:
                raise Unholdable(float_text(value))
            return self.fitting(float_text(value))
        is_object = kind is dict or kind is Counter or kind is defaultdict or kind is OrderedDict
        if kind is not list and kind is not tuple and not is_object:
            raise Unplain
        if depth == MAX_DEPTH:
            raise Unholdable(f"nested deeper than {MAX_DEPTH}")
        self.fitting("[]")
        if is_object:
            return "{" + ",".join([self.pair(key, item, depth + 1) for key, item in items_of(value)]) + "}"
        return "[" + ",".join([self.text(item, depth + 1) for item in value]) + "]"

    def pair(self, key, item, depth):
        if type_of(key) is not str:
            raise Unplain
        return self.text(key, depth) + ":" + self.text(item, depth)

    def fitting(self, written):
        self.room -= written.__len__() + 1
        if self.room < 0:
            raise Unholdable(f"longer than {MAX_RESULT} characters")
        return written


def answer(request):
    """The reply to one request: what `oncurve.sandbox` calls."""
    global source, entry_point
    if "source" in request:
        source, entry_point = request["source"], request["entry_point"]
        reply = one_line(compiles)
    elif "stdin" in request:
        reply = program(request["stdin"])
    else:
        reply = one_line(calls, request["args"], request["kwargs"])
    return reply | {"left": left_behind()}


def compiled():
    return compile(source, "answer.py", "exec", dont_inherit=True)


def compiles():
    try:
        names = compiled().co_names
    except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        return "syntax", words_of(error)
    return ("compiled" if entry_point is None or entry_point in names else "undefined"), ""


def calls(args, kwargs):
    code, module, encode, tried = compiled(), ModuleType("answer"), Encoder().text, []

    def watch(event, given):
        if event == "open" and given[2] & WRITING and given[0] != nowhere_path:
            tried.append(True)

    sys.modules["answer"] = module
    sys.addaudithook(watch)
    try:
        exec(code, module.__dict__)
        if entry_point not in module.__dict__:
            return "undefined", ""
        result = module.__dict__[entry_point](*args, **kwargs)
    except Everything as error:
        return "raised", words_of(error)
    try:
        return ("wrote", "") if tried and not disk_is_full() else ("returned", encode(result))
    except Unplain:
        return "unplain", ""
    except Unholdable as error:
        return "unholdable", error.args[0]


def runs():
    code, module = compiled(), ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding="utf-8")
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8")
    builtins.exit = builtins.quit = sys.exit
    sys.argv = ["answer.py"]
    status = 0
    try:
        exec(code, module.__dict__)
    except SystemExit as error:
        status = error.code if type_of(error.code) is int else 0 if error.code is None else 1
    except Everything:
        status = 1
    try:
        sys.stdout.flush()
    except Everything:
        status = status or 1
    end_process(status & 255)


def words_of(error):
    try:
        kind = type_of(error).__name__
        return f"{kind}: {error}"[:MAX_WORDS] if type_of(kind) is str else ""
    except Everything:
        return ""


def one_line(work, *given):
    """The outcome of `work(*given)` in a fork, from the one line that it may write."""
    token = os.urandom(8).hex()

    def tell():
        number = own_number()
        outcome, payload = work(*given)
        if own_number() != number:  # a process that the answer forked comes here too
            end_process(1)
        line = f"{token} {outcome} {payload if outcome == 'returned' else quoted(payload)}\n".encode()
        while line:
            line = line[write(3, line) :]
        end_process(0)

    nowhere = os.open(os.devnull, os.O_RDWR)
    process, reading = fork(tell, nowhere, nowhere)
    os.close(nowhere)
    written = read(reading, until=b"\n")
    status = end(process)
    if not written:
        return {"outcome": "missing", "words": f"the process ended with status {status} and no result"}
    text = written.decode("ascii", "replace")
    if not text.startswith(f"{token} ") or text.find("\n") != len(text) - 1:
        return {"outcome": "forged", "words": "something else than one result was written"}
    _, outcome, payload = text.split(" ", 2)
    if outcome == "returned":
        return {"outcome": outcome, "result": payload}
    return {"outcome": outcome, "words": json.loads(payload)}


def program(stdin):
    """The outcome of the source as a program in a fork, whose standard output is all that it has."""
    given = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
    with open(given, "wb", closefd=False) as file:
        file.write(stdin.encode("utf-8", "replace"))
    os.lseek(given, 0, os.SEEK_SET)
    process, reading = fork(runs, given, None)
    os.close(given)
    written = read(reading)
    status = end(process, wait=len(written) <= MAX_RESULT)
    if len(written) > MAX_RESULT:
        return {"outcome": "output", "words": f"more than {MAX_RESULT} bytes of output"}
    return {"outcome": "exited", "status": status, "stdout": written.decode("utf-8", "replace")}


def fork(work, stdin, stdout):
    """Run `work` in a process of its own: its number, and the pipe's end to read from.

    Its descriptors are 0 to 2, and the pipe: number 3, or standard output where `stdout` is None.
    """
    reading, writing = os.pipe()
    if process := os.fork():
        os.close(writing)
        return process, reading
    try:
        close_channel()  # noqa: F821  given by oncurve.sandbox
        os.dup2(stdin, 0)
        os.dup2(writing if stdout is None else stdout, 1)
        os.dup2(os.open(os.devnull, os.O_RDWR), 2)
        os.dup2(writing, 3)
        os.closerange(3 if stdout is None else 4, 256)
        work()
    finally:
        end_process(1)


def read(reading, until=None):
    """What is written, to its end, to the first byte `until`, or to a little more than the longest result."""
    written = b""
    while len(written) <= MAX_RESULT + MAX_WORDS and not (until and until in written):
        if not (piece := os.read(reading, 1 << 16)):
            break
        written += piece
    os.close(reading)
    return written


def end(process, wait=False):
    """The exit status of a process, which is killed unless we `wait` for its own end. All that it started goes too."""
    if not wait:
        os.kill(process, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    kill_others()  # noqa: F821  given by oncurve.sandbox, like close_channel
    return status


def left_behind():
    if not set(os.listdir(".")) - start_files:
        return ""
    return "full" if disk_is_full() else "files"


def disk_is_full():
    return not disk_of(".").f_bavail
