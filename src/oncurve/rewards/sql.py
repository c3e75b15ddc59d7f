"""The SQL verifier: one SELECT, run on two databases or more, whose rows are compared with those of the truth's query.

A query is `invalid` where it is not one SELECT, or was stopped at its time or memory; one that fails in the engine (no
such column) is scored, and not correct. The engine itself says what one SELECT is, in a process that can be killed.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oncurve.config.rewards import SqlRules
from oncurve.errors import BrokenTruth
from oncurve.parsing import MalformedAnswer, not_empty
from oncurve.rewards.scores import invalid
from oncurve.rewards.sql_databases import Databases, Source
from oncurve.rewards.sql_order import order_of
from oncurve.rewards.sql_rows import same_order, same_rows, tie_sizes
from oncurve.sandbox.box import ChildStopped
from oncurve.truths import SqlTruth
from oncurve.types import Rollout, Score, Task

VERIFIER = "sql/1"
MAX_CHARACTERS = 10_000
NUM_SEEDS = 6  # of databases that are derived where those given are too few

_FENCE = "```"
_OPENING = re.compile(r"```(?:sql)?\s", re.IGNORECASE)
_BEFORE_THE_FIRST_WORD = re.compile(r"(?:\s++|\(|--[^\n]*+(?:\n|\Z)|/\*(?:[^*]|\*(?!/))*+\*/)*+")
_WORD = re.compile(r"[A-Za-z]*")


@dataclass(frozen=True, slots=True)
class Expected:
    """What the truth gives on each database: its rows, and the sizes of runs that may be reordered (none: any order)."""

    databases: tuple[str, ...]
    results: tuple[dict[str, Any], ...]
    ties: tuple[list[int] | None, ...]


class Verifier:
    """Safe to call from threads; each answer is a process."""

    version = VERIFIER
    num_threads = os.cpu_count() or 1

    def __init__(self):
        self._databases = Databases()

    def check(self, task: Task, rules: SqlRules) -> None:
        """Raises `BrokenTruth` where the query is not one SELECT, fails, or gives no row on any database."""
        self._expected(task.truth, rules, self._source(rules))

    def grade(self, task: Task, answer: Rollout, rules: SqlRules) -> Score:
        source = self._source(rules)
        expected = self._expected(task.truth, rules, source)
        try:
            sql = statement(answer.text)
            results = self._results(source, expected.databases, sql, rules.timeout_s)
        except MalformedAnswer as fault:
            return invalid(fault, rules.floor, VERIFIER)
        faults = [_fault(*each) for each in zip(expected.results, results, expected.ties, strict=True)]
        num_right, num_rows = faults.count(None), len(expected.results[0]["rows"])
        evidence = f"the truth's rows on all {len(faults)} databases, {num_rows} on the first"
        if num_right < len(faults):
            at = next(i for i, fault in enumerate(faults) if fault)
            evidence = f"the truth's rows on {num_right} of {len(faults)} databases; on database {at + 1}: {faults[at]}"
        return Score(
            status="scored",
            value=float(num_right == len(faults)),
            correct=num_right == len(faults),
            parts={"format": 1.0, "databases": num_right / len(faults)},
            extracted=sql,
            evidence=evidence,
            verifier=VERIFIER,
        )

    def _results(self, source: Source, databases: Sequence[str], sql: str, timeout_s: float) -> list[dict[str, Any]]:
        """Of one query on each database. Raises `MalformedAnswer` where it is not one SELECT, or was stopped."""
        try:
            reply = source.run(sql, databases, timeout_s)
        except ChildStopped as stopped:
            if stopped.reason == "crash":
                raise
            raise MalformedAnswer("memory" if stopped.reason == "output" else stopped.reason, str(stopped)) from None
        if reason := reply.get("refused") or reply.get("stopped"):
            raise MalformedAnswer(reason, reply["words"])
        if "failed" in reply:  # not the query: the database could not be opened, or the server not be reached
            raise RuntimeError(reply["failed"])
        return reply["results"]

    def _source(self, rules: SqlRules) -> Source:
        if not (rules.setup or rules.databases):
            raise BrokenTruth("no database: give options.setup, one script a database, or options.databases, paths")
        return self._databases.source(rules)

    def _expected(self, truth: SqlTruth, rules: SqlRules, source: Source) -> Expected:
        with source.lock:
            if truth.sql not in source.truths:
                source.truths[truth.sql] = self._run_truth(truth.sql, rules, source)
            return source.truths[truth.sql]

    def _run_truth(self, text: str, rules: SqlRules, source: Source) -> Expected:
        try:
            sql = statement(text)
            results = self._results(source, source.given, sql, rules.timeout_s)
        except MalformedAnswer as fault:
            raise BrokenTruth(f"truth.sql: {fault.reason}: {fault}") from None
        for i, result in enumerate(results):
            if "failed" in result:
                raise BrokenTruth(f"truth.sql: on database {i + 1}: {result['failed']}")
        if not any(result["rows"] for result in results):
            raise BrokenTruth("truth.sql: it gives no row on any database, so an answer of nothing would be right")
        databases = list(source.given)
        self._derive(sql, rules, source, databases, results)
        return Expected(tuple(databases), tuple(results), self._ties(sql, rules, source, databases, results))

    def _derive(self, sql: str, rules: SqlRules, source: Source, databases: list[str], results: list[dict]) -> None:
        """Add databases with other rows where those given don't tell a right query from its rows.

        Beside a single database come two: of those derived on which the truth gives other rows than on the first, the
        one with most and the one with fewest. Beside several that all give the same rows comes the one with most.
        """
        if len(results) > 1 and not all(same_rows(results[0]["rows"], result["rows"]) for result in results):
            return
        if not (derived := [path for seed in range(NUM_SEEDS) if (path := source.derive(seed))]):
            return
        try:
            found = self._results(source, derived, sql, NUM_SEEDS * rules.timeout_s)
        except MalformedAnswer:
            return
        given = results[0]["rows"]
        ran = [pair for pair in zip(derived, found, strict=True) if "rows" in pair[1]]
        useful = [pair for pair in ran if _says_something(pair[1])] or ran
        useful.sort(key=lambda pair: (same_rows(pair[1]["rows"], given), -len(pair[1]["rows"])))
        num_other = sum(not same_rows(result["rows"], given) for _, result in useful)
        for path, result in [*useful[:1], *useful[max(1, num_other - 1) :][: len(results) == 1]]:
            databases.append(path)
            results.append(result)

    def _ties(
        self, sql: str, rules: SqlRules, source: Source, databases: list[str], results: list[dict]
    ) -> tuple[list[int] | None, ...]:
        if (order := order_of(sql, rules.engine, results[0]["width"])) is None:
            return (None,) * len(results)
        try:
            longer = (
                results
                if order.query == sql
                else self._results(source, databases, order.query, len(databases) * rules.timeout_s)
            )
        except MalformedAnswer:
            longer = [{}] * len(results)
        return tuple(
            _tied(result["rows"], more.get("rows"), order.keys) for result, more in zip(results, longer, strict=True)
        )


def _says_something(result: dict[str, Any]) -> bool:
    """Not on nothing but NULLs: there an aggregate of no row, and no row, are the same thing to most people."""
    return any(value is not None for row in result["rows"] for value in row)


def _tied(rows: list[list], longer: list[list] | None, keys: tuple[int, ...]) -> list[int]:
    """Sizes of runs that tie; each row is its own where the keys did not come with the very rows of the truth."""
    if (
        longer is None
        or len(longer) != len(rows)
        or any(more[: len(row)] != row for row, more in zip(rows, longer, strict=True))
    ):
        return tie_sizes(rows)
    return tie_sizes([[row[key] for key in keys] for row in longer])


def statement(text: str) -> str:
    """The SQL of an answer: the whole text, or one ```sql fence that is the whole text; one semicolon may end it.

    Only the first word is looked at here: SELECT, WITH, or what a bracket or comment puts before them. Raises
    `MalformedAnswer` with reason `empty`, `too_long`, `repeated_tags`, `syntax`, `text_around` or `not_select`.
    """
    inner = not_empty(text)
    if len(inner) > MAX_CHARACTERS:
        raise MalformedAnswer("too_long", f"{len(inner)} characters; at most {MAX_CHARACTERS} are read")
    if fences := inner.count(_FENCE):
        inner = not_empty(_fenced(inner, fences))
    sql = inner.removesuffix(";").rstrip()
    if "\0" in sql or (not sql.isascii() and sql.encode("utf-8", "ignore").decode() != sql):
        raise MalformedAnswer("syntax", "a character that no SQL can have")
    start = _BEFORE_THE_FIRST_WORD.match(sql).end()
    word = _WORD.match(sql, start)[0]
    if start == len(sql):
        raise MalformedAnswer("empty", "no statement")
    if word.upper() not in ("SELECT", "WITH"):
        raise MalformedAnswer("not_select", f"it starts with {sql[start : start + 20]!r}, not with SELECT or WITH")
    return sql


def _fenced(text: str, fences: int) -> str:
    if fences > 2:
        raise MalformedAnswer("repeated_tags", f"{fences} fences; one block is asked for")
    if fences == 1:
        raise MalformedAnswer("syntax", "a fence that is not closed")
    if not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        raise MalformedAnswer("text_around", "text before or behind the fenced block")
    if not (opening := _OPENING.match(text)):
        raise MalformedAnswer("syntax", "the block is no SQL")
    return text[opening.end() : -len(_FENCE)]


def _fault(truth: dict[str, Any], answer: dict[str, Any], ties: list[int] | None) -> str | None:
    """What is wrong with an answer's result on one database, in words; none where it is the truth's."""
    if "failed" in answer:
        return answer["failed"]
    if answer["width"] != truth["width"]:
        return f"{answer['width']} columns, the truth has {truth['width']}"
    if same_rows(truth["rows"], answer["rows"]) if ties is None else same_order(truth["rows"], answer["rows"], ties):
        return None
    if len(answer["rows"]) != len(truth["rows"]):
        return f"{len(answer['rows'])} rows, the truth has {len(truth['rows'])}"
    return (
        "other rows"
        if ties is None or not same_rows(truth["rows"], answer["rows"])
        else "the right rows in another order"
    )
