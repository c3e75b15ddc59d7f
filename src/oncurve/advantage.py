"""Advantages: an answer's reward relative to its group, or to all answers of an update. Pure functions in float64."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Deviation = Literal["sample", "population", "none"]
Baseline = Literal["mean", "leave_one_out", "none"]


def deviation(rewards_G: ArrayLike, std: Deviation = "sample") -> float:
    """The group's standard deviation: `sample` divides by n-1, `population` by n. 0 for one reward or equal ones."""
    rewards = np.asarray(rewards_G, np.float64)
    assert rewards.ndim == 1, rewards.shape
    if len(rewards) < 2 or np.all(rewards == rewards[0]):
        return 0.0
    return float(rewards.std(ddof=1 if std == "sample" else 0))


def advantages(
    rewards_G: ArrayLike,
    scored_G: ArrayLike | None = None,
    *,
    std: Deviation = "sample",
    baseline: Baseline = "mean",
    eps: float = 1e-4,
    tolerance: float = 0.0,
) -> NDArray[np.float64]:
    """`(r - baseline) / (deviation + eps)` of each answer among the scored ones of its group; 0 for the others.

    `baseline` is the group's mean (GRPO, arXiv 2402.03300 section 4.1.2) or the mean of the other answers (RLOO, arXiv
    2402.14740 section 2.3), or `none`. `std = "none"` does not divide at all (Dr. GRPO, arXiv 2503.20783 eq. 3). Less a
    baseline, rewards that lie no further apart than `tolerance` give exactly 0, and so does a group with fewer than two
    scored answers.
    """
    rewards = np.asarray(rewards_G, np.float64)
    assert rewards.ndim == 1, rewards.shape
    scored = np.ones(len(rewards), bool) if scored_G is None else np.asarray(scored_G, bool)
    assert scored.shape == rewards.shape, (scored.shape, rewards.shape)
    result, kept = np.zeros(len(rewards)), rewards[scored]
    count = len(kept)
    if baseline != "none" and (count < 2 or np.ptp(kept) <= tolerance):
        return result
    distance = kept if baseline == "none" else kept - kept.mean()
    if baseline == "leave_one_out":
        distance *= count / (count - 1)
    result[scored] = distance if std == "none" else distance / (deviation(kept, std) + eps)
    return result


def update_advantages(
    rewards_PG: Sequence[Sequence[float]],
    scored_PG: Sequence[Sequence[bool]],
    *,
    std: Deviation = "sample",
    baseline: Baseline = "mean",
    over: Literal["group", "batch"] = "group",
    eps: float = 1e-4,
    tolerance: float = 0.0,
) -> list[tuple[float, ...]]:
    """The advantages of all groups of an update.

    Over `batch`, what an answer is above its group's baseline is itself brought to mean 0 and divided by its deviation
    over all scored answers of the update (REINFORCE++, arXiv 2501.03262: baseline `none`; its variant with a
    baseline: `mean`).
    """
    pairs = list(zip(rewards_PG, scored_PG, strict=True))
    options = {"baseline": baseline, "tolerance": tolerance}
    if over == "group":
        return [tuple(advantages(r, scored, std=std, eps=eps, **options).tolist()) for r, scored in pairs]
    distances_PG = [advantages(r, scored, std="none", **options) for r, scored in pairs]
    return _over_batch(distances_PG, scored_PG, std, eps)


def decoupled_advantages(
    parts_PKG: Sequence[ArrayLike],
    weights_PK: Sequence[Sequence[float]],
    scored_PG: Sequence[Sequence[bool]],
    *,
    std: Deviation = "sample",
    baseline: Baseline = "mean",
    eps: float = 1e-4,
) -> list[tuple[float, ...]]:
    """GDPO, arXiv 2601.05242: each part of the reward becomes an advantage in its group before they are added by weight.

    The sums are then brought to mean 0 and deviation 1 over all scored answers of the update. A part's own scale does
    not matter, its weight does.
    """
    sums_PG = [
        sum(
            weight * advantages(part_G, scored, std=std, baseline=baseline, eps=eps)
            for part_G, weight in zip(parts_KG, weights_K, strict=True)
        )
        for parts_KG, weights_K, scored in zip(parts_PKG, weights_PK, scored_PG, strict=True)
    ]
    return _over_batch(sums_PG, scored_PG, std, eps)


def _over_batch(
    values_PG: Sequence[NDArray[np.float64]], scored_PG: Sequence[Sequence[bool]], std: Deviation, eps: float
) -> list[tuple[float, ...]]:
    whole = advantages(np.concatenate(values_PG), np.concatenate(list(scored_PG)), std=std, eps=eps)
    rest = iter(whole.tolist())
    return [tuple(next(rest) for _ in values) for values in values_PG]
