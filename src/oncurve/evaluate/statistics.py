"""Shares, means and differences with 95 % intervals over tasks. Pure functions; what is drawn is seeded, so it repeats."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Z95 = 1.959963984540054
NUM_RESAMPLES = 1000
NUM_RESAMPLES_PAIRED = 10_000
CHUNK = 2_000_000  # numbers drawn at once
LEVEL = 0.05

Verdict = Literal["B is better", "B is worse", "can't tell"]


@dataclass(frozen=True, slots=True)
class Measure:
    """A number and its 95 % interval, None where none is computed. Example: `share([True, False])`."""

    value: float
    interval: tuple[float, float] | None = None


def share(hits: Sequence[bool] | NDArray[np.bool_]) -> Measure:
    """The share of tasks that hit, with Wilson's interval."""
    value = float(np.mean(hits))
    return Measure(value, wilson(value, len(hits)))


def mean(values: ArrayLike) -> Measure:
    """The mean over tasks, with a bootstrap interval."""
    return Measure(float(np.mean(values)), bootstrap(values))


def ratio(parts: ArrayLike, wholes: ArrayLike) -> Measure:
    """The sum of `parts` over the sum of `wholes`, one of each a task, with a bootstrap interval."""
    return Measure(float(np.sum(parts) / np.sum(wholes)), bootstrap(parts, wholes))


def wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % score interval of a share of `n` (E. B. Wilson, 1927)."""
    middle = share + Z95**2 / (2 * n)
    spread = Z95 * math.sqrt(share * (1 - share) / n + Z95**2 / (4 * n**2))
    scale = 1 + Z95**2 / n
    return (middle - spread) / scale if share else 0.0, (middle + spread) / scale if share < 1 else 1.0


def bootstrap(values: ArrayLike, wholes: ArrayLike | None = None, seed: int = 0) -> tuple[float, float]:
    """The 95 % percentile interval of the mean over resampled tasks (B. Efron, 1979), or of sum over sum."""
    values = np.asarray(values, np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(values), (NUM_RESAMPLES, len(values)))
    found = values[drawn].mean(1)
    if wholes is not None:
        found /= np.asarray(wholes, np.float64)[drawn].mean(1)
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimate that one of `k` answers is right, of `n` drawn with `c` right (arXiv 2107.03374 eq. 1)."""
    assert 0 <= c <= n, (c, n)
    assert 1 <= k <= n, (k, n)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


@dataclass(frozen=True, slots=True)
class Difference:
    """What B has over A on the same tasks."""

    a_mean: float
    b_mean: float
    interval_95: tuple[float, float]  # of b_mean - a_mean: percentile bootstrap over tasks
    p_value: float  # two-sided, sign-flip permutation test
    p_b_better: float  # share of the resamples in which B is ahead, a tie counting half

    @property
    def difference(self) -> float:
        return self.b_mean - self.a_mean

    @property
    def verdict(self) -> Verdict:
        """The interval and the test must agree: with few tasks that differ, the bootstrap alone is too sure."""
        low, high = self.interval_95
        if self.p_value < LEVEL and low > 0:
            return "B is better"
        return "B is worse" if self.p_value < LEVEL and high < 0 else "can't tell"


def paired_difference(a: ArrayLike, b: ArrayLike, seed: int = 0) -> Difference:
    """Compare two models by one number a task, in the same order.

    The test asks how often a mean difference this large comes about when each task's difference gets a random sign
    (R. A. Fisher, 1935); its p-value counts the one observed as well, so that it is never 0.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert a.shape == b.shape, (a.shape, b.shape)
    assert a.ndim == 1, a.shape
    assert len(a), "no task"
    deltas, rng = b - a, np.random.default_rng(seed)
    sizes = list(_sizes(len(deltas)))
    means = np.concatenate([deltas[rng.integers(0, len(deltas), (rows, len(deltas)))].mean(1) for rows in sizes])
    flipped = np.concatenate([(rng.choice([-1.0, 1.0], (rows, len(deltas))) * deltas).mean(1) for rows in sizes])
    rounding = 1e-12 * np.abs(deltas).sum()
    as_large = np.abs(flipped) >= abs(deltas.mean()) - rounding
    low, high = np.quantile(means, [0.025, 0.975])
    return Difference(
        float(a.mean()),
        float(b.mean()),
        (float(low), float(high)),
        float((1 + as_large.sum()) / (1 + len(flipped))),
        float(np.mean(np.where(np.abs(means) <= rounding, 0.5, means > 0))),
    )


def _sizes(num_tasks: int) -> Iterator[int]:
    """Resamples in pieces that fit into memory."""
    rows = max(1, min(NUM_RESAMPLES_PAIRED, CHUNK // num_tasks))
    for done in range(0, NUM_RESAMPLES_PAIRED, rows):
        yield min(rows, NUM_RESAMPLES_PAIRED - done)
