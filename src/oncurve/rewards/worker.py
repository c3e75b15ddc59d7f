"""The process that runs a reward function of the user's: JSON lines in, JSON lines out. Standard library only.

`python -m oncurve.rewards.worker FUNCTION TIMEOUT_S` loads FUNCTION, says `{"sha256": …}` of its source file or
`{"fault": …}`, then answers each `{"task": …, "text": …}` with `{"returned": …}` or `{"reason": …, "fault": …}`. What
the function prints goes to standard error. The process ends with its standard input, and by its own watchdog where its
parent was killed in the middle of an answer.
"""

import dataclasses
import faulthandler
import importlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

GROUP = "oncurve.rewards"  # of entry points
LOAD_TIMEOUT_S = 120.0
MAX_WORDS = 500  # characters of what an exception says


class LoadFault(Exception):
    """Why a function can't be loaded, in words."""


def load(function: str) -> tuple[Callable[[dict, str], Any], str]:
    """The function named `FILE.py:NAME`, `PACKAGE.MODULE:NAME`, or as an entry point of the group `oncurve.rewards`.

    With it comes the SHA-256 of its source file. A function with TRL's signature is made one of `(task, text)`. Raises
    `LoadFault` where there is no such file, module, function or entry point; whatever the import raises comes through.
    """
    home, colon, name = function.rpartition(":")
    sys.path.insert(0, os.getcwd())
    if not colon:
        home, found = _entry_point(name)
        module = sys.modules[home]
    else:
        module = _module_of_file(Path(home)) if home.endswith(".py") else importlib.import_module(home)
        found = getattr(module, name, None)
    if not callable(found):
        there = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        close = get_close_matches(name, there, 1)
        meant = f"did you mean {close[0]}?" if close else f"it has: {', '.join(there) or 'no function'}"
        raise LoadFault(f"{home} has no function {name}; {meant}")
    if not (source := getattr(module, "__file__", None)):
        raise LoadFault(f"{home} has no source file; name a function that is written in Python")
    return _of_task_and_text(found), sha256(Path(source).read_bytes()).hexdigest()


def _entry_point(name: str) -> tuple[str, Any]:
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        raise LoadFault(
            f"no installed package has an entry point {name} in {GROUP}; there are: {', '.join(found) or 'none'}"
        )
    return found[name].module, found[name].load()


def _of_task_and_text(function: Callable[..., Any]) -> Callable[[dict, str], Any]:
    """`function` itself, or where it takes `completions`, as TRL's reward functions do, a call with lists of one.

    Columns are the task's id, kind, question, options and images' hashes, its whole truth as `truth`, and the truth's own
    keys. What a function has no parameter for is left out, unless it takes `**columns`.
    """
    parameters = inspect.signature(function).parameters
    if "completions" not in parameters:
        return function
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    def call(task: dict, text: str) -> Any:
        columns = {**task["truth"], **task, "prompts": task["question"], "completions": text}
        returned = function(**{name: [value] for name, value in columns.items() if takes_all or name in parameters})
        return _only(_settled(returned))

    return call


def _only(returned: Any) -> Any:
    if not isinstance(returned, list) or len(returned) != 1:
        raise TypeError(f"one number in a list was expected for one completion, not {returned!r}"[:MAX_WORDS])
    return returned[0]


def _settled(returned: Any) -> Any:
    """What an async function comes to."""
    if not inspect.iscoroutine(returned):
        return returned
    import asyncio  # half of a worker's start, and few functions need it

    return asyncio.run(returned)


def _plain(returned: Any) -> Any:
    """A `Score` as the table that says the same."""
    if not dataclasses.is_dataclass(returned) or isinstance(returned, type):
        return returned
    table = dataclasses.asdict(returned)
    if table.get("status") == "error":
        raise RuntimeError(f"it gave a score of status error: {table.get('evidence')}")
    kept = {key: table[key] for key in ("parts", "extracted", "evidence") if key in table}
    if table.get("status") == "invalid":
        return {"invalid": table["reason"], **kept}
    return {"value": table["value"], "correct": table["correct"], **kept}


def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise LoadFault(f"there is no file {path} in {os.getcwd()}")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location("reward_function", path.resolve())
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer(function: Callable[[dict, str], Any], task: dict, text: str) -> str:
    """What the function returns for one answer, or its fault, as a line of JSON."""
    try:
        returned = _plain(_settled(function(task, text)))
    except BaseException as error:  # also SystemExit: the worker goes on
        return json.dumps({"reason": "raised", "fault": words(error)})
    try:
        return json.dumps({"returned": returned}, allow_nan=False)
    except BaseException as error:
        return json.dumps({"reason": "result", "fault": f"returned a {type(returned).__name__}: {words(error)}"})


def words(error: BaseException) -> str:
    """Example: `ValueError: no box (my_rewards.py, line 12)`."""
    if isinstance(error, LoadFault):
        return str(error)
    text = "".join(traceback.format_exception_only(error)).strip()[:MAX_WORDS]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    own = [frame for frame in frames if not frame.filename.startswith("<")]
    place = f" ({os.path.basename(own[-1].filename)}, line {own[-1].lineno})" if own else ""
    return (text + place).encode("utf-8", "backslashreplace").decode()


def serve(function: str, timeout_s: float, requests: TextIO, replies: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)

    def watch(limit_s: float) -> None:
        faulthandler.dump_traceback_later(2 * limit_s + 1, exit=True, file=nowhere)

    def say(line: str) -> None:
        faulthandler.cancel_dump_traceback_later()
        print(line, file=replies, flush=True)

    watch(LOAD_TIMEOUT_S)
    try:
        score, digest = load(function)
    except BaseException as error:
        return say(json.dumps({"fault": words(error)}))
    say(json.dumps({"sha256": digest}))
    for line in requests:
        watch(timeout_s)
        say(answer(score, **json.loads(line)))
    watch(timeout_s)  # threads that the function left behind don't keep the process


if __name__ == "__main__":
    own_input, own_output = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    serve(sys.argv[1], float(sys.argv[2]), own_input, own_output)
