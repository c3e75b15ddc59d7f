"""Results of SQL side by side: multisets, order with ties, floats, NULLs; and what a truth sorts by."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.rewards.sql_order import order_of
from oncurve.rewards.sql_rows import same_cell, same_order, same_rows, tie_sizes

CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.floats(),
    st.text(max_size=2),
    st.just({"bytes": "00"}),
    st.just({"list": [1.0, None]}),
)
ROWS = st.integers(0, 3).flatmap(lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=8))


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (None, None, True),
        (None, "", False),
        (None, 0, False),
        ("", 0, False),
        ("1", 1, False),
        (1, 1.0, True),
        (1, True, True),
        (0, False, True),
        (1_000_000, 1_000_001, False),  # whole numbers are exact
        (1_000_000.0, 1_000_000.9, True),  # 0.9e-6 of the larger
        (1_000_000.0, 1_000_001.1, False),
        (1_000_000, 1_000_000.9, True),
        (0.0, 1e-9, False),  # relative
        (0.1 + 0.2, 0.3, True),
        (math.nan, math.nan, True),
        (math.inf, math.inf, True),
        (math.inf, -math.inf, False),
        (math.inf, 1e308, False),
        (10**400, 1.5, False),
        (10**400, 10**400, True),
        ("a", "A", False),
        ("a", "a ", False),
        ({"date": "2020-01-01"}, {"date": "2020-01-01"}, True),
        ({"date": "2020-01-01"}, "2020-01-01", False),
        ({"date": "2020-01-01"}, {"datetime": "2020-01-01"}, False),
        ({"list": [1, 0.3]}, {"list": [1.0, 0.1 + 0.2]}, True),
        ({"list": [1]}, {"list": [1, 1]}, False),
    ],
)
def test_cells(a, b, same):
    assert same_cell(a, b) is same
    assert same_cell(b, a) is same


@given(ROWS, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_order_of_rows_does_not_matter_and_their_number_does(rows, draw):
    shuffled = rows[:]
    draw.shuffle(shuffled)
    assert same_rows(rows, shuffled)
    if rows:
        assert not same_rows(rows, rows[1:])
        assert not same_rows(rows, [*rows, rows[0]])


def test_a_multiset_is_no_set():
    assert not same_rows([["a"], ["a"], ["b"]], [["a"], ["b"], ["b"]])
    assert not same_rows([["a", 1], ["b", 2]], [["a", 2], ["b", 1]])
    assert not same_rows([["a", 1]], [[1, "a"]])  # the order of columns matters


def test_rows_that_rounding_sorts_apart_still_meet():
    """Sorted by value, 0.3 (2) and 0.3 + an ulp (1) stand against 0.3 (1) and 0.3 (2)."""
    assert same_rows([[0.3, 2], [math.nextafter(0.3, 1), 1]], [[0.3, 1], [0.3, 2]])
    near = [[1 + 4e-7, 1], [1.0, 2], [1 + 9e-7, 3]]
    assert same_rows(near, [[1.0, 3], [1.0, 1], [1.0, 2]])
    assert not same_rows(near, [[1.0, 3], [1.0, 1], [1.0, 1]])


def test_a_matching_is_one_to_one():
    """1.0 and 1.0000015 are both near 1.0000008, and can't both have it."""
    assert not same_rows([[1.0], [1.0000015]], [[1.0000008], [2.0]])
    assert not same_rows([[1.0, 0], [1.0000015, 0]], [[1.0000008, 0], [1.0000023, 1]])
    assert same_rows([[1.0], [1.0000015]], [[1.0000008], [1.0000008]])


def test_rows_by_the_thousand_are_quick_to_compare():
    rows = [[i, float(i) / 7, f"name {i % 10}", None] for i in range(20_000)]
    shuffled = rows[:]
    random.Random(0).shuffle(shuffled)
    assert same_rows(rows, shuffled)
    shuffled[7] = [*shuffled[7][:3], ""]
    assert not same_rows(rows, shuffled)


def test_ties_may_change_places_and_nothing_else():
    truth, ties = [["a"], ["b"], ["c"]], [2, 1]
    assert same_order(truth, [["b"], ["a"], ["c"]], ties)
    assert not same_order(truth, [["a"], ["c"], ["b"]], ties)
    assert not same_order(truth, [["a"], ["b"]], ties)
    assert tie_sizes([[3], [3], [1], [None], [None], [3]]) == [2, 1, 2, 1]


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        ("SELECT a, b FROM t", None),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", None),
        ("SELECT a, row_number() OVER (ORDER BY b) FROM t", None),
        ("SELECT a, b FROM t ORDER BY b, a DESC", (1, 0)),
        ("SELECT a, b FROM t ORDER BY 2", (1,)),
        ("SELECT a, b AS a FROM t ORDER BY b", (1,)),
        ("SELECT a, sum(b) FROM t GROUP BY a ORDER BY sum(b)", (1,)),
        ("SELECT a, b FROM t UNION SELECT a, c FROM t ORDER BY b LIMIT 3", (1,)),
        ("WITH s AS (SELECT a, b FROM t) SELECT a, b FROM s ORDER BY a", (0,)),
    ],
)
def test_keys_that_stand_in_the_result(sql, keys):
    order = order_of(sql, "sqlite", 2)
    assert (order and order.keys) == keys
    assert order is None or order.query == sql


@pytest.mark.parametrize(
    ("sql", "keys", "query"),
    [
        ("SELECT a, b FROM t ORDER BY c", (2,), "SELECT a, b, c FROM t ORDER BY c"),
        (
            "SELECT a, b FROM t ORDER BY b, c + 1, t.d",
            (1, 2, 3),
            "SELECT a, b, c + 1, t.d FROM t ORDER BY b, c + 1, t.d",
        ),
        ("SELECT a, b AS n FROM t ORDER BY n + 1", (2,), "SELECT a, b AS n, (b) + 1 FROM t ORDER BY n + 1"),
        ("SELECT * FROM t ORDER BY b LIMIT 2", (2,), "SELECT *, b FROM t ORDER BY b LIMIT 2"),
    ],
)
def test_keys_that_are_put_beside_the_result(sql, keys, query):
    order = order_of(sql, "sqlite", 2)
    assert (order.keys, order.query) == (keys, query)


@pytest.mark.parametrize(
    "sql",
    ["SELECT DISTINCT a, b FROM t ORDER BY c", "SELECT a, b FROM t ORDER BY b &&& c"],
)
def test_where_keys_can_not_be_shown_the_whole_row_is_the_key(sql):
    assert order_of(sql, "sqlite", 2).keys == (0, 1)
