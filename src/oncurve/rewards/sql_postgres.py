"""Databases on a PostgreSQL server that is there for this alone, and a role that may only SELECT from them.

The server is at an address, so nothing of it is a copy in the sandbox. What holds a query back: the extended protocol
takes one statement, `DECLARE … CURSOR FOR` takes one SELECT without writes (`sql_engines.Postgres`), the role has no
other right, functions that act beyond a query are revoked, and at the deadline its client and its backend are ended.
"""

import contextlib
import re
import secrets
import weakref
from collections.abc import Iterator
from itertools import count
from typing import Any

from oncurve.errors import BrokenTruth, ConfigError
from oncurve.rewards.sql_engines import Failed, Run, Table, perturb, quoted, schema_of, words

ACTING = (
    "^(lo_|pg_(try_)?advisory_|pg_sleep|pg_notify$|pg_(terminate|cancel)_backend$|set_config$|pg_logical_emit_message$)"
)
COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
  AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY c.relname, a.attnum"""
_NAMES = """ARRAY(SELECT a.attname::text FROM unnest({numbers}) WITH ORDINALITY AS u(number, at)
  JOIN pg_attribute a ON a.attrelid = {table} AND a.attnum = u.number ORDER BY u.at)"""
CONSTRAINTS = f"""
SELECT c.relname, k.contype::text, p.relname, {_NAMES.format(numbers="k.conkey", table="c.oid")},
  {_NAMES.format(numbers="k.confkey", table="p.oid")}
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid LEFT JOIN pg_class p ON p.oid = k.confrelid
WHERE k.contype IN ('p', 'u', 'f') AND c.relnamespace = 'public'::regnamespace"""


class Server:
    """The server at an address, and a role on it that may read. The role goes with this object, and so does what it read.

    Raises `ConfigError` where psycopg is missing or no server answers to a superuser.
    """

    def __init__(self, address: str):
        self.address, self.role, self.numbers = address, f"oncurve_{secrets.token_hex(6)}", count()
        self.login = {"address": address, "role": self.role, "password": secrets.token_hex(16)}
        try:
            with _connected(address) as run:
                run(f"CREATE ROLE {self.role} LOGIN PASSWORD '{self.login['password']}' NOINHERIT")
                run(f"ALTER ROLE {self.role} SET temp_file_limit = '256MB'")
        except ImportError:
            raise ConfigError('engine "postgres" needs psycopg: pip install "oncurve[postgres]"') from None
        except Failed as failed:
            raise ConfigError(
                f"address: {failed}\n    it is the URL of a server for this alone, as a superuser: "
                "postgresql://postgres@localhost:5432"
            ) from None
        weakref.finalize(self, _remove_role, address, self.role)


class ServerDatabases:
    """Databases of one task on a server; they go with this object."""

    def __init__(self, server: Server):
        self.login, self._server, self._databases = server.login, server, []
        self._address, self._role = server.address, server.role
        weakref.finalize(self, _remove, server.address, self._databases)

    def create(self, script: str, where: str) -> tuple[str, list]:
        """A database by a set-up script, and its schema. Raises `BrokenTruth` that names `where`."""
        try:
            name = self._new("template0 ENCODING 'UTF8'")
            with _connected(self._address, name) as run:
                run(script)
            return name, self._for_reading(name)
        except Failed as failed:
            raise BrokenTruth(f"{where}: {failed}") from None

    def derive(self, database: str, seed: int) -> str | None:
        try:
            name = self._new(database)
            with _connected(self._address, name) as run:
                perturb(self, run, seed)
            self._for_reading(name)
            return name
        except Failed:
            return None

    def stop(self, query: str) -> None:
        """End the backends of a query whose client was killed: the server would go on with it."""
        with _connected(self._address) as run:
            run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", query)

    def _new(self, template: str) -> str:
        name = f"{self._role}_{next(self._server.numbers)}"
        self._databases.append(name)
        with _connected(self._address) as run:
            run(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def _for_reading(self, name: str) -> list:
        """Leave SELECT to the role, and nothing to anyone else. The result is the schema."""
        with _connected(self._address, name) as run:
            run(f"REVOKE ALL ON DATABASE {name} FROM PUBLIC; GRANT CONNECT ON DATABASE {name} TO {self._role}")
            run(f"REVOKE ALL ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA public TO {self._role}")
            run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {self._role}")
            for (function,) in run("SELECT oid::regprocedure::text FROM pg_proc WHERE proname ~ %s", ACTING):
                run(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")
            return schema_of(self.tables(run))

    def tables(self, run: Run) -> list[Table]:
        found: dict[str, Table] = {}
        for name, column, kind in run(COLUMNS):
            found.setdefault(name, Table(name, [])).columns.append((column, kind))
        for name, kind, parent, columns, parents in run(CONSTRAINTS):
            if kind == "f":
                found[name].foreign.append((columns, parent, parents))
            elif kind == "p" or len(columns) > 1:
                found[name].keys |= set(columns)
        return list(found.values())

    def shifted(self, value: str, kind: str, by: int, suffix: str) -> str:
        if re.match(r"smallint|integer|bigint|numeric|real|double precision", kind):
            return f"CAST({value} + {by} AS {kind})"
        if kind == "text" or kind.startswith("character varying"):
            return f"CASE WHEN {value} ~ '^[A-Za-z]' THEN {value} || '{suffix}' ELSE {value} END"
        return value

    def loosen(self, run: Run, tables: list[Table]) -> None:
        run("SET session_replication_role = replica")  # neither triggers nor foreign keys

    def replace(self, run: Run, table: Table, query: str) -> None:
        columns = ", ".join(quoted(name) for name, _ in table.columns)
        run(f"CREATE TEMP TABLE oncurve_new AS {query}")
        run(f"DELETE FROM {quoted(table.name)}")
        run(
            f"INSERT INTO {quoted(table.name)} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM oncurve_new "
            "ON CONFLICT DO NOTHING"
        )
        run("DROP TABLE oncurve_new")


@contextlib.contextmanager
def _connected(address: str, database: str | None = None) -> Iterator[Run]:
    """Raises `Failed` for whatever the server says."""
    import psycopg

    def run(sql: str, *values: Any) -> list[tuple]:
        cursor = connection.execute(sql, values or None)
        return cursor.fetchall() if cursor.description else []

    place = {"dbname": database} if database else {}
    try:
        with psycopg.connect(address, **place, autocommit=True, connect_timeout=10) as connection:
            yield run
    except psycopg.Error as error:
        raise Failed(words(error)) from None


def _remove(address: str, databases: list[str]) -> None:
    with contextlib.suppress(Failed), _connected(address) as run:
        for name in databases:
            run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _remove_role(address: str, role: str) -> None:
    with contextlib.suppress(Failed), _connected(address) as run:
        _remove(address, [name for (name,) in run("SELECT datname FROM pg_database WHERE datname LIKE %s", f"{role}%")])
        run(f"DROP ROLE {role}")
