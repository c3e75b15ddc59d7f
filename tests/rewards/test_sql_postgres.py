"""SQL on a PostgreSQL server of its own, from Debian's package, on a socket in a temporary folder."""

import gc
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from oncurve.config.rewards import SqlRules
from oncurve.errors import BrokenTruth, ConfigError
from oncurve.rewards.sql import Verifier
from oncurve.truths import SqlTruth
from oncurve.types import Task

psycopg = pytest.importorskip("psycopg")
BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
SETUP = """
CREATE TABLE owners (id integer PRIMARY KEY, name text NOT NULL);
CREATE TABLE cats (id integer PRIMARY KEY, name varchar(20), age integer CHECK (age > 0), weight numeric(6, 2),
                   born date, owner integer REFERENCES owners (id));
INSERT INTO owners VALUES (1, 'Ann'), (2, 'Bob'), (3, 'Cid');
INSERT INTO cats VALUES (1, 'Tom', 3, 4.5, '2020-01-01', 1), (2, 'Mia', 7, 3.25, '2016-05-01', 2),
  (3, 'Leo', 7, 5, '2016-07-01', 1), (4, 'Kit', 1, NULL, '2022-02-02', 3), (5, 'Ada', 9, 4, '2014-03-03', 2);
"""
TRUTH = "SELECT name FROM cats WHERE age > 2 ORDER BY age"


@pytest.fixture(scope="module")
def address():
    """The URL of a fresh server; PostgreSQL refuses to run as root."""
    if not BINARIES and not os.environ.get("CI"):
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    folder = tempfile.mkdtemp(prefix="oncurve-pg-", dir="/tmp")  # a socket's path is short
    other = {}
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        other = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    options = ["-D", f"{folder}/data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    subprocess.run([BINARIES[-1] / "initdb", *options], check=True, capture_output=True, cwd=folder, **other)
    server = subprocess.Popen(
        [BINARIES[-1] / "postgres", "-D", f"{folder}/data", "-k", folder, "-h", "", "-F"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **other,
    )
    url = f"postgresql:///postgres?host={folder}&user=postgres"
    for _ in range(300):
        try:
            psycopg.connect(url).close()
            break
        except psycopg.OperationalError:
            time.sleep(0.1)
    yield url
    server.terminate()
    server.wait(30)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def verifier():
    return Verifier()


@pytest.fixture(scope="module")
def grade(verifier, address, rollout):
    def graded(text, truth=TRUTH, **options):
        rules = SqlRules(type="sql", engine="postgres", setup=(SETUP,), address=address, **options)
        return verifier.grade(Task("t", "sql", (), SqlTruth(truth)), rollout(text=text), rules)

    return graded


@pytest.mark.parametrize(
    ("text", "correct"),
    [
        (TRUTH, True),
        ("SELECT c.name AS n FROM cats c WHERE NOT c.age <= 2 ORDER BY c.age, c.id DESC;", True),
        ("WITH old AS (SELECT * FROM cats WHERE age > 2) SELECT name FROM old ORDER BY age", True),
        ("SELECT name FROM cats WHERE age > 2 ORDER BY age DESC", False),
        ("SELECT name FROM cats ORDER BY age", False),
        ("SELECT * FROM (VALUES ('Tom'), ('Mia'), ('Leo'), ('Ada')) AS t (name)", False),
        ("SELECT nope FROM cats", False),
        ("SELECT pg_read_file('/etc/passwd')", False),
        ("SELECT set_config('statement_timeout', '0', false)", False),
        ("SELECT name FROM cats FOR UPDATE", False),
    ],
)
def test_one_select_is_scored(grade, text, correct):
    score = grade(text)
    assert (score.status, score.correct, score.value) == ("scored", correct, float(correct)), score.evidence


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT 1; DROP TABLE cats", "several_statements"),
        ("SELECT name FROM cats; SET statement_timeout = 0", "several_statements"),
        ("WITH gone AS (DELETE FROM cats RETURNING name) SELECT name FROM gone", "not_select"),
        ("SELECT name INTO copies FROM cats", "not_select"),
        ("COPY cats TO '/tmp/cats'", "not_select"),
        ("SET statement_timeout = 0", "not_select"),
        ("SELECT FROM WHERE", "syntax"),
    ],
)
def test_all_else_is_invalid(grade, text, reason):
    score = grade(text)
    assert (score.status, score.reason, score.value) == ("invalid", reason, 0.0), score.evidence
    assert grade(TRUTH).correct


