"""Intervals and tests of an evaluation against known values, enumeration and invariants."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.evaluate.statistics import Measure, bootstrap, mean, paired_difference, pass_at_k, ratio, share, wilson


@pytest.mark.parametrize(
    ("share", "n", "expected"),
    [
        (0.5, 10, (0.2366, 0.7634)),  # R. Newcombe's and textbook values, to four digits
        (0.0, 10, (0.0, 0.2775)),
        (1.0, 10, (0.7225, 1.0)),
        (81 / 263, 263, (0.2553, 0.3662)),  # R. Newcombe, 1998, table I
        (15 / 148, 148, (0.0624, 0.1605)),
        (1 / 29, 29, (0.0061, 0.1718)),
    ],
)
def test_wilson_against_known_values(share, n, expected):
    assert wilson(share, n) == pytest.approx(expected, abs=6e-5)


@given(n=st.integers(1, 2000), data=st.data())
@settings(deadline=None, max_examples=50)
def test_wilson_holds_the_share_and_is_symmetric(n, data):
    share = data.draw(st.integers(0, n)) / n
    low, high = wilson(share, n)
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1
    assert wilson(1 - share, n) == pytest.approx((1 - high, 1 - low), abs=1e-12)


def test_bootstrap_of_equal_values_is_that_value():
    assert bootstrap([0.3] * 20) == pytest.approx((0.3, 0.3))


def test_bootstrap_is_near_the_normal_interval_and_repeats():
    values = np.random.default_rng(1).random(400)
    half = 1.96 * values.std() / 20
    low, high = bootstrap(values)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.15 * half)
    assert bootstrap(values) == (low, high)
    assert bootstrap(values, seed=1) != (low, high)


def test_bootstrap_of_two_values_by_hand():
    """A mean of 0, 1/2 or 1 with probabilities 1/4, 1/2, 1/4: both tails are beyond 2.5 %."""
    assert bootstrap([0.0, 1.0]) == (0.0, 1.0)


def test_measures_by_hand():
    assert share([True, False, True, True]) == Measure(0.75, wilson(0.75, 4))
    assert mean([0.5, 1.0]) == Measure(0.75, (0.5, 1.0))
    assert ratio([1, 1], [2, 8]) == Measure(0.2, (0.125, 0.5))  # a long text weighs more than a short one


@pytest.mark.parametrize("n", [1, 4, 6])
def test_pass_at_k_is_the_share_of_draws_with_a_right_answer(n):
    for c in range(n + 1):
        for k in range(1, n + 1):
            draws = list(combinations([True] * c + [False] * (n - c), k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_k_of_the_paper_is_not_the_biased_estimate():
    assert pass_at_k(10, 3, 5) == pytest.approx(1 - 21 / 252)
    assert pass_at_k(10, 3, 5) > 1 - (1 - 3 / 10) ** 5
    assert pass_at_k(200, 0, 100) == 0.0


def test_a_clear_difference():
    rng = np.random.default_rng(0)
    a = rng.random(200)
    found = paired_difference(a, a + 0.1 + rng.normal(0, 0.05, 200))
    assert found.difference == pytest.approx(0.1, abs=0.01)
    assert found.interval_95[0] < 0.1 < found.interval_95[1]
    assert found.interval_95[1] - found.interval_95[0] == pytest.approx(2 * 1.96 * 0.05 / np.sqrt(200), rel=0.2)
    assert found.p_value == pytest.approx(1 / 10_001)
    assert found.p_b_better == 1.0
    assert found.verdict == "B is better"
    assert paired_difference(a + 0.1, a).verdict == "B is worse"


def test_the_pairing_counts_and_not_the_spread_between_tasks():
    """Tasks differ by far more than the two models do."""
    a = np.linspace(0, 100, 50)
    assert paired_difference(a, a + 0.01).verdict == "B is better"


def test_the_same_answers_tell_nothing():
    found = paired_difference([0, 1, 1], [0, 1, 1])
    assert (found.difference, found.interval_95, found.p_value, found.p_b_better) == (0.0, (0.0, 0.0), 1.0, 0.5)
    assert found.verdict == "can't tell"


@pytest.mark.parametrize(("num_gained", "p", "verdict"), [(4, 1 / 8, "can't tell"), (8, 1 / 128, "B is better")])
def test_few_changed_tasks_are_judged_by_the_exact_sign_test(num_gained, p, verdict):
    """Of m tasks that changed, all to one side, the chance is 2 / 2^m; the bootstrap alone would be sure of four."""
    found = paired_difference(np.zeros(100), np.arange(100) < num_gained)
    assert found.interval_95[0] > 0
    assert found.p_value == pytest.approx(p, abs=0.01)
    assert found.verdict == verdict


def test_two_alike_models_are_seldom_told_apart():
    rng = np.random.default_rng(3)
    verdicts = [paired_difference(*(rng.random((2, 60)) < 0.6)).verdict for _ in range(60)]
    assert sum(verdict != "can't tell" for verdict in verdicts) <= 8  # 3 are expected


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
@settings(deadline=None, max_examples=20)
def test_swapping_the_models_swaps_the_verdict(pairs):
    a, b = (np.array(side, float) for side in zip(*pairs, strict=True))
    there, back = paired_difference(a, b), paired_difference(b, a)
    assert back.difference == -there.difference
    assert back.interval_95 == pytest.approx((-there.interval_95[1], -there.interval_95[0]))
    assert back.p_value == there.p_value
    assert back.p_b_better == pytest.approx(1 - there.p_b_better)
    swapped = {"B is better": "B is worse", "B is worse": "B is better", "can't tell": "can't tell"}
    assert back.verdict == swapped[there.verdict]
