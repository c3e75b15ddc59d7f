"""SQLite, DuckDB and PostgreSQL as the killable child uses them: build, describe and perturb a database, run one SELECT.

Each engine's own parser judges what one SELECT is, in the child, so that no other grammar rejects what the engine takes.
"""

import contextlib
import random
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import md5
from typing import Any

MAX_ROWS = 100_000
MAX_BYTES = 16 << 20
MAX_DEPTH = 32  # of lists in lists
MAX_DIGITS = 300  # of a decimal that is read as a number
MAX_SHUFFLED = 40  # columns of a table; SQLite joins 64 tables at most

Run = Callable[..., list[tuple]]  # runs one statement with its parameters


class Refused(Exception):
    """Not one SELECT. `reason` is `syntax`, `not_select` or `several_statements`."""

    def __init__(self, reason: str, words: str):
        super().__init__(words)
        self.reason = reason


class Failed(Exception):
    """The engine could not run it: no such table, say."""


class TooMuch(Exception):
    """More rows or bytes than a result may have, or more memory than there is for it."""


@dataclass
class Table:
    """`keys` are the columns of a primary key, or of a unique one of several columns: their values stay in their rows.

    `foreign` has (columns, parent, its columns).
    """

    name: str
    columns: list[tuple[str, str]]  # name, type
    keys: set[str] = field(default_factory=set)
    foreign: list[tuple[list[str], str, list[str]]] = field(default_factory=list)


def schema_of(tables: list[Table]) -> list[list]:
    """What databases of one task share: `[name, [column, type], …]` of each table."""
    return [[table.name, *map(list, table.columns)] for table in tables]


def perturb(engine, run: Run, seed: int) -> None:
    """Give a database other rows under the same schema.

    In each table the values of every column that is no key are shuffled among the rows and a quarter of the rows goes;
    rows whose declared parent went, go too. Odd seeds also move the values of a random half of those columns that are no
    part of a reference: numbers by a constant, texts that start with a letter by a suffix, so that equal values stay equal
    and different ones different.
    """
    draw = random.Random(seed)
    tables = engine.tables(run)
    engine.loosen(run, tables)
    links = [(table.name, *foreign) for table in tables for foreign in table.foreign]
    referring = {(child, name) for child, columns, _, _ in links for name in columns}
    referring |= {(parent, name) for _, _, parent, columns in links for name in columns}
    for table in tables:
        free = [column for column in table.columns if column[0] not in table.keys]
        moved = {name for name, _ in free if draw.random() < seed % 2 / 2 and (table.name, name) not in referring}
        by, suffix = draw.choice([-20, -5, -2, -1, 1, 2, 5, 20]), draw.choice("aeiou")
        source = f"(SELECT *, row_number() OVER () AS oncurve_n FROM {quoted(table.name)}) AS t"
        joins, values = [], {name: f"k.{quoted(name)}" for name, _ in table.columns}
        for i, (name, kind) in enumerate(free):
            value = f"t.{quoted(name)}"
            value = engine.shifted(value, kind, by, suffix) if name in moved else value
            if i >= MAX_SHUFFLED:
                continue
            joins.append(
                f"JOIN (SELECT {value} AS v, {_rank(f'{seed}/{i}')} AS n FROM {source}) AS p{i} ON p{i}.n = k.oncurve_n"
            )
            values[name] = f"p{i}.v"
        listed = ", ".join(f"{value} AS {quoted(name)}" for name, value in values.items())
        ((count,),) = run(f"SELECT count(*) FROM {quoted(table.name)}")
        kept = f"(SELECT t.*, {_rank(f'{seed}/rows')} AS oncurve_r FROM {source}) AS k"
        least = (count + 2) // 4
        engine.replace(run, table, f"SELECT {listed} FROM {kept} {' '.join(joins)} WHERE k.oncurve_r > {least}")
    for _ in links:
        for child, columns, parent, parents in links:
            same = " AND ".join(f"p.{quoted(p)} = c.{quoted(c)}" for c, p in zip(columns, parents, strict=True))
            there = " AND ".join(f"c.{quoted(c)} IS NOT NULL" for c in columns)
            run(
                f"DELETE FROM {quoted(child)} AS c WHERE {there} "
                f"AND NOT EXISTS (SELECT 1 FROM {quoted(parent)} AS p WHERE {same})"
            )


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _rank(salt: str) -> str:
    """A place of each row in an order that looks random and is the same every time."""
    return f"row_number() OVER (ORDER BY md5(CAST(t.oncurve_n AS VARCHAR) || '{salt}'))"


