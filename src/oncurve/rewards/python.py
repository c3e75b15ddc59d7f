"""A reward function of the user's own, in worker processes with deadlines.

The function never enters the trainer's process: a worker imports it, gets plain JSON and returns plain JSON, which is
checked here. Whatever else it does (raise, hang, end its process, return what is no score) is a fault of the verifier.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from oncurve.config.rewards import PythonRules
from oncurve.errors import ConfigError
from oncurve.rewards.scores import NOT_GRADED
from oncurve.rewards.worker import LOAD_TIMEOUT_S
from oncurve.truths import truth_json
from oncurve.types import Rollout, Score, Task

Slug = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,40}$")]  # it becomes a part of a metric's name


def _utf8(text: str) -> str:
    text.encode()  # raises UnicodeEncodeError, a ValueError, for half a surrogate pair, which no record can hold
    return text


class VerifierFault(Exception):
    """An answer that could not be graded. `reason` is `timeout`, `crash`, `raised`, `result` or `not_graded`."""

    def __init__(self, reason: str, words: str):
        super().__init__(words)
        self.reason = reason


class _Returned(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    parts: dict[Slug, float] = {}
    extracted: Any = None
    evidence: Annotated[str, AfterValidator(_utf8)] = ""


class _Scored(_Returned):
    value: float
    correct: bool | None = None


class _Invalid(_Returned):
    invalid: Slug


class PythonVerifier:
    """Grades by a user's function. `version` is its name and the hash of its source file; safe to call from threads.

    Raises `ConfigError` where the function can't be loaded. Workers start when needed, and end with this object.
    """

    def __init__(self, rules: PythonRules):
        self._rules, self.num_threads = rules, rules.workers
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        try:
            worker = Worker(rules)
        except VerifierFault as fault:
            raise ConfigError(
                f'reward.function "{rules.function}" can\'t be loaded: {fault}\n'
                '    it is "FILE.py:NAME", the file relative to the working directory, "PACKAGE.MODULE:NAME", or the "NAME" of '
                "an entry point in the group oncurve.rewards"
            ) from None
        self.sha256 = worker.sha256
        self.version = f"{rules.function}/{worker.sha256[:12]}"
        self._idle.put(worker)

    def check(self, task: Task, rules: PythonRules) -> None:
        """What is true is for the function to know."""

    def grade(self, task: Task, answer: Rollout, rules: PythonRules) -> Score:
        """Score one answer; a fault of the function is a score of status `error`."""
        try:
            worker = self._worker()
            reply = worker.ask({"task": plain(task), "text": answer.text})
            self._idle.put(worker)
            if "fault" in reply:
                raise VerifierFault(reply["reason"], reply["fault"])
            return self._score(reply["returned"])
        except VerifierFault as fault:
            return Score("error", float("nan"), evidence=str(fault), reason=fault.reason, verifier=self.version)

    def _worker(self) -> "Worker":
        try:
            return self._idle.get_nowait()
        except Empty:
            worker = Worker(self._rules)
        if worker.sha256 != self.sha256:
            raise VerifierFault("crash", f"the file of {self._rules.function} changed during the run; undo the change")
        return worker

    def _score(self, returned: Any) -> Score:
        if returned is None:
            raise VerifierFault(NOT_GRADED, "the function returned None: it does not grade this answer")
        table = returned if isinstance(returned, dict) else {"value": returned}
        try:
            if "invalid" in table:
                found = _Invalid.model_validate(table)
                status, value, correct, reason = "invalid", self._rules.floor, False, found.invalid
            else:
                found = _Scored.model_validate(table)
                status, value, correct, reason = "scored", found.value, found.correct, ""
        except ValidationError as error:
            where = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
            raise VerifierFault("result", f"returned no score ({where})") from None
        return Score(
            status, value, correct, found.parts, found.extracted, found.evidence, reason, verifier=self.version
        )


def plain(task: Task) -> dict[str, Any]:
    """What a reward function is told of a task: id, kind, question, truth, options and the images' hashes, as plain JSON."""
    return {
        "id": task.id,
        "kind": task.kind,
        "question": "\n".join(message.text for message in task.messages if message.role == "user"),
        "truth": truth_json(task.truth),
        "options": dict(task.options),
        "image_sha256": [image.sha256 for image in task.images],
    }


class Worker:
    """One process with the function loaded, in a session of its own; grades one answer at a time.

    Raises `VerifierFault` where it does not load. It is killed, with all that it started, after a fault of its own,
    with this object, and at the interpreter's exit.
    """

    def __init__(self, rules: PythonRules):
        self._timeout_s = rules.timeout_s
        command = [sys.executable, "-P", "-B", "-m", "oncurve.rewards.worker", rules.function, str(rules.timeout_s)]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
            )
        except OSError as error:
            raise VerifierFault("crash", f"no worker can be started: {error.strerror}") from None
        self._kill = weakref.finalize(self, _kill, self._process)
        ready = self._reply(LOAD_TIMEOUT_S, "loading")
        if "fault" in ready:
            self._kill()
            raise VerifierFault("crash", ready["fault"])
        self.sha256: str = ready["sha256"]

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The worker's reply. Raises `VerifierFault` at the deadline, or where the process ends before."""
        with suppress(BrokenPipeError):  # the reply then says how the worker ended
            remaining = memoryview(json.dumps(request).encode() + b"\n")
            while remaining:
                remaining = remaining[self._process.stdin.write(remaining) :]
        return self._reply(self._timeout_s, "an answer")

    def _reply(self, timeout_s: float, what: str) -> dict[str, Any]:
        line, deadline, output = b"", time.monotonic() + timeout_s, self._process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self._kill()
                    raise VerifierFault("timeout", f"{what} took more than {timeout_s:g} s")
                if not (piece := output.read(1 << 16)):
                    raise VerifierFault("crash", f"the worker {self._end()} during {what}")
                line += piece
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            self._kill()
            raise VerifierFault("crash", f"the worker wrote no JSON during {what}") from None

    def _end(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        status = self._process.poll()
        self._kill()
        if status is None:
            return "closed its output"
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended itself with status {status}"


def _kill(process: subprocess.Popen) -> None:
    """End a worker with all processes of its session's group, and close its pipes."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()
