"""The statistics of the health rules. Series are one-dimensional arrays in the order of their steps."""

from collections.abc import Mapping
from math import sqrt

import numpy as np
from scipy.special import ndtr, stdtr

MAX_CORRELATION = 0.9
"""A window of twenty points can't tell more persistence than this from a trend."""


def autocorrelation(values: np.ndarray) -> float:
    """At lag one, in 0..0.9, corrected for its bias of about `-(1 + 3 rho) / n` (Kendall, 1954); 0 for a constant."""
    n, centred = len(values), values - values.mean()
    power = float(centred @ centred)
    if n < 4 or power <= 1e-24:
        return 0.0
    raw = float(centred[1:] @ centred[:-1]) / power
    return float(np.clip((n * raw + 1) / (n - 3) if n > 3 else raw, 0.0, MAX_CORRELATION))


def effective_size(values: np.ndarray) -> float:
    """How many independent values tell as much of the mean: `n (1 - rho) / (1 + rho)`, at least 2."""
    rho = autocorrelation(values)
    return max(2.0, len(values) * (1 - rho) / (1 + rho))


def mean_error(values: np.ndarray) -> tuple[float, float]:
    """The standard error of the mean of an autocorrelated series, and its degrees of freedom."""
    size = effective_size(values)
    return float(values.std(ddof=1)) / sqrt(size), max(size - 1, 3.0)


def above(values: np.ndarray, limit: float, units: float | None = None) -> float:
    """p of "the mean is not above `limit`", one-sided. With `units`, the values are shares over that many prompts.

    Of shares it is the score test, whose inversion is Wilson's bound (JASA 22, 1927), with the deviation between steps
    where that is the larger one; of other values a t test with the effective sample size.
    """
    excess = float(values.mean()) - limit
    error, freedom = mean_error(values)
    binomial = sqrt(limit * (1 - limit) / units) if units else 0.0
    if excess <= 0:
        return 1.0
    if binomial >= error:
        return float(ndtr(-excess / binomial)) if binomial else 0.0
    return float(stdtr(freedom, -excess / error))


def change(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """How far the mean moved, and the standard error of that."""
    return float(after.mean() - before.mean()), sqrt(mean_error(before)[0] ** 2 + mean_error(after)[0] ** 2)


def sen_slope(values: np.ndarray) -> float:
    """The median slope over all pairs, a step of the series apart (Sen, JASA 63, 1968)."""
    i, j = np.triu_indices(len(values), 1)
    return float(np.median((values[j] - values[i]) / (j - i)))


def rising(values: np.ndarray) -> float:
    """p of "the series does not rise": Mann-Kendall, its variance corrected for autocorrelation.

    The correction is Hamed and Rao's (J. Hydrology 204, 1998, eq. 14) over the significant autocorrelations of the ranks
    of the series less its Sen slope. 1 for fewer than 8 values.
    """
    n = len(values)
    if n < 8:
        return 1.0
    i, j = np.triu_indices(n, 1)
    s = float(np.sign(values[j] - values[i]).sum())
    _, ties = np.unique(values, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    if variance <= 0:
        return 1.0
    rest = values - sen_slope(values) * np.arange(n)
    ranks = rest.argsort(kind="stable").argsort() - (n - 1) / 2
    lags = np.arange(1, n - 2)
    power = float(ranks @ ranks)
    rho = np.array([float(ranks[lag:] @ ranks[:-lag]) for lag in lags]) / power
    rho[np.abs(rho) < 1.96 / sqrt(n)] = 0.0
    factor = 1 + 2 / (n * (n - 1) * (n - 2)) * float(((n - lags) * (n - lags - 1) * (n - lags - 2) * rho).sum())
    z = (s - np.sign(s)) / sqrt(variance * max(factor, 1.0))
    return float(ndtr(-z))


def holm(p_values: Mapping[str, float], num_tests: int, level: float) -> dict[str, int]:
    """Those tests whose p values stay under `level` over `num_tests` tests together, with the factor of each correction.

    Step-down (Holm, Scand. J. Statistics 6, 1979); of the tests that are not among `p_values`, p is 1.
    """
    kept: dict[str, int] = {}
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p * (num_tests - rank) > level:
            break
        kept[name] = num_tests - rank
    return kept


def excursion(values: np.ndarray, limit: float) -> int:
    """Where the present excursion over `limit` began: the index after Page's cumulative sum was last at its lowest."""
    return int(np.argmin(np.concatenate([[0.0], np.cumsum(values - limit)])[:-1]))


def hinge(x: np.ndarray, y: np.ndarray, knots: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The best `a + b x + c max(0, x - knot)`: the knot, `(a, b, c)`, and their covariance.

    Least squares; the covariance is widened by the residuals' autocorrelation.
    """
    best = None
    for knot in knots:
        design = np.column_stack([np.ones_like(x), x, np.maximum(0.0, x - knot)])
        fit = np.linalg.lstsq(design, y, rcond=None)[0]
        rest = y - design @ fit
        if best is None or rest @ rest < best[3] @ best[3]:
            best = float(knot), fit, design, rest
    knot, fit, design, rest = best
    rho = autocorrelation(rest)
    variance = float(rest @ rest) / max(len(x) - 4, 1) * (1 + rho) / (1 - rho)
    return knot, fit, variance * np.linalg.pinv(design.T @ design)
