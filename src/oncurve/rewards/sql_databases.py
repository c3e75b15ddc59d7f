"""The databases of SQL tasks and the killable children that work on them."""

import base64
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from oncurve.errors import BrokenTruth
from oncurve.sandbox.box import Child, ChildStopped, Sandbox
from oncurve.sandbox.limits import MIB, Limits

BUILD_TIMEOUT_S = 60.0
GRACE_S = 5.0  # the child itself kills a query at its deadline; this is for a child that hangs
MAX_SOURCES = 128  # data sets whose databases are kept
FOREVER_S = 1e8
LIMITS = Limits(
    wall_s=FOREVER_S,
    cpu_s=FOREVER_S,
    memory_bytes=2048 * MIB,
    output_bytes=512 * MIB,
    scratch_bytes=512 * MIB,
    processes=64,
    open_files=256,
)


class Children:
    """Processes that run SQL in the sandbox, as many as there are threads that ask at a time.

    SQL is no code, so they run at whatever isolation level the machine reaches. Databases lie in `folder`, which the
    children can't write to where the sandbox is bubblewrap.
    """

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="oncurve-sql-", dir="/var/tmp")  # the sandbox has a /tmp of its own
        os.chmod(self.folder, 0o755)  # the sandbox's user is another where this one is root
        self._idle: SimpleQueue[Child] = SimpleQueue()
        self._starter = ThreadPoolExecutor(1)  # children die with the thread that started them
        weakref.finalize(self, _end, self._idle, self._starter, self.folder)

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The reply of `sql_child.answer`. Raises `ChildStopped` where the child itself fails."""
        try:
            child = self._idle.get_nowait()
        except Empty:
            child = self._starter.submit(self._open).result()
        reply = child.ask({**request, "timeout_s": timeout_s}, timeout_s + GRACE_S)
        self._idle.put(child)
        return reply

    def _open(self) -> Child:
        here = Path(__file__).parent
        return Sandbox(min_level="none").open(
            (here / "sql_child.py").read_text("utf-8"),
            limits=LIMITS,
            files={"sql_engines.py": (here / "sql_engines.py").read_bytes()},
            site_packages=True,
            read_only=[self.folder],
        )


def _end(idle: SimpleQueue, starter: ThreadPoolExecutor, folder: str) -> None:
    while not idle.empty():
        idle.get_nowait().close()
    starter.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Source:
    """The databases of one set-up, those derived from the first one by their seed, and what was found of truths on them."""

    engine: str
    given: tuple[str, ...]  # paths
    schema: list
    derive: Callable[[int], str | None]
    truths: dict[str, Any] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Databases:
    """Builds what the `setup` scripts or `databases` of rules name, each once. Safe to call from threads."""

    def __init__(self):
        self.children = Children()
        self._numbers = count()
        self._lock = threading.Lock()
        self._source = lru_cache(MAX_SOURCES)(self._build)

    def source(self, engine: str, setup: tuple[str, ...], databases: tuple[str, ...]) -> Source:
        """Raises `BrokenTruth` where a script or file is none of the engine's, or the schemas differ."""
        with self._lock:
            return self._source(engine, setup, databases)

    def _build(self, engine: str, setup: tuple[str, ...], databases: tuple[str, ...]) -> Source:
        folder = Path(self.children.folder, str(next(self._numbers)))
        folder.mkdir(0o755)
        given, schemas = [], []
        for i, script in enumerate(setup):
            reply = self._asked({"do": "create", "engine": engine, "script": script}, f"options.setup, database {i + 1}")
            given.append(_kept(folder / f"given{i}", reply))
            schemas.append(reply["schema"])
        for i, path in enumerate(databases):
            given.append(_copied(path, folder / f"given{i}"))
            request = {"do": "schema", "engine": engine, "database": given[-1]}
            schemas.append(self._asked(request, f"options.databases, {path}")["schema"])
        for i, schema in enumerate(schemas):
            if schema != schemas[0]:
                raise BrokenTruth(
                    f"database {i + 1} has another schema than the first: {_difference(schemas[0], schema)}; "
                    "all databases of a task have the same tables, columns and types"
                )

        @lru_cache(maxsize=None)
        def derive(seed: int) -> str | None:
            reply = self.children.ask(
                {"do": "derive", "engine": engine, "database": given[0], "seed": seed}, BUILD_TIMEOUT_S
            )
            return _kept(folder / f"derived{seed}", reply) if "file" in reply else None

        source = Source(engine, tuple(given), schemas[0], derive)
        weakref.finalize(source, shutil.rmtree, folder, ignore_errors=True)
        return source

    def _asked(self, request: dict[str, Any], where: str) -> dict[str, Any]:
        try:
            reply = self.children.ask(request, BUILD_TIMEOUT_S)
        except ChildStopped as stopped:
            raise BrokenTruth(f"{where}: {stopped}") from None
        if why := reply.get("failed") or reply.get("words"):
            raise BrokenTruth(f"{where}: {why}")
        return reply


def _kept(path: Path, reply: Mapping[str, Any]) -> str:
    path.write_bytes(base64.b64decode(reply["file"]))
    path.chmod(0o444)
    return str(path)


def _copied(path: str, target: Path) -> str:
    for log in (f"{path}-wal", f"{path}.wal"):
        if os.path.exists(log) and os.path.getsize(log):
            raise BrokenTruth(f"options.databases, {path}: {log} holds changes; close the database or checkpoint it")
    try:
        shutil.copyfile(path, target)
    except OSError as error:
        raise BrokenTruth(f"options.databases, {path}: {error.strerror}; paths are relative to {os.getcwd()}") from None
    target.chmod(0o444)
    return str(target)


def _difference(first: list, other: list) -> str:
    """Example: `table cats has columns (id INTEGER), not (id INTEGER, age INTEGER)`."""
    these, those = ({name: columns for name, *columns in schema} for schema in (first, other))
    for name in sorted(these.keys() | those.keys()):
        if name not in those or name not in these:
            return f"table {name} is missing in {'it' if name in these else 'the first'}"
        if these[name] != those[name]:
            return f"table {name} has columns {_columns(those[name])}, not {_columns(these[name])}"
    return "its tables stand in another order"


def _columns(columns: list) -> str:
    return "(" + ", ".join(" ".join(column) for column in columns) + ")"
