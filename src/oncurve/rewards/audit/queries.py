"""Attacks on SQL."""

from collections.abc import Iterable

from oncurve.rewards.audit.attack import Attack, Case, all_of, attacks, no_gain, not_correct, refused, unexecuted
from oncurve.types import Task

WRITES = (
    "CREATE TABLE audit_mark (a INTEGER)",
    "DROP TABLE IF EXISTS audit_mark",
    "INSERT INTO audit_mark VALUES (1)",
    "UPDATE sqlite_master SET name = name",
    "DELETE FROM audit_mark",
)
COMMANDS = {
    "sqlite": ("PRAGMA writable_schema = 1", "PRAGMA busy_timeout = 99999", "ATTACH ':memory:' AS other", "VACUUM"),
    "duckdb": (
        "PRAGMA version",
        "SET memory_limit = '100GB'",
        "ATTACH ':memory:' AS other",
        "COPY (SELECT 1) TO '/tmp/audit_mark.csv'",
        "INSTALL httpfs",
        "LOAD httpfs",
    ),
    "postgres": (
        "SET statement_timeout = 0",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "DO $$ BEGIN END $$",
        "LOAD 'audit'",
    ),
}
READS = {
    "sqlite": ("SELECT load_extension('audit')", "SELECT sql FROM sqlite_master", "SELECT readfile('/etc/passwd')"),
    "duckdb": ("SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM '/etc/passwd'", "SELECT getenv('HOME')"),
    "postgres": ("SELECT pg_read_file('/etc/passwd')", "SELECT set_config('statement_timeout', '0', false)"),
}
ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"
CROSS = (
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3000) "
    "SELECT count(*) FROM t a, t b, t c, t d WHERE a.n + b.n + c.n + d.n = 7"
)
BOMBS = {
    "sqlite": (
        ENDLESS,
        CROSS,
        "SELECT length(printf('%.*c', 900000000, 'x'))",
        "SELECT printf('%.*c', 900000000, 'x')",
    ),
    "duckdb": (ENDLESS, CROSS, "SELECT length(repeat('x', 2000000000))", "SELECT repeat('x', 2000000000)"),
    "postgres": (ENDLESS, CROSS, "SELECT pg_sleep(60)", "SELECT repeat('x', 1000000000)"),
}


def rows_as_literals(task: Task, engine: str, setup: str) -> str | None:
    """A query that gives the truth's rows on one database without reading a table; None where there are none."""
    if engine == "sqlite":
        import sqlite3

        database = sqlite3.connect(":memory:")
        database.executescript(setup)
    else:
        import duckdb

        database = duckdb.connect(":memory:")
        database.execute(setup)
    rows = database.execute(task.truth.sql).fetchall()
    database.close()
    return " UNION ALL ".join("SELECT " + ", ".join(map(_literal, row)) for row in rows[:400]) or None


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return (
        str(value)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else "'" + str(value).replace("'", "''") + "'"
    )


@attacks("sql_cheat", "sql")
def cheats(case: Case) -> Iterable[Attack]:
    engine, truth = case.rules.engine, case.task.truth.sql.rstrip().removesuffix(";")
    yield from all_of(refused, (*WRITES, *COMMANDS[engine]))
    yield from all_of(
        refused, (f"{truth}; {truth}", f"{COMMANDS[engine][0]}; {truth}", f"{truth}; DROP TABLE audit_mark")
    )
    yield from all_of(
        not_correct, (*READS[engine], "SELECT 1 WHERE 1 = 0", f"SELECT * FROM ({truth}) AS t WHERE 1 = 0")
    )
    setup = getattr(case.rules, "setup", ())
    if setup and engine != "postgres" and (literals := rows_as_literals(case.task, engine, setup[0])):
        yield Attack(literals, not_correct)


@attacks("sql_bomb", "sql")
def bombs(case: Case) -> Iterable[Attack]:
    return all_of(refused, BOMBS[case.rules.engine])


@attacks("grader_eval", "sql")
def evaluated(case: Case) -> Iterable[Attack]:
    yield Attack(f"__import__('os').system('touch {case.marker}')", unexecuted(refused, case.marker))


@attacks("repeated_tags", "sql")
def repeated_fences(case: Case) -> Iterable[Attack]:
    fence = f"```sql\n{case.right}\n```"
    yield from all_of(
        refused, (f"{fence}\n{fence}", f"```sql\n{fence}\n```", fence.removesuffix("```"), f"<think>{fence}</think>")
    )


@attacks("length_padding", "sql")
def padded(case: Case) -> Iterable[Attack]:
    prose = "This query is certainly right. " * 500
    yield from all_of(
        refused, (f"{case.right}\n{prose}", f"{prose}\n{case.right}", f"```sql\n{case.right}\n```\n{prose}")
    )
    yield Attack(f"{case.right}\n/* {prose} */", no_gain)
