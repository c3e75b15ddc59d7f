"""When two results of SQL are the same: pure functions over rows of plain JSON, as `sql_engines.cell` writes them."""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import Any

RELATIVE = 1e-6
MAX_MATCHED = 300  # rows among which a one-to-one matching is searched for
SORT_DIGITS = 9

Row = list[Any]


def same_cell(a: Any, b: Any) -> bool:
    """Numbers by value, two whole ones exactly and others within 1e-6 of the larger; NULL and NaN equal themselves only.

    True is 1, as in SQLite. A text never equals a number, nor a date the text that shows it.
    """
    if isinstance(a, int | float) and isinstance(b, int | float):
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        try:
            return math.isclose(a, b, rel_tol=RELATIVE) or (a != a and b != b)
        except OverflowError:
            return a == b
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same_cell, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_cell(a[key], b[key]) for key in a)
    return a == b


def same_row(a: Row, b: Row) -> bool:
    return len(a) == len(b) and all(map(same_cell, a, b))


def same_rows(a: Sequence[Row], b: Sequence[Row]) -> bool:
    """Whether the rows can be matched one to one, in whatever order they come."""
    if len(a) != len(b):
        return False
    these, those = _alike(a), _alike(b)
    return these.keys() == those.keys() and all(_matched(these[key], those[key]) for key in these)


def same_order(a: Sequence[Row], b: Sequence[Row], ties: Sequence[int]) -> bool:
    """Whether `b` has the rows of `a` in their order; `ties` are the sizes of the runs of `a` that tie, any order inside."""
    if len(a) != len(b):
        return False
    start = 0
    for size in ties:
        if not same_rows(a[start : start + size], b[start : start + size]):
            return False
        start += size
    return True


def tie_sizes(keys: Sequence[Row]) -> list[int]:
    """The sizes of the runs of rows whose keys are the same. Example: `[[3], [3], [1]]` gives `[2, 1]`."""
    return [len(list(run)) for _, run in groupby(keys, key=repr)]


def _alike(rows: Sequence[Row]) -> dict[tuple, list[Row]]:
    """Rows by all that must be exactly equal in them."""
    found: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(_exact(value) for value in row)].append(row)
    return found


def _exact(value: Any) -> Any:
    return type(value) if isinstance(value, list | dict) else None if isinstance(value, int | float) else (value,)


def _matched(a: list[Row], b: list[Row]) -> bool:
    if len(a) != len(b):
        return False
    if all(map(same_row, sorted(a, key=_sort_key), sorted(b, key=_sort_key))):
        return True
    if len(a) > MAX_MATCHED:
        return False
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    pairs = csr_array([[same_row(row, other) for other in b] for row in a])
    return bool((maximum_bipartite_matching(pairs) >= 0).all())


def _sort_key(row: Row) -> tuple:
    """Rows that differ by rounding alone mostly sort alike; where they don't, a matching decides."""
    return tuple(_rounded(value) if isinstance(value, int | float) else repr(value) for value in row)


def _rounded(value: float) -> float:
    if isinstance(value, int):
        return value
    return float(f"{value:.{SORT_DIGITS}g}") if value == value else math.inf
