"""The health rules' statistics: against numbers worked out by hand, and against simulated series."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from oncurve.monitor.statistics import (
    above,
    autocorrelation,
    effective_size,
    excursion,
    hinge,
    holm,
    rising,
    sen_slope,
)
from oncurve.monitor.synthetic import ar1


def wilson_lower(share: float, num: float, level: float = 0.05) -> float:
    """Lower bound of a share over `num` units, one-sided at `level` (Wilson, JASA 22, 1927)."""
    z2 = ndtri(1 - level) ** 2
    spread = sqrt(z2 * (share * (1 - share) / num + z2 / (4 * num**2)))
    return (share + z2 / (2 * num) - spread) / (1 + z2 / num)


def test_wilson_lower_bound_by_hand():
    """8 of 80, z = 1.6449: (0.1 + 0.01691 - 1.6449 sqrt(0.001125 + 0.0001057)) / 1.03382."""
    assert wilson_lower(0.1, 80) == pytest.approx(0.0573, abs=2e-4)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 200), st.floats(0.01, 0.9), st.data())
def test_the_score_test_is_the_inverse_of_wilsons_bound(num, limit, data):
    share = data.draw(st.integers(0, num)) / num
    p = above(np.full(20, share), limit, num)
    if abs(wilson_lower(share, num) - limit) > 1e-9:
        assert (p < 0.05) == (wilson_lower(share, num) > limit)


def test_above_falls_back_to_steps_where_prompts_were_not_counted():
    values = np.array([0.1, 0.12, 0.08, 0.11, 0.09, 0.1, 0.12, 0.08])
    assert above(values, 0.05) < 0.001
    assert above(values, 0.1) == 1.0
    assert above(values, 0.05, units=8) > 0.2  # eight prompts tell little


def test_holm_by_hand():
    """Of 4 tests at 0.05: 0.01 <= 0.05 / 4, 0.016 <= 0.05 / 3, 0.03 > 0.05 / 2."""
    assert holm({"a": 0.03, "b": 0.01, "c": 0.016}, 4, 0.05) == {"b": 4, "c": 3}
    assert holm({"a": 0.02}, 4, 0.05) == {}


def test_sen_slope_and_trend_by_hand():
    values = np.array([1.0, 3.0, 2.0, 4.0, 5.0, 7.0, 6.0, 8.0])
    assert sen_slope(values) == pytest.approx(1.0)
    assert rising(values) < 0.01 < 0.99 < rising(-values)
    assert rising(np.ones(20)) == 1.0
    assert rising(values[:7]) == 1.0  # too few


@pytest.mark.parametrize("rho", [0.0, 0.4, 0.7])
def test_autocorrelated_noise_is_no_trend(rho):
    """400 series of 60 without a trend; uncorrected, Mann-Kendall would call a quarter of those with rho 0.7 rising."""
    rng = np.random.default_rng(1)
    share = np.mean([rising(ar1(rng, 60, 1.0, rho)) < 0.05 for _ in range(400)])
    assert share < 0.15


def test_a_trend_is_seen_through_autocorrelated_noise():
    rng = np.random.default_rng(2)
    assert np.mean([rising(np.arange(60) / 20 + ar1(rng, 60, 0.5, 0.6)) < 0.01 for _ in range(100)]) > 0.9


def test_autocorrelation_and_effective_size():
    rng = np.random.default_rng(3)
    assert autocorrelation(ar1(rng, 5000, 1.0, 0.6)) == pytest.approx(0.6, abs=0.05)
    assert effective_size(ar1(rng, 5000, 1.0, 0.6)) == pytest.approx(5000 * 0.4 / 1.6, rel=0.15)
    assert autocorrelation(np.ones(10)) == 0.0


def test_excursion_by_hand():
    assert excursion(np.array([0.0, 0.0, 0.0, 1.0, 1.0]), 0.5) == 3
    assert excursion(np.array([1.0, 1.0, 1.0]), 0.5) == 0
    assert excursion(np.array([1.0, 0.0, 0.0, 1.0]), 0.5) == 3


def test_hinge_finds_its_knot():
    x = np.arange(40.0)
    knot, fit, covariance = hinge(x, 1 + 0.5 * x + 2 * np.maximum(0, x - 25), np.arange(10.0, 35.0))
    assert knot == 25.0
    assert fit == pytest.approx([1.0, 0.5, 2.0])
    assert np.abs(covariance).max() < 1e-9
