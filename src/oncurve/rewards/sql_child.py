"""What runs SQL: one process that is forked for each request, and kills what takes too long from outside.

Loaded by the sandbox beside `sql_engines.py`; standard library, DuckDB and psycopg only, nothing of Oncurve. Memory that
a query asks for is bounded by the kernel, its time by SIGKILL: an engine's own time-out does not interrupt everything.
"""

import base64
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, globals()["FILES"])  # the folder of what came with this program
from sql_engines import ENGINES, Failed, Refused, TooMuch, perturb, schema_of, words

MIB = 1 << 20
MAX_REPLY_BYTES = 256 * MIB  # a database that was built; a query's rows are far below


def answer(request: dict) -> dict:
    """Runs `request["do"]` in a process of its own, for `timeout_s` at most.

    The reply is the job's own, or `{"stopped": "timeout" | "memory", "words": …}`, `{"refused": reason, "words": …}`,
    `{"failed": words}`.
    """
    ENGINES[request["engine"]].load()
    source, target = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(source)
            globals()["close_channel"]()
            _write(target, json.dumps(_run(request)).encode())
        finally:
            os._exit(0)
    os.close(target)
    reply = _read(source, time.monotonic() + request["timeout_s"])
    os.close(source)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if reply is None:
        return {"stopped": "timeout", "words": f"the query ran for more than {request['timeout_s']:g} s"}
    if not reply:
        return {"stopped": "memory", "words": f"the engine was ended by signal {os.WTERMSIG(status)}"}
    return json.loads(reply)


def _run(request: dict) -> dict:
    try:
        return JOBS[request["do"]](ENGINES[request["engine"]], request)
    except Refused as refused:
        return {"refused": refused.reason, "words": str(refused)}
    except Failed as failed:
        return {"failed": str(failed)}
    except (MemoryError, TooMuch) as error:
        return {"stopped": "memory", "words": str(error) or "the query asked for more memory than it may have"}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {words(error)}"}


def _query(engine, request: dict) -> dict:
    """Rows of one SELECT on each database; a database on which it fails gives `{"failed": words}` in their place."""
    _limit(resource.RLIMIT_AS, engine.memory_mib * MIB)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CPU, int(request["timeout_s"]) + 2)
    return {"results": list(engine.results(request))}


def _limit(what: int, value: int) -> None:
    hard = resource.getrlimit(what)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))


def _create(engine, request: dict) -> dict:
    """A new database by a set-up script: `{"file": base64, "schema": …}`."""
    return _made(lambda path: engine.create(path, request["script"]))


def _derive(engine, request: dict) -> dict:
    """A copy of a database with other rows."""

    def make(path: str) -> list:
        shutil.copyfile(request["database"], path)
        with engine.editing(path) as run:
            perturb(engine, run, request["seed"])
            return engine.tables(run)

    return _made(make)


def _made(make) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        tables = make(path := os.path.join(folder, "database"))
        with open(path, "rb") as file:
            return {"file": base64.b64encode(file.read()).decode(), "schema": schema_of(tables)}


def _describe(engine, request: dict) -> dict:
    with engine.editing(request["database"], read_only=True) as run:
        return {"schema": schema_of(engine.tables(run))}


JOBS = {"query": _query, "create": _create, "derive": _derive, "describe": _describe}


def _write(target: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(target, rest) :]


def _read(source: int, deadline: float) -> bytes | None:
    """All that comes until the other end closes; none where that is later than the deadline."""
    data = bytearray()
    while len(data) <= MAX_REPLY_BYTES:
        if not select.select([source], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return None
        if not (piece := os.read(source, MIB)):
            return bytes(data)
        data += piece
    return b""
