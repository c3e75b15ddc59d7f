"""The SQL verifier with SQLite and DuckDB: what is one SELECT, what is right, what a truth must be, and attacks, executed."""

import hashlib
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.config.rewards import SqlRules
from oncurve.errors import BrokenTruth
from oncurve.parsing import MalformedAnswer
from oncurve.rewards.sql import MAX_CHARACTERS, Verifier, statement
from oncurve.truths import SqlTruth
from oncurve.types import Rollout, Task

SETUP = """
CREATE TABLE owners (id INTEGER PRIMARY KEY, name VARCHAR NOT NULL UNIQUE);
CREATE TABLE cats (id INTEGER PRIMARY KEY, name VARCHAR, age INTEGER CHECK (age > -100), weight DOUBLE PRECISION,
                   born DATE, owner INTEGER REFERENCES owners (id));
INSERT INTO owners VALUES (1, 'Ann'), (2, 'Bob'), (3, 'Cid');
INSERT INTO cats VALUES (1, 'Tom', 3, 4.5, '2020-01-01', 1), (2, 'Mia', 7, 3.25, '2016-05-01', 2),
  (3, 'Leo', 7, 5.0, '2016-07-01', 1), (4, 'Kit', 1, NULL, '2022-02-02', 3), (5, 'Ada', 9, 4.0, '2014-03-03', 2),
  (6, 'Uma', 4, 4.25, '2019-03-03', NULL);
CREATE VIEW old AS SELECT * FROM cats WHERE age > 5;
"""
TRUTH = "SELECT name FROM cats WHERE age > 2 ORDER BY age"
ENGINES = ("sqlite", "duckdb")


@pytest.fixture(scope="module")
def verifier():
    return Verifier()


@pytest.fixture(scope="module")
def grade(verifier):
    def graded(text, truth=TRUTH, *, engine="sqlite", setup=(SETUP,), **options):
        rules = SqlRules(type="sql", engine=engine, setup=setup, **options)
        return verifier.grade(a_task(truth), an_answer(text), rules)

    return graded


def a_task(truth: str) -> Task:
    return Task("t", "sql", (), SqlTruth(truth))


def an_answer(text: str) -> Rollout:
    return Rollout("t", 0, (), text, "end", 0, 1.0, 0)


