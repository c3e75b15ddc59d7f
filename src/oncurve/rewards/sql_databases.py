"""The databases of SQL tasks and the killable children that query them."""

import base64
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

from oncurve.config.rewards import SqlRules
from oncurve.errors import BrokenTruth
from oncurve.rewards.sql_postgres import Server, ServerDatabases
from oncurve.sandbox.box import Child, ChildStopped, Sandbox
from oncurve.sandbox.limits import MIB, Limits

BUILD_TIMEOUT_S = 60.0
GRACE_S = 5.0  # the child itself kills a query at its deadline; this is for a child that hangs
MAX_SOURCES = 128  # sets of databases that are kept
FOREVER_S = 1e8
LIMITS = Limits(
    wall_s=FOREVER_S,
    cpu_s=FOREVER_S,
    memory_bytes=2048 * MIB,
    output_bytes=512 * MIB,
    scratch_bytes=512 * MIB,
    processes=1024,
    open_files=256,
)


class Children:
    """Processes that run SQL in the sandbox, as many as there are threads that ask at a time.

    SQL is no code, so they run at whatever isolation level the machine reaches; those for PostgreSQL need the network
    and get none. Databases lie in `folder`, which a child can't write to where the sandbox is bubblewrap.
    """

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="oncurve-sql-", dir="/var/tmp")  # the sandbox has a /tmp of its own
        os.chmod(self.folder, 0o755)  # the sandbox's user is another where this one is root
        self._idle: dict[bool, SimpleQueue[Child]] = {False: SimpleQueue(), True: SimpleQueue()}
        self._starter = ThreadPoolExecutor(1)  # a child dies with the thread that started it
        weakref.finalize(self, _end, self._idle, self._starter, self.folder)

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The reply of `sql_child.answer`. Raises `ChildStopped` where the child itself fails."""
        idle = self._idle[online := request["engine"] == "postgres"]
        try:
            child = idle.get_nowait()
        except Empty:
            child = self._starter.submit(self._open, online).result()
        reply = child.ask({**request, "timeout_s": timeout_s}, timeout_s + GRACE_S)
        idle.put(child)
        return reply

    def _open(self, online: bool) -> Child:
        sandbox, here = Sandbox(min_level="none"), Path(__file__).parent
        if online:
            sandbox.level = "none"
        return sandbox.open(
            (here / "sql_child.py").read_text("utf-8"),
            limits=LIMITS,
            files={"sql_engines.py": (here / "sql_engines.py").read_bytes()},
            site_packages=True,
            read_only=[self.folder],
        )


def _end(idle: dict[bool, SimpleQueue], starter: ThreadPoolExecutor, folder: str) -> None:
    for children in idle.values():
        while not children.empty():
            children.get_nowait().close()
    starter.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


class Files:
    """Databases of SQLite or DuckDB in a folder of their own; every statement on them runs in a child."""

    def __init__(self, children: Children, engine: str, folder: Path):
        folder.mkdir(0o755)
        self.login: dict[str, str] = {}
        self._children, self._engine, self._folder, self._numbers = children, engine, folder, count()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def create(self, script: str, where: str) -> tuple[str, list]:
        """A database by a set-up script, and its schema. Raises `BrokenTruth` that names `where`."""
        reply = self._built(where, do="create", script=script)
        return self._kept(reply), reply["schema"]

    def copy(self, path: str, where: str) -> tuple[str, list]:
        for log in (f"{path}-wal", f"{path}.wal"):
            if os.path.exists(log) and os.path.getsize(log):
                raise BrokenTruth(f"{where}: changes wait in {log}; close the database or checkpoint it")
        target = self._next()
        try:
            shutil.copyfile(path, target)
        except OSError as error:
            raise BrokenTruth(f"{where}: {error.strerror}; paths are relative to {os.getcwd()}") from None
        target.chmod(0o444)
        return str(target), self._built(where, do="describe", database=str(target))["schema"]

    def derive(self, database: str, seed: int) -> str | None:
        try:
            return self._kept(self._built("", do="derive", database=database, seed=seed))
        except BrokenTruth:
            return None

    def stop(self, query: str) -> None:
        """All of a query ends with its process."""

    def _built(self, where: str, **request: Any) -> dict[str, Any]:
        try:
            reply = self._children.ask({"engine": self._engine, **request}, BUILD_TIMEOUT_S)
        except ChildStopped as stopped:
            raise BrokenTruth(f"{where}: {stopped}") from None
        if fault := reply.get("failed") or reply.get("words"):
            raise BrokenTruth(f"{where}: {fault}")
        return reply

    def _kept(self, reply: Mapping[str, Any]) -> str:
        path = self._next()
        path.write_bytes(base64.b64decode(reply["file"]))
        path.chmod(0o444)
        return str(path)

    def _next(self) -> Path:
        return self._folder / str(next(self._numbers))


class Source:
    """The databases that rules name, those derived from the first of them, and what was found of truths on them.

    Raises `BrokenTruth` where a script or file is none of the engine's, or the schemas differ.
    """

    def __init__(self, rules: SqlRules, place: Files | ServerDatabases, children: Children):
        self.engine, self._place, self._children = rules.engine, place, children
        made = [place.create(script, f"options.setup, database {i}") for i, script in enumerate(rules.setup, 1)]
        made += [place.copy(path, f"options.databases, {path}") for path in rules.databases]
        for i, (_, schema) in enumerate(made, 1):
            if schema != made[0][1]:
                raise BrokenTruth(
                    f"database {i} has another schema than the first: {_difference(made[0][1], schema)}; "
                    "all databases of a task have the same tables, columns and types"
                )
        self.given = tuple(database for database, _ in made)
        self.derive = cache(lambda seed: place.derive(self.given[0], seed))
        self.truths: dict[str, Any] = {}
        self.lock = threading.RLock()

    def run(self, sql: str, databases: Sequence[str], timeout_s: float) -> dict[str, Any]:
        """The child's reply to one query on each of the databases."""
        query = f"oncurve_{uuid4().hex}"
        request = {"do": "query", "engine": self.engine, "databases": list(databases), "sql": sql, "name": query}
        reply = self._children.ask(request | self._place.login, timeout_s)
        if "stopped" in reply:
            self._place.stop(query)
        return reply


class Databases:
    """The sources of all tasks, each built once while it is in use. Safe to call from threads."""

    def __init__(self):
        self._children, self._numbers, self._lock = Children(), count(), threading.Lock()
        self._source = lru_cache(MAX_SOURCES)(self._built)
        self._server = cache(Server)

    def source(self, rules: SqlRules) -> Source:
        with self._lock:
            return self._source(rules.model_copy(update={"timeout_s": 1.0, "floor": 0.0}))

    def _built(self, rules: SqlRules) -> Source:
        if rules.engine == "postgres":
            place = ServerDatabases(self._server(rules.address))
        else:
            place = Files(self._children, rules.engine, Path(self._children.folder, str(next(self._numbers))))
        return Source(rules, place, self._children)


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