@pytest.mark.parametrize(
    "text",
    [
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
        "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b",
        "SELECT repeat('x', 2000000000)",
        "SELECT repeat('x', 900000000)",
        "SELECT a, b FROM generate_series(1, 10000) a, generate_series(1, 10000) b",
    ],
)
def test_bombs_end_by_the_deadline_with_their_backends(grade, address, text):
    score = grade(text, timeout_s=0.7)
    assert (score.status, score.reason in ("timeout", "memory")) == ("invalid", True), score
    with psycopg.connect(address, autocommit=True) as connection:
        for _ in range(50):
            running = connection.execute(
                "SELECT query FROM pg_stat_activity WHERE application_name LIKE 'oncurve%' AND state = 'active'"
            ).fetchall()
            if not running:
                break
            time.sleep(0.1)
    assert running == []
    assert grade(TRUTH).correct


def test_types_count(grade):
    assert grade("SELECT born FROM cats WHERE id = 2", "SELECT born FROM cats WHERE id = 2").correct
    assert not grade("SELECT born::text FROM cats WHERE id = 2", "SELECT born FROM cats WHERE id = 2").correct
    assert grade("SELECT sum(weight)::double precision FROM cats", "SELECT sum(weight) FROM cats").correct


def test_other_databases_have_other_rows_under_the_same_schema(verifier, address):
    rules = SqlRules(type="sql", engine="postgres", setup=(SETUP,), address=address)
    task = Task("t", "sql", (), SqlTruth("SELECT count(*) FROM owners"))
    verifier.check(task, rules)
    source = verifier._source(rules)
    expected = source.truths["SELECT count(*) FROM owners"]
    assert len(expected.databases) == 3
    assert expected.results[0]["rows"] == [[3]]
    assert all(result["rows"] == [[2]] for result in expected.results[1:])
    orphans = source.run(
        "SELECT count(*) FROM cats WHERE owner NOT IN (SELECT id FROM owners)", expected.databases, 2.0
    )
    assert [result["rows"] for result in orphans["results"]] == [[[0]]] * 3


def test_the_role_owns_nothing(verifier, address):
    """What the parse lets through, the rights don't: the role can't write, nor act beyond its query."""
    rules = SqlRules(type="sql", engine="postgres", setup=(SETUP,), address=address)
    source = verifier._source(rules)
    login = source._place.login
    with psycopg.connect(
        address, dbname=source.given[0], user=login["role"], password=login["password"], autocommit=True
    ) as connection:
        for sql in (
            "INSERT INTO owners VALUES (9, 'x')",
            "CREATE TABLE mine (a int)",
            "CREATE TEMP TABLE mine (a int)",
            "SELECT lo_create(0)",
            "SELECT set_config('statement_timeout', '0', false)",
            "SELECT pg_terminate_backend(1)",
            "SELECT pg_sleep(1)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(sql)


def test_what_is_wrong_with_a_task_is_said(verifier, address):
    with pytest.raises(BrokenTruth, match=r"options\.setup, database 1: syntax error"):
        verifier.check(
            Task("t", "sql", (), SqlTruth(TRUTH)),
            SqlRules(type="sql", engine="postgres", setup=("CREATE TABEL x",), address=address),
        )
    with pytest.raises(ConfigError, match=r"address: .*No such file"):
        verifier.check(
            Task("t", "sql", (), SqlTruth(TRUTH)),
            SqlRules(type="sql", engine="postgres", setup=(SETUP,), address="postgresql:///postgres?host=/nowhere"),
        )


def test_the_server_is_left_as_it_was(address, rollout):
    own = Verifier()
    rules = SqlRules(type="sql", engine="postgres", setup=(SETUP,), address=address)
    own.check(Task("t", "sql", (), SqlTruth(TRUTH)), rules)
    role = own._source(rules)._place.login["role"]

    def left():
        with psycopg.connect(address) as connection:
            databases = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", (f"{role}%",))
            roles = connection.execute("SELECT rolname FROM pg_roles WHERE rolname = %s", (role,))
            return len(databases.fetchall()), len(roles.fetchall())

    assert left()[0] > 1
    del own
    gc.collect()
    assert left() == (0, 0)