def descendants() -> set[int]:
    """The processes that came from this one and still run."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                parents[int(folder.name)] = int(parent)
    found, waiting = set(), {os.getpid()}
    while waiting:
        waiting = {child for child, parent in parents.items() if parent in waiting} - found
        found |= waiting
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("truth", "text", "correct"),
    [
        (TRUTH, TRUTH, True),
        (TRUTH, "select c.name as who from cats as c where not c.age <= 2 order by c.age, c.id desc;", True),
        (TRUTH, "```sql\nSELECT name FROM cats\nWHERE age >= 3 -- grown up\nORDER BY age\n```", True),
        (TRUTH, "WITH grown AS (SELECT * FROM cats WHERE age > 2) SELECT name FROM grown ORDER BY age", True),
        (TRUTH, "SELECT name FROM cats WHERE age > 2 ORDER BY age DESC", False),
        (TRUTH, "SELECT name FROM cats WHERE age > 2 ORDER BY name", False),
        (TRUTH, "SELECT name FROM cats ORDER BY age", False),
        (TRUTH, "SELECT name, age FROM cats WHERE age > 2 ORDER BY age", False),
        (TRUTH, "SELECT age FROM cats WHERE age > 2 ORDER BY age", False),
        (TRUTH, "SELECT DISTINCT nope FROM cats", False),
        (TRUTH, "SELECT name FROM dogs", False),
        (TRUTH, "SELECT name FROM cats WHERE age > 1000", False),
        ("SELECT name, age FROM cats", "SELECT name, age FROM cats ORDER BY born", True),
        ("SELECT name, age FROM cats", "SELECT age, name FROM cats", False),
        ("SELECT owner FROM cats", "SELECT DISTINCT owner FROM cats", False),
        ("SELECT count(*) FROM cats", "SELECT count(id) FROM cats", True),
        ("SELECT count(*) FROM cats", "SELECT count(weight) FROM cats", False),
        ("SELECT avg(weight) FROM cats", "SELECT sum(weight) / count(weight) FROM cats", True),
        ("SELECT avg(weight) FROM cats", "SELECT 1.0000005 * avg(weight) FROM cats", True),
        ("SELECT avg(weight) FROM cats", "SELECT 1.00001 * avg(weight) FROM cats", False),
        ("SELECT weight FROM cats", "SELECT coalesce(weight, 0) FROM cats", False),
        ("SELECT name, NULL FROM cats", "SELECT name, '' FROM cats", False),
        ("SELECT id FROM cats", "SELECT CAST(id AS VARCHAR) FROM cats", False),
        ("SELECT name FROM old", "SELECT name FROM cats WHERE age > 5", True),
        (
            "SELECT o.name, count(*) FROM cats c JOIN owners o ON c.owner = o.id GROUP BY o.name",
            "SELECT (SELECT name FROM owners WHERE id = owner), count(*) FROM cats WHERE owner > 0 GROUP BY owner",
            True,
        ),
        ("SELECT name FROM cats ORDER BY weight IS NULL, weight DESC LIMIT 2", "SELECT name FROM cats LIMIT 2", False),
    ],
)
def test_right_and_wrong(grade, engine, truth, text, correct):
    score = grade(text, truth, engine=engine)
    assert (score.status, score.correct, score.value, score.reason) == ("scored", correct, float(correct), "")
    assert score.parts["format"] == 1.0
    assert (score.parts["databases"] == 1.0) is correct


def test_a_score_in_full(grade):
    score = grade(f"```sql\n{TRUTH};\n```")
    assert score.extracted == TRUTH
    assert score.evidence == "the truth's rows on all 3 databases, 5 on the first"
    assert score.verifier == "sql/1"
    wrong = grade("SELECT name FROM cats WHERE age > 2 ORDER BY age DESC")
    assert wrong.evidence.endswith(" of 3 databases; on database 1: the right rows in another order")
    assert grade("SELECT 1, 2").evidence.endswith("on database 1: 2 columns, the truth has 1")
    assert grade("SELECT name FROM dogs").evidence.endswith("on database 1: no such table: dogs")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("```sql\n```", "empty"),
        ("```sql\n \n```", "empty"),
        (";", "empty"),
        ("-- nothing", "empty"),
        ("/* SELECT 1 */", "empty"),
        ("42", "not_select"),
        ("The answer is SELECT 1", "not_select"),
        ("<answer>SELECT 1</answer>", "not_select"),
        ("__import__('os').system('touch /tmp/oncurve-was-here')", "not_select"),
        ("VALUES (1)", "not_select"),
        ("EXPLAIN SELECT 1", "not_select"),
        ("PRAGMA table_info(cats)", "not_select"),
        ("Here: ```sql\nSELECT 1\n```", "text_around"),
        ("```sql\nSELECT 1\n``` That's it.", "text_around"),
        ("```sql\nSELECT 1\n``` ```sql\nSELECT 1\n```", "repeated_tags"),
        ("```sql\n```sql\nSELECT 1\n```\n```", "repeated_tags"),
        ("```sql\nSELECT 1", "syntax"),
        ("```python\nSELECT 1\n```", "syntax"),
        ("SELECT '\0'", "syntax"),
        ("SELECT '\ud800'", "syntax"),
        ("SELECT 1 " + "filler " * MAX_CHARACTERS, "too_long"),
        ("/* " + "filler " * MAX_CHARACTERS + "*/ SELECT 1", "too_long"),
    ],
)
def test_what_is_no_query_never_reaches_an_engine(text, reason):
    with pytest.raises(MalformedAnswer) as caught:
        statement(text)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("SELECT 1;", "SELECT 1"),
        ("  ```\nSELECT 1;\n```\n", "SELECT 1"),
        ("```SQL SELECT 1```", "SELECT 1"),
        ("-- first\n/* then */ ( SELECT 1)", "-- first\n/* then */ ( SELECT 1)"),
        ("WITH a AS (SELECT ';') SELECT * FROM a", "WITH a AS (SELECT ';') SELECT * FROM a"),
    ],
)
def test_what_is_read_as_a_query(text, sql):
    assert statement(text) == sql


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT", "syntax"),
        ("SELECT * FROM", "syntax"),
        ("SELECT name FROM cats WHERE age > 2 ORDER BY age filler filler filler", "syntax"),
        ("SELECT 1; SELECT 2", "several_statements"),
        ("SELECT name FROM cats; DROP TABLE cats", "several_statements"),
        ("WITH a AS (SELECT 9) INSERT INTO owners SELECT 9, 'x' FROM a", "not_select"),
        ("WITH a AS (SELECT 9) DELETE FROM cats", "not_select"),
        ("WITH a AS (SELECT 9) UPDATE cats SET age = 1", "not_select"),
        ("SELECT " + "(" * 4000 + "1" + ")" * 4000, "syntax"),
    ],
)
def test_the_engine_says_what_one_select_is(grade, engine, text, reason):
    score = grade(text, engine=engine)
    assert (score.status, score.reason, score.value, score.correct) == ("invalid", reason, 0.0, False)


CHEATS = {
    "sqlite": [
        "INSERT INTO cats VALUES (9, 'x', 1, 1, '2020-01-01', 1)",
        "DELETE FROM cats",
        "DROP TABLE cats",
        "PRAGMA writable_schema = 1",
        "ATTACH DATABASE '/tmp/oncurve-cheat.db' AS other",
        "VACUUM INTO '/tmp/oncurve-cheat.db'",
        "SELECT load_extension('/tmp/x.so')",
        "SELECT * FROM pragma_database_list",
        "SELECT writefile('/tmp/oncurve-cheat.db', 'x')",
        "SELECT name FROM sqlite_master",
        "SELECT NULL WHERE 0",
    ],
    "duckdb": [
        "INSERT INTO cats VALUES (9, 'x', 1, 1, '2020-01-01', 1)",
        "COPY cats TO '/tmp/oncurve-cheat.db'",
        "COPY (SELECT 1) TO '/tmp/oncurve-cheat.db'",
        "ATTACH '/tmp/oncurve-cheat.db' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET memory_limit = '100GB'",
        "PRAGMA enable_profiling",
        "CALL pragma_version()",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT NULL WHERE false",
    ],
}


@pytest.mark.parametrize(("engine", "text"), [(engine, text) for engine in CHEATS for text in CHEATS[engine]])
def test_cheats_win_nothing_and_leave_the_database(grade, verifier, engine, text):
    assert grade(TRUTH, engine=engine).correct
    folder = Path(verifier._source(SqlRules(type="sql", engine=engine, setup=(SETUP,))).given[0]).parent
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in folder.iterdir()}
    score = grade(text, engine=engine)
    assert (score.status, score.value, score.correct) == (
        "scored" if text.startswith("SELECT") else "invalid",
        0.0,
        False,
    )
    assert {path: hashlib.sha256(path.read_bytes()).digest() for path in folder.iterdir()} == before
    assert not Path("/tmp/oncurve-cheat.db").exists()
    assert grade(TRUTH, engine=engine).correct


BOMBS = {
    "sqlite": [
        "SELECT printf('%.*c', 900000000, 'x')",
        "SELECT length(replace(hex(zeroblob(100000000)), '0', 'xxxxxxxxxxxx'))",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
    ],
    "duckdb": [
        "SELECT repeat('x', 2000000000)",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
        "SELECT list_sort(range(100000000))",
    ],
}
CROSS = ", ".join(f"cats AS c{i}" for i in range(24))


@pytest.mark.parametrize(
    ("engine", "text"),
    [(engine, text) for engine in ENGINES for text in (*BOMBS[engine], f"SELECT c0.name FROM {CROSS}")],
)
def test_bombs_are_stopped_and_nothing_is_left(grade, engine, text):
    assert grade(TRUTH, engine=engine).correct
    before, begin = descendants(), time.monotonic()
    score = grade(text, engine=engine, timeout_s=0.5)
    assert (score.status, score.value, score.correct) == ("invalid", 0.0, False)
    assert score.reason in ("timeout", "memory")
    assert time.monotonic() - begin < 0.5 + 5
    assert descendants() == before
    assert grade(TRUTH, engine=engine).correct


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("truth", "text"),
    [
        (
            TRUTH,
            "SELECT 'Tom' UNION ALL SELECT 'Uma' UNION ALL SELECT 'Mia' UNION ALL SELECT 'Leo' UNION ALL SELECT 'Ada'",
        ),
        ("SELECT count(*) FROM cats", "SELECT 6"),
        ("SELECT count(*) FROM owners", "SELECT 3"),
        ("SELECT max(weight) FROM cats", "SELECT 5.0"),
        ("SELECT name FROM owners WHERE id = 2", "SELECT 'Bob'"),
        ("SELECT name FROM cats WHERE age > 2 AND age < 100", "SELECT name FROM cats WHERE name <> 'Kit'"),
    ],
)
def test_the_truths_own_rows_as_literals_fail_on_other_rows(grade, engine, truth, text):
    score = grade(text, truth, engine=engine)
    assert (score.status, score.correct) == ("scored", False)
    assert score.parts["databases"] < 1


def test_one_constant_answer_wins_no_set_of_tasks(grade):
    truths = [TRUTH, "SELECT count(*) FROM cats", "SELECT max(age) FROM cats", "SELECT name FROM owners"]
    for text in ["SELECT 6", "SELECT 9", "SELECT * FROM cats", "SELECT name FROM cats"]:
        assert sum(grade(text, truth).value for truth in truths) == 0


def test_rows_that_tie_may_change_places(grade):
    """Mia and Leo are both 7: by a key in the result, beside it, and by an expression of it."""
    for truth in (TRUTH, "SELECT name, age FROM cats ORDER BY 2", "SELECT name AS n FROM cats ORDER BY -age"):
        for tail in (", name", ", name DESC", ", id"):
            assert grade(truth + tail, truth).correct, truth + tail
    assert not grade(
        "SELECT name FROM cats ORDER BY age, name DESC", "SELECT name FROM cats ORDER BY age, name"
    ).correct


def test_databases_that_differ_are_taken_as_they_are(verifier, grade):
    other = SETUP.replace("'Tom', 3", "'Tim', 4")
    assert grade(TRUTH, setup=(SETUP, other)).evidence == "the truth's rows on all 2 databases, 5 on the first"
    assert grade(TRUTH, setup=(SETUP, SETUP)).evidence == "the truth's rows on all 3 databases, 5 on the first"
    lucky = "SELECT name FROM cats WHERE age > 2 AND name <> 'Tim' ORDER BY age"
    assert grade(lucky, setup=(SETUP, other)).parts["databases"] == 0.5


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("truth", "options", "words"),
    [
        (TRUTH, {}, "no database: give options.setup"),
        ("SELECT nope FROM cats", {"setup": (SETUP,)}, "truth.sql: on database 1: .*nope"),
        ("SELECT name FROM cats WHERE age > 99", {"setup": (SETUP,)}, "truth.sql: it gives no row on any database"),
        ("DELETE FROM cats", {"setup": (SETUP,)}, "truth.sql: not_select: "),
        ("SELECT 1; SELECT 2", {"setup": (SETUP,)}, "truth.sql: several_statements: "),
        ("SELECT FROM WHERE", {"setup": (SETUP,)}, "truth.sql: syntax: "),
        (
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
            {"setup": (SETUP,), "timeout_s": 0.5},
            "truth.sql: timeout: ",
        ),
        (TRUTH, {"setup": ("CREATE TABEL cats",)}, "options.setup, database 1: .*syntax error"),
        (
            TRUTH,
            {"setup": (SETUP, "CREATE TABLE cats (name VARCHAR)")},
            "database 2 has another schema .*table cats has columns",
        ),
        (TRUTH, {"setup": (SETUP, SETUP + "CREATE TABLE dogs (a INTEGER)")}, "table dogs is missing in the first"),
        (TRUTH, {"databases": ("nowhere.db",)}, "options.databases, nowhere.db: No such file.*relative to"),
    ],
)
def test_a_broken_truth_is_refused(verifier, engine, truth, options, words):
    with pytest.raises(BrokenTruth, match=words):
        verifier.check(a_task(truth), SqlRules(type="sql", engine=engine, **options))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"setup": ("a",), "databases": ("b",)}, "both set"),
        ({"engine": "postgres"}, "address"),
        ({"address": "postgresql://localhost"}, "address"),
        ({"engine": "postgres", "address": "postgresql://localhost", "databases": ("b",)}, "no database files"),
        ({"floor": 0.5}, "floor"),
        ({"timeout_s": 0.0}, "timeout_s"),
    ],
)
def test_rules_that_contradict_themselves_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        SqlRules(type="sql", **options)


def test_files_are_copied_and_never_touched(verifier, tmp_path):
    path = tmp_path / "cats.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(SETUP)
    duck = tmp_path / "cats.duckdb"
    with duckdb.connect(str(duck)) as connection:
        connection.execute(SETUP)
    for engine, file in (("sqlite", path), ("duckdb", duck)):
        before = file.read_bytes(), sorted(tmp_path.iterdir())
        rules = SqlRules(type="sql", engine=engine, databases=(str(file),))
        assert verifier.grade(a_task(TRUTH), an_answer(TRUTH), rules).correct
        assert (file.read_bytes(), sorted(tmp_path.iterdir())) == before
    (tmp_path / "text.db").write_text("no database at all" * 100)
    (tmp_path / "text.db-wal").write_text("")
    with pytest.raises(BrokenTruth, match="not a database"):
        verifier.check(a_task(TRUTH), SqlRules(type="sql", databases=(str(tmp_path / "text.db"),)))
    (tmp_path / "text.db-wal").write_text("x")
    with pytest.raises(BrokenTruth, match="changes wait in"):
        verifier.check(a_task(TRUTH), SqlRules(type="sql", databases=(str(tmp_path / "text.db"),)))


@pytest.mark.parametrize("engine", ENGINES)
def test_other_rows_keep_schema_keys_and_references(verifier, engine):
    source = verifier._source(SqlRules(type="sql", engine=engine, setup=(SETUP,)))
    made = [source.derive(seed) for seed in range(6)]
    assert None not in made

    def rows(sql, databases):
        return [result["rows"] for result in source.run(sql, databases, 30.0)["results"]]

    given = rows("SELECT * FROM cats ORDER BY id", source.given)[0]
    for derived in rows("SELECT * FROM cats ORDER BY id", made):
        assert 0 < len(derived) < len(given)
        assert {row[0] for row in derived} < {row[0] for row in given}
        for column in range(6):
            kinds = {type(row[column]) for row in given}
            assert {type(row[column]) for row in derived} <= kinds
    for plain in rows("SELECT name, age FROM cats", made[::2]):
        assert {name for name, _ in plain} <= {row[1] for row in given}
        assert {age for _, age in plain} <= {row[2] for row in given}
    assert rows("SELECT count(*) FROM cats WHERE owner NOT IN (SELECT id FROM owners)", made) == [[[0]]] * 6
    assert len({repr(result) for result in rows("SELECT * FROM cats", made)}) == 6
    again = Verifier()._source(SqlRules(type="sql", engine=engine, setup=(SETUP,)))
    assert (
        again.run("SELECT * FROM cats", [again.derive(3)], 30.0)["results"][0]["rows"]
        == rows("SELECT * FROM cats", made[3:4])[0]
    )


@pytest.mark.parametrize(
    "setup",
    [
        'CREATE TABLE "a b" ("x y" TEXT, "select" INTEGER); INSERT INTO "a b" VALUES (\'p\', 1), (\'q\', 2), (NULL, 3)',
        "CREATE TABLE t (a INTEGER, b TEXT, PRIMARY KEY (a, b)) WITHOUT ROWID; INSERT INTO t VALUES (1, 'x'), (2, 'y')",
        "CREATE TABLE t (a INT, b INT AS (a + 1) STORED); INSERT INTO t VALUES (1), (2), (3)",
        "CREATE TABLE t (a INT); CREATE TRIGGER no BEFORE DELETE ON t BEGIN SELECT raise(ABORT, 'no'); END;"
        "INSERT INTO t VALUES (1), (2), (3)",
        "CREATE TABLE t ("
        + ", ".join(f"c{i} INT" for i in range(100))
        + "); INSERT INTO t (c0, c99) VALUES (1, 2), (3, 4)",
    ],
)
def test_schemas_of_many_kinds_can_be_given_other_rows(verifier, setup):
    source = verifier._source(SqlRules(type="sql", setup=(setup,)))
    assert None not in [source.derive(seed) for seed in range(4)]


@pytest.mark.parametrize("engine", ENGINES)
def test_no_name_of_a_column_is_in_the_way_of_other_rows(verifier, engine):
    names = "n TEXT, r TEXT, v TEXT, k TEXT, t TEXT, p0 TEXT"
    setup = f"CREATE TABLE t ({names}); INSERT INTO t VALUES {', '.join(str(tuple(6 * x)) for x in 'abcdefgh')}"
    source = verifier._source(SqlRules(type="sql", engine=engine, setup=(setup,)))
    for seed in range(4):
        assert len(source.run("SELECT n, r FROM t", [source.derive(seed)], 5.0)["results"][0]["rows"]) == 6


def test_answers_are_graded_side_by_side(grade):
    texts = [TRUTH, "SELECT 1", "DROP TABLE cats"] * 8
    with ThreadPoolExecutor(4) as threads:
        scores = list(threads.map(grade, texts))
    assert [score.correct for score in scores] == [True, False, False] * 8


@pytest.mark.parametrize("engine", ENGINES)
def test_without_bubblewrap_a_query_can_still_be_killed(monkeypatch, engine):
    monkeypatch.setattr("oncurve.sandbox.box.reached", lambda: "none")
    verifier, rules = Verifier(), SqlRules(type="sql", engine=engine, setup=(SETUP,), timeout_s=0.5)
    assert verifier.grade(a_task(TRUTH), an_answer(TRUTH), rules).correct
    bomb = BOMBS[engine][-1]
    assert verifier.grade(a_task(TRUTH), an_answer(bomb), rules).reason in ("timeout", "memory")
    assert verifier.grade(a_task(TRUTH), an_answer(TRUTH), rules).correct


KEYWORDS = (
    "WITH",
    "AS",
    "SELECT",
    "FROM",
    "WHERE",
    "ORDER BY",
    "LIMIT",
    "UNION ALL",
    "INSERT",
    "PRAGMA",
    "NULL",
    "sql",
)
OTHERS = (
    "cats",
    "name",
    "a.b",
    "count(*)",
    "1",
    "1e999",
    "x'00'",
    "?",
    ":a",
    "$1",
    "%s",
    "é",
    "\u0663",
    "'\ud800'",
    "\0",
)
HOSTILE = [
    "SELECT 9e999, -9e999, 1e-400",
    "SELECT CAST(x'ff' AS TEXT), x'00ff'",
    "SELECT " + "[" * 300 + "1" + "]" * 300,
    "SELECT 'infinity'::DOUBLE, 'nan'::DOUBLE, DATE 'infinity', INTERVAL 1 YEAR, 170141183460469231731687303715884105727",
    "SELECT TIMESTAMP '290000-01-01', [1, NULL], {'a': [1.5]}, MAP {'k': 1}, 'x'::BLOB, gen_random_uuid()",
    "SELECT ?",
    "SELECT $1, :name, @name",
    "SELECT * FROM request",
    "SELECT " + ", ".join(["1"] * 3000),
    "SELECT " + "NOT " * 2400 + "1",
    "SELECT " + "-" * 9000 + "1",
    "SELECT '" + "x" * 9000,
    "SELECT * FROM " + "(SELECT * FROM " * 500 + "cats" + ")" * 500,
    "WITH " + ", ".join(f"a{i} AS (SELECT 1)" for i in range(400)) + " SELECT 1",
    "WITH a AS (SELECT 1), b AS (SELECT * FROM a, a AS x) SELECT * FROM b",
    "/*" * 4000 + " SELECT 1",
    "SELECT 1 /*",
    "(" * 9000,
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:24])
def test_hostile_queries_are_verdicts(grade, engine, text):
    score = grade(text, engine=engine)
    assert (score.status in ("scored", "invalid"), score.value) == (True, 0.0), score.evidence
    assert grade(TRUTH, engine=engine).correct


WORDS = st.sampled_from((*KEYWORDS, *OTHERS, *"*(),;'\"\n", "--", "/*", "*/", "```"))


@pytest.mark.parametrize("engine", ENGINES)
@given(text=st.one_of(st.text(), st.lists(WORDS, max_size=12).map(lambda words: "SELECT " + " ".join(words))))
@settings(deadline=None, max_examples=50)
def test_no_text_is_a_fault_of_the_verifier(grade, engine, text):
    score = grade(text, engine=engine)
    assert score.status in ("scored", "invalid")
    assert score.value in (0.0, 1.0)
    assert score.evidence