def fetched(names: list[str], batches: Iterator[list[tuple]]) -> dict[str, Any]:
    """A result as plain JSON. Raises `TooMuch` beyond `MAX_ROWS` or `MAX_BYTES`."""
    rows, size = [], 0
    for batch in batches:
        for row in batch:
            plain = [cell(value) for value in row]
            size += sum(len(value) if isinstance(value, str) else 8 for value in plain)
            rows.append(plain)
        if len(rows) > MAX_ROWS or size > MAX_BYTES:
            raise TooMuch(f"more than {MAX_ROWS} rows or {MAX_BYTES >> 20} MiB")
    return {"width": len(names), "rows": rows}


def cell(value: Any, depth: int = 0) -> Any:
    """None, bool, int, float and str as they are, a decimal as a number, all else as `{type: …}`.

    Raises `TooMuch` for a value that is too long, or nested too deep.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (bytes, memoryview)):
        if len(value) > MAX_BYTES:
            raise TooMuch(f"a value of more than {MAX_BYTES >> 20} MiB")
        return {"bytes": bytes(value).hex()}
    if isinstance(value, Decimal) and not (value.is_finite() and value.adjusted() > MAX_DIGITS):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if depth == MAX_DEPTH:
        raise TooMuch(f"a value nested deeper than {MAX_DEPTH}")
    if isinstance(value, (list, tuple)):
        return {"list": [cell(item, depth + 1) for item in value]}
    if isinstance(value, dict):
        return {"struct": [[cell(key, depth + 1), cell(item, depth + 1)] for key, item in value.items()]}
    return {type(value).__name__: str(value)}


def words(error: BaseException) -> str:
    return " ".join(str(error).split())[:300].encode("utf-8", "replace").decode()


class Sqlite:
    memory_mib = 512
    allowed = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    syntax = re.compile(r"syntax error|incomplete input|unrecognized token|parser stack overflow|may not be modified")

    @staticmethod
    def load() -> None:
        """What a fork should find loaded."""

    @staticmethod
    def create(path: str, script: str) -> list[Table]:
        try:
            with contextlib.closing(sqlite3.connect(path)) as connection:
                connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
                connection.executescript(script)
                connection.commit()
        except (sqlite3.Error, ValueError) as error:
            raise Failed(words(error)) from None
        with Sqlite.editing(path) as run:
            return Sqlite.tables(run)

    @staticmethod
    @contextlib.contextmanager
    def editing(path: str, read_only: bool = False) -> Iterator[Run]:
        def run(sql: str, *values: Any) -> list[tuple]:
            return connection.execute(sql, values).fetchall()

        uri = f"file:{path}?mode=ro&immutable=1" if read_only else f"file:{path}"
        try:
            with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
                connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
                connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF" if not read_only else "")
                connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
                connection.create_function("md5", 1, lambda text: md5(text.encode()).hexdigest(), deterministic=True)
                yield run
        except sqlite3.Error as error:
            raise Failed(words(error)) from None

    @staticmethod
    def tables(run: Run) -> list[Table]:
        found = []
        names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        for (name,) in run(names + " ORDER BY name"):
            columns = run("SELECT name, upper(type), pk FROM pragma_table_xinfo(?) WHERE hidden = 0", name)
            unique = run(
                'SELECT i.name FROM pragma_index_list(?) AS l, pragma_index_info(l.name) AS i WHERE l."unique" '
                "AND (SELECT count(*) FROM pragma_index_info(l.name)) > 1",
                name,
            )
            keys = {column for column, _, pk in columns if pk} | {column for (column,) in unique}
            links: dict[int, tuple[str, list, list]] = {}
            for number, parent, child, there in run(
                'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq', name
            ):
                links.setdefault(number, (parent, [], []))[1].append(child)
                links[number][2].append(there)
            foreign = [(of, parent, to) for parent, of, to in links.values() if None not in to]
            found.append(Table(name, [(column, kind) for column, kind, _ in columns], keys, foreign))
        return found

    @staticmethod
    def shifted(value: str, kind: str, by: int, suffix: str) -> str:
        return (
            f"CASE typeof({value}) WHEN 'integer' THEN {value} + {by} WHEN 'real' THEN {value} + {by} "
            f"WHEN 'text' THEN CASE WHEN {value} GLOB '[A-Za-z]*' THEN {value} || '{suffix}' ELSE {value} END "
            f"ELSE {value} END"
        )

    @staticmethod
    def loosen(run: Run, tables: list[Table]) -> None:
        """Triggers would act on the change; foreign keys are off unless asked for."""
        for (trigger,) in run("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            run(f"DROP TRIGGER {quoted(trigger)}")

    @staticmethod
    def replace(run: Run, table: Table, query: str) -> None:
        columns = ", ".join(quoted(name) for name, _ in table.columns)
        run(f"CREATE TEMP TABLE oncurve_new AS {query}")
        run(f"DELETE FROM {quoted(table.name)}")
        run(f"INSERT OR IGNORE INTO {quoted(table.name)} ({columns}) SELECT {columns} FROM oncurve_new")
        run("DROP TABLE oncurve_new")

    @staticmethod
    def results(request: dict) -> Iterator[dict]:
        for path in request["databases"]:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
                yield Sqlite._result(connection, request["sql"])

    @staticmethod
    def _result(connection: sqlite3.Connection, sql: str) -> dict:
        writes = []

        def authorize(action: int, first: str | None, *_: str | None) -> int:
            """Virtual tables such as json_each name their schema through an update of sqlite_master."""
            if action in Sqlite.allowed or (action == sqlite3.SQLITE_UPDATE and first == "sqlite_master"):
                return sqlite3.SQLITE_OK
            if action in (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE):
                writes.append(action)
            return sqlite3.SQLITE_DENY

        connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        connection.executescript("PRAGMA query_only = 1; PRAGMA temp_store = 2; PRAGMA trusted_schema = 0")
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_authorizer(authorize)
        try:
            cursor = connection.execute(sql)
            names = [column[0] for column in cursor.description or ()]
            return fetched(names, iter(lambda: cursor.fetchmany(1000), []))
        except (TooMuch, MemoryError):
            raise
        except Exception as error:  # the engine's, or what Python says of a value that it can't hold
            if writes:
                raise Refused("not_select", "it writes: only a SELECT is asked for") from None
            if "one statement at a time" in str(error):
                raise Refused("several_statements", "more than one statement") from None
            if Sqlite.syntax.search(str(error)):
                raise Refused("syntax", words(error)) from None
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_FULL):
                raise TooMuch(words(error)) from None
            return {"failed": words(error)}


class DuckDB:
    """One instance in memory, made before the fork, which takes 15 ms; a fork attaches the files that it works on."""

    memory_mib = 1024
    connection: Any = None

    @staticmethod
    def load() -> None:
        """No thread is started with the instance, so that a fork has all of it."""
        import duckdb

        if DuckDB.connection is None:
            single = {"threads": 1} | ({"async_threads": 0} if int(duckdb.__version__.split(".")[0]) >= 2 else {})
            extensions = dict.fromkeys(("autoinstall_known_extensions", "autoload_known_extensions"), False)
            limits = {"memory_limit": "256MB", "allow_community_extensions": False, "python_enable_replacements": False}
            DuckDB.connection = duckdb.connect(":memory:", config=single | extensions | limits)

    @staticmethod
    def _attach(paths: list[str], mode: str) -> None:
        """As `database_0` and so on; then nothing else can be opened, and no setting changed."""
        for i, path in enumerate(paths):
            path = path.replace("'", "''")
            DuckDB.connection.execute(f"ATTACH '{path}' AS database_{i} ({mode})")
        DuckDB.connection.execute("SET enable_external_access = false; SET lock_configuration = true; USE database_0")

    @staticmethod
    def create(path: str, script: str) -> list[Table]:
        with DuckDB.editing(path) as run:
            run(script)
            return DuckDB.tables(run)

    @staticmethod
    @contextlib.contextmanager
    def editing(path: str, read_only: bool = False) -> Iterator[Run]:
        import duckdb

        try:
            DuckDB._attach([path], "READ_ONLY" if read_only else "READ_WRITE")
            yield lambda sql, *values: DuckDB.connection.execute(sql, values or None).fetchall()
            DuckDB.connection.execute("USE memory; DETACH database_0")
        except duckdb.Error as error:
            raise Failed(words(error)) from None

    @staticmethod
    def tables(run: Run) -> list[Table]:
        found: dict[str, Table] = {}
        for name, column, kind in run(
            "SELECT c.table_name, c.column_name, c.data_type FROM duckdb_columns() AS c JOIN duckdb_tables() AS t "
            "USING (database_name, schema_name, table_name) "
            "WHERE c.database_name = current_database() AND c.schema_name = 'main' AND NOT t.temporary "
            "ORDER BY c.table_name, c.column_index"
        ):
            found.setdefault(name, Table(name, [])).columns.append((column, kind))
        for name, kind, columns, parent, parents in run(
            "SELECT table_name, constraint_type, constraint_column_names, referenced_table, referenced_column_names "
            "FROM duckdb_constraints() WHERE database_name = current_database() AND schema_name = 'main'"
        ):
            if kind == "PRIMARY KEY" or (kind == "UNIQUE" and len(columns) > 1):
                found[name].keys |= set(columns)
            elif kind == "FOREIGN KEY":
                found[name].foreign.append((columns, parent, parents))
        return list(found.values())

    @staticmethod
    def shifted(value: str, kind: str, by: int, suffix: str) -> str:
        if re.match(r"U?(TINY|SMALL|BIG|HUGE)?INT|FLOAT|DOUBLE|DECIMAL", kind):
            return f"coalesce(TRY_CAST({value} + {by} AS {kind}), {value})"
        return (
            f"CASE WHEN {value} ~ '[A-Za-z].*' THEN {value} || '{suffix}' ELSE {value} END"
            if kind == "VARCHAR"
            else value
        )

    @staticmethod
    def loosen(run: Run, tables: list[Table]) -> None:
        """Tables without constraints, which no query sees and which would forbid the change; children before parents."""
        import duckdb

        waiting = list(tables)
        for table in [table for _ in tables for table in tables]:
            if table in waiting:
                with contextlib.suppress(duckdb.DependencyException, duckdb.CatalogException):
                    DuckDB.replace(run, table, f"SELECT * FROM {quoted(table.name)}")
                    waiting.remove(table)

    @staticmethod
    def replace(run: Run, table: Table, query: str) -> None:
        run(f"CREATE OR REPLACE TABLE {quoted(table.name)} AS {query}")

    @staticmethod
    def results(request: dict) -> Iterator[dict]:
        DuckDB._attach(request["databases"], "READ_ONLY")
        for i in range(len(request["databases"])):
            DuckDB.connection.execute(f"USE database_{i}")
            yield DuckDB._result(DuckDB.connection, request["sql"])

    @staticmethod
    def _result(connection: Any, sql: str) -> dict:
        import duckdb

        try:
            statements = connection.extract_statements(sql)
            if len(statements) != 1:
                raise Refused("several_statements", f"{len(statements)} statements")
            if statements[0].type != duckdb.StatementType.SELECT:
                raise Refused("not_select", f"a statement of type {statements[0].type.name}")
            cursor = connection.execute(statements[0])
            names = [column[0] for column in cursor.description]
            return fetched(names, iter(lambda: cursor.fetchmany(1000), []))
        except duckdb.ParserException as error:
            raise Refused("syntax", words(error)) from None
        except (Refused, TooMuch, MemoryError):
            raise
        except Exception as error:  # the engine's, or what Python says of a value that it can't hold
            if isinstance(error, duckdb.OutOfMemoryException) or "alloc" in str(error):
                raise TooMuch(words(error)) from None
            return {"failed": words(error)}


class Postgres:
    """Only queries: its databases are made from outside (`sql_postgres.py`)."""

    memory_mib = 512

    @staticmethod
    def load() -> None:
        import psycopg  # noqa: F401

    @staticmethod
    def results(request: dict) -> Iterator[dict]:
        import psycopg

        for name in request["databases"]:
            with psycopg.connect(
                request["address"],
                dbname=name,
                user=request["role"],
                password=request["password"],
                application_name=request["name"],
                client_encoding="utf8",
                autocommit=True,
                connect_timeout=10,
            ) as connection:
                yield Postgres._result(connection, request["sql"])

    @staticmethod
    def _result(connection: Any, sql: str) -> dict:
        import psycopg

        try:
            connection.execute("BEGIN READ ONLY")
            declared = connection.pgconn.exec_params(f"DECLARE answer NO SCROLL CURSOR FOR {sql}".encode(), None)
            if declared.status != psycopg.pq.ExecStatus.COMMAND_OK:
                raise psycopg.errors.error_from_result(declared)
            cursor = connection.execute("FETCH FORWARD 1000 FROM answer")
            names = [column.name for column in cursor.description]

            def batches() -> Iterator[list[tuple]]:
                rows = cursor.fetchall()
                while rows:
                    yield rows
                    rows = connection.execute("FETCH FORWARD 1000 FROM answer").fetchall()

            return fetched(names, batches())
        except (TooMuch, MemoryError):
            raise
        except Exception as error:  # the server's, or what Python says of a value that it can't hold
            state = getattr(error, "sqlstate", None) or ""
            if "multiple commands" in str(error):
                raise Refused("several_statements", "more than one statement") from None
            if "DECLARE CURSOR" in str(error) or "INTO is not allowed" in str(error):
                raise Refused("not_select", words(error)) from None
            if state == "42601":
                raise Refused("syntax", words(error)) from None
            if state[:2] in ("53", "54") or "out of memory" in str(error) or "memory alloc" in str(error):
                raise TooMuch(words(error)) from None
            return {"failed": words(error)}


ENGINES = {"sqlite": Sqlite, "duckdb": DuckDB, "postgres": Postgres}
