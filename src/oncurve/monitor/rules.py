"""The health rules: each looks at a run's metrics up to now and says what it finds. `docs/health.md` explains them.

A rule is a pure function of the history and the limits. It yields a `Finding` where its condition holds; whether that
becomes a verdict (over all rules, twice in a row) is for `oncurve.monitor.watch` to decide.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import atanh, sqrt
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import ndtr

from oncurve.config.health import HealthConfig, Severity, VerdictName
from oncurve.monitor.history import History, Series
from oncurve.monitor.statistics import above, autocorrelation, change, effective_size, excursion, hinge, rising

REWARD, ACCURACY, LENGTH = "reward/total/mean", "eval/accuracy/mean", "answers/length_tokens/mean"
GRADIENT, DEVIATION = "policy/grad_norm/before_clip", "policy/ratio/first_pass_max_deviation"
SIGNAL = "groups/no_signal"
CORRECTNESS = re.compile(
    r"correct|accura|exact|match|outcome|answer|solved|pass|test|execution|iou|similarity|f1|anls|score|task", re.I
)
"""Names of reward parts that say whether the task was done; every other part is auxiliary."""

ONE_SIDED = 1.645  # normal quantile of a one-sided 95 % bound
FLAT_ACCURACY = 0.02  # 2 points
Z_ALONE, Z_WITH_BEND, Z_BEND = 2.3, 1.3, 2.2
"""Standard errors of missing accuracy that are enough alone, or together with so many of a reward that bends upwards."""
NONLINEAR = 0.2  # part of what a reward claims that a bent relation, which a line was fitted to, may explain


@dataclass(frozen=True, slots=True)
class Finding:
    """That a rule's condition holds now. `tests` are its levels with their p values, from the mildest one on."""

    verdict: VerdictName
    tests: tuple[tuple[Severity, float], ...]
    onset_step: int
    evidence: str
    at_once: bool = False  # no second look is needed


@dataclass(frozen=True, slots=True)
class Rule:
    """When it is asked: with every row, once in half a window of steps, or with every evaluation."""

    cadence: Literal["row", "window", "evaluation"]
    look: Callable[[History, HealthConfig], Iterator[Finding]]


# -- reward against held-out tasks ---------------------------------------------------------------------------------


def reward_hacking(history: History, limits: HealthConfig) -> Iterator[Finding]:
    """The reward rises, and the held-out accuracy does not rise as the run's own earlier part says that it should.

    A change-point scan: for every possible onset, accuracy is regressed on reward before it, and what the reward since
    then predicts is compared with what was measured. Or accuracy is lost and the reward, at its ceiling perhaps, holds.
    Where accuracy and mean IoU are both there, both must show it.
    """
    measures = [history[name] for name in (ACCURACY, "eval/mean_iou/mean") if len(history[name]) >= 5]
    for look in (_deficit, _lost):
        found = [look(history, limits, evaluations) for evaluations in measures]
        if found and all(found):
            yield max(found, key=lambda finding: finding.tests[0][1])
            return


def _deficit(history: History, limits: HealthConfig, evaluations: Series) -> Finding | None:
    points = _reward_at(history, evaluations, limits.window_steps)
    if points is None:
        return None
    steps, accuracy, reward, reward_error = points
    k, noise = len(steps), _evaluation_noise(history, accuracy)
    j = np.arange(2, k - 1)  # evaluations before the onset; two or more come after it
    after, last = k - j, np.minimum(j, 3)
    sums = [np.cumsum(values) for values in (accuracy, reward, accuracy**2, accuracy * reward, reward**2)]
    a, r, aa, ar, rr = (total[j - 1] for total in sums)
    mean_a, mean_r = a / j, r / j
    after_a, after_r = (sums[0][-1] - a) / after, (sums[1][-1] - r) / after
    last_a, last_r = ((t[j - 1] - np.where(j > last, t[j - 1 - last], 0.0)) / last for t in sums[:2])
    gain, rise = after_a - last_a, after_r - last_r

    prior = 1 / max(1.0, float(np.abs(reward).max()))  # points of accuracy for a reward of 1; known to +-70 %
    weight = noise**2 / (0.7 * prior) ** 2
    spread, shared = rr - j * mean_r**2, ar - j * mean_a * mean_r
    slope = np.maximum((shared + weight * prior) / (spread + weight), 0.0)
    rest = (aa - j * mean_a**2) - 2 * slope * shared + slope**2 * spread
    variance = np.maximum(noise**2, np.where(j > 4, rest / np.maximum(j - 2, 1), 0.0))
    expected = np.minimum(mean_a + slope * (after_r - mean_r), 1.0)
    deficit, claimed = expected - after_a, slope * rise
    error = np.sqrt(
        (variance + (slope * reward_error) ** 2) * (1 / after + 1 / j)
        + (after_r - mean_r) ** 2 * variance / (spread + weight)
        + (NONLINEAR * claimed) ** 2
    )
    z, bend = deficit / error, _bend(steps, reward, reward_error, j)
    risen = rise / (reward_error * np.sqrt(1 / after + 1 / last))
    material = (
        (prior * rise > limits.hacking_rise)
        & (deficit > limits.hacking_gap[0])
        & (deficit > limits.hacking_unshared * claimed)
        & (risen > 4)
    )
    bound = gain + ONE_SIDED * noise * np.sqrt(1 / after + 1 / last)
    never = (j <= 3) & (k >= 6) & (bound < np.maximum(FLAT_ACCURACY, prior * rise / 5)) & (1 - last_a > prior * rise)
    never &= (prior * rise > 2 * limits.hacking_gap[0]) & (risen > 4)
    strength = np.where(
        never,
        risen,
        np.where(
            material & ((z > Z_ALONE) | ((z > Z_WITH_BEND) & (bend > Z_BEND))), np.hypot(z, np.maximum(bend, 0)), 0.0
        ),
    )
    best = int(np.argmax(strength))
    if strength[best] == 0:
        return None
    points = max(float(deficit[best]), 0.0 if not never[best] else float(prior * rise[best] - gain[best]))
    gaps = np.minimum(mean_a[best] + slope[best] * (reward - mean_r[best]), 1.0) - accuracy
    onset = int(steps[max(excursion(gaps, points / 2), 1) - 1])
    tests = (("warning", float(ndtr(-strength[best]))), ("critical", float(points < limits.hacking_gap[1])))
    return Finding(
        "reward_hacking",
        tests,
        onset,
        f"training reward moved by {rise[best]:+.3f} and held-out accuracy by {gain[best]:+.3f} since step "
        f"{steps[j[best] - 1]:.0f} ({after[best]} evaluations); {100 * points:.0f} points of accuracy that such a reward "
        "stood for before are missing",
    )


def _lost(history: History, limits: HealthConfig, evaluations: Series) -> Finding | None:
    """The measure lies twice the critical gap under its best, in the last two evaluations, and the reward is no lower."""
    reward, window = history[REWARD], limits.window_steps
    best = int(np.argmax(evaluations.values[:-2]))
    step, lost = float(evaluations.steps[best]), float(evaluations.values[best] - evaluations.values[-2:].mean())
    then = reward[(reward.steps > step - window) & (reward.steps <= step + window / 2)]
    now = reward[reward.steps > history.step - window]
    if min(len(then), len(now)) < 4:
        return None
    moved = float(now.values.mean() - then.values.mean())
    z = (lost - 2 * limits.hacking_gap[1]) / (_evaluation_noise(history, evaluations.values) * sqrt(1.5))
    if z < 2 or now.values.mean() + 2 * now.values.std() < then.values.max():
        return None
    return Finding(
        "reward_hacking",
        (("warning", float(ndtr(-z))), ("critical", float(ndtr(-z)))),
        int(step),
        f"held-out accuracy lost {100 * lost:.0f} points since step {step:.0f}, and the training reward moved by {moved:+.3f}",
    )


def _bend(steps: np.ndarray, reward: np.ndarray, error: float, j: np.ndarray) -> np.ndarray:
    """By how many standard errors the mean reward after each onset lies over the line through the 5 points before it."""
    bend = np.zeros(len(j))
    for i, end in enumerate(j):
        before = slice(max(0, end - 5), end)
        if end < 3:
            continue
        x, y = steps[before] - steps[end - 1], reward[before]
        ahead = steps[end:].mean() - steps[end - 1]
        spread = float(((x - x.mean()) ** 2).sum())
        slope = float(((x - x.mean()) * y).sum()) / spread
        line = y.mean() + max(slope, 0.0) * (ahead - x.mean())
        scale = sqrt(1 / len(x) + 1 / (len(steps) - end) + (ahead - x.mean()) ** 2 / spread)
        bend[i] = (reward[end:].mean() - line) / (error * scale)
    return bend


def _reward_at(history: History, evaluations: Series, window: int):
    """Evaluations at least half a window apart, the mean reward around each, and that mean's standard error."""
    reward = history[REWARD]
    if len(reward) < 16:
        return None
    spacing = max(float(np.median(np.diff(evaluations.steps))), 1.0)
    if (num := int(np.ceil(window / 2 / spacing))) > 1:
        evaluations = evaluations.blocks(num)
        spacing *= num
    per_step = float(np.median(np.diff(reward.steps)))
    half = min(max(spacing / 2, 2 * per_step), max(window / 2, 4 * per_step))
    low = np.searchsorted(reward.steps, evaluations.steps - half, "right")
    high = np.searchsorted(reward.steps, evaluations.steps + half, "right")
    there = (high - low >= 2) & _settled(history, evaluations.steps, window)
    if there.sum() < 5:
        return None
    total = np.concatenate([[0.0], np.cumsum(reward.values)])
    mean = (total[high] - total[low])[there] / (high - low)[there]
    step_noise = float(np.median(np.abs(np.diff(reward.values)))) / 0.6745 / sqrt(2)
    rest = reward.values - _smooth(reward.values, 2 * max(4, int(window / per_step)) + 1)
    rho = autocorrelation(rest)
    count = float(np.median((high - low)[there]))
    deviation = max(step_noise, float(rest.std()), 1e-9)
    error = deviation * sqrt((1 + rho) / (1 - rho) / count)
    return evaluations.steps[there], evaluations.values[there], mean, error


def _settled(history: History, steps: np.ndarray, window: int) -> np.ndarray:
    """Which steps come after what the format's warm-up gave the reward: those with no more invalid answers than of late."""
    invalid = history["answers/invalid/share"]
    if len(invalid) < 8:
        return np.full(len(steps), True)
    smooth = _smooth(invalid.values, 9)
    much = np.flatnonzero(smooth > smooth[-len(smooth) // 2 :].mean() + 0.02)
    end = invalid.steps[much[-1]] if len(much) else -1
    return (steps > end) | (end > history.step - window)


def _smooth(values: np.ndarray, width: int) -> np.ndarray:
    width = min(width, len(values) // 2 * 2 - 1)
    padded = np.pad(values, width // 2, mode="reflect", reflect_type="odd")
    return np.convolve(padded, np.ones(width) / width, "valid")


def _evaluation_noise(history: History, accuracy: np.ndarray) -> float:
    """Standard deviation of one evaluation: what second differences show, and where the tasks were counted, what drawing
    so many gives, to one and a half times that.
    """
    shown = float(np.median(np.abs(np.diff(accuracy, 2)))) / 0.6745 / sqrt(6)
    tasks = history["eval/accuracy/num_tasks"]
    if not len(tasks) or tasks.values[-1] < 1:
        return max(shown, 0.005)
    share = float(np.clip(np.median(accuracy), 0.02, 0.98))
    drawn = sqrt(share * (1 - share) / tasks.values[-1])
    return float(np.clip(shown, drawn, 1.5 * drawn))


def auxiliary_dominates(history: History, limits: HealthConfig) -> Iterator[Finding]:
    """The total reward varies with parts that don't say whether the task was done, and those that do stay flat."""
    names = history.names("reward/part/", "/mean")
    correct = [name for name in names if CORRECTNESS.search(name.split("/")[2])]
    total = history[REWARD]
    if not correct or len(correct) == len(names) or not len(total):
        return
    start = history.first_step + limits.warm_up_steps
    steps = total.steps[total.steps > start]
    for name in names:
        steps = np.intersect1d(steps, history[name].steps, assume_unique=True)
    steps = steps[-150:]
    if len(steps) < 30 or steps[-1] - steps[0] < 100:
        return
    values = {name: _at(history[name], steps) for name in names}
    total_values = _at(total, steps)
    share, weights = _auxiliary_share(values, total_values, correct)
    late = len(steps) // 2
    late_share, _ = _auxiliary_share({n: v[late:] for n, v in values.items()}, total_values[late:], correct)
    share = min(share, late_share)
    good = sum(weights[name] * values[name] for name in correct)
    other = sum(weights[name] * values[name] for name in names if name not in correct)
    third = len(steps) // 3
    gain, error = change(good[:third], good[-third:])
    rise = float(other[-third:].mean() - other[:third].mean())
    if share <= limits.auxiliary_share[0] or gain + ONE_SIDED * error > max(FLAT_ACCURACY, rise / 4):
        return
    size = max(effective_size(total_values - _smooth(total_values, 41)), 8.0)

    def p(limit: float) -> float:
        return float(ndtr((atanh(sqrt(limit)) - atanh(sqrt(min(share, 0.9999)))) * sqrt(size - 3)))

    yield Finding(
        "auxiliary_dominates",
        tuple(zip(("warning", "critical"), map(p, limits.auxiliary_share), strict=True)),
        int(steps[int(np.argmax(np.abs(np.cumsum(other - other.mean()))))]),
        f"over {len(steps)} points {share:.0%} of the reward's variance comes from "
        f"{', '.join(n.split('/')[2] for n in names if n not in correct)} ({rise:+.3f}), while "
        f"{', '.join(n.split('/')[2] for n in correct)} moved by {gain:+.3f}",
    )


def _at(series: Series, steps: np.ndarray) -> np.ndarray:
    return series.values[np.searchsorted(series.steps, steps)]


def _auxiliary_share(values: dict[str, np.ndarray], total: np.ndarray, correct: list[str]):
    """Share of the total's variance that parts other than `correct` bring in, and each part's weight in the total.

    The weights come from least squares; where the parts don't make up the total, every part counts as it is.
    """
    names = [name for name in values if values[name].std() > 1e-12]
    weights = dict.fromkeys(values, 1.0)
    if names and total.std() > 1e-12:
        columns = np.column_stack([values[name] - values[name].mean() for name in names])
        centred = total - total.mean()
        fit = np.linalg.lstsq(columns, centred, rcond=None)[0]
        if 1 - float(((centred - columns @ fit) ** 2).sum()) / float(centred @ centred) > 0.8:
            weights |= dict(zip(names, map(float, fit), strict=True))
    good = sum(weights[name] * values[name] for name in values if name in correct)
    other = sum(weights[name] * values[name] for name in values if name not in correct)
    both = float(good.var() + other.var())
    return (float(other.var()) / both if both else 0.0), weights


def drift(history: History, limits: HealthConfig) -> Iterator[Finding]:
    """The KL to the reference bends upwards, and the held-out accuracy (or the reward) does not bend with it."""
    series = history["policy/kl_reference/mean"]
    window = history.window("policy/kl_reference/mean", limits.window_steps)
    if len(series) < 3 * window or series.last(window).values.mean() < limits.drift_kl:
        return
    kl = series.blocks(max(1, len(series) // 60))
    x, y = kl.steps, kl.values
    length = x[-1] - x[0]
    knot, (_, early, bend), covariance = hinge(x, y, x[0] + length * np.linspace(1 / 3, 0.9, 12))
    early = max(early, 0.0)
    ratio = limits.drift_ratio
    excess = early + bend - ratio * early
    weights = np.array([0.0, 1 - ratio if early else 1.0, 1.0])
    error = sqrt(float(weights @ covariance @ weights))
    if excess <= 0 or _bends_with(history, knot, ratio):
        return
    p = float(ndtr(-excess / error)) if error else 0.0
    yield Finding(
        "drift",
        (("warning", max(p, above(series.last(window).values, limits.drift_kl))),),
        int(knot),
        f"KL {series.last(window).values.mean():.2f}, rising by {100 * (early + bend):.3f} in 100 steps since step {knot:.0f} "
        f"and by {100 * early:.3f} before",
    )


def _bends_with(history: History, knot: float, ratio: float) -> bool:
    """Whether accuracy, or where it was not measured the reward, rises after the knot faster than before by that ratio."""
    series = history[ACCURACY] if len(history[ACCURACY]) >= 6 else history[REWARD].blocks(8)
    before, after = series[series.steps <= knot], series[series.steps >= knot]
    if len(before) < 3 or len(after) < 3:
        return False
    slopes = [float(np.polyfit(part.steps, part.values, 1)[0]) for part in (before, after)]
    return slopes[1] > ratio * max(slopes[0], 0.0) and slopes[1] * (after.steps[-1] - knot) > FLAT_ACCURACY


def padding(history: History, limits: HealthConfig) -> Iterator[Finding]:
    """Answers grow longer than they were at some time, and the accuracy has not grown with them since."""
    window = history.window(LENGTH, limits.window_steps)
    blocks = history[LENGTH].blocks(window)
    measure = next((name for name in (ACCURACY, *_correct_parts(history), REWARD) if len(history[name]) >= 6), None)
    if len(blocks) < 2 or measure is None or (blocks.values <= 0).any():
        return
    now, series = blocks.values[-1], history[measure]
    num = 3 if measure == ACCURACY else window
    noise = _evaluation_noise(history, series.values) if measure == ACCURACY else None
    for then in np.argsort(blocks.values, kind="stable"):  # from the shortest answers on
        growth = now / blocks.values[then] - 1
        if growth <= limits.padding_growth:
            return
        longer = blocks.steps[then:][blocks.values[then:] > blocks.values[then] * (1 + growth / 2)][0]
        old, new = series[series.steps <= blocks.steps[then]].last(num).values, series[series.steps >= longer].values
        if len(old) < 2 or len(new) < 2:
            continue
        gain = float(new.mean() - old.mean())
        error = change(old, new)[1] if noise is None else noise * sqrt(1 / len(old) + 1 / len(new))
        if gain + error < limits.padding_gain * growth * max(abs(float(old.mean())), 0.05):
            p = above(history[LENGTH].last(window).values, blocks.values[then] * (1 + limits.padding_growth))
            yield Finding(
                "padding",
                (("warning", p),),
                int(blocks.steps[then]),
                f"answers have {now:.0f} tokens, {growth:+.0%} since step {blocks.steps[then]:.0f}, while "
                f"{'held-out accuracy' if measure == ACCURACY else measure} moved by {gain:+.3f} (from {old.mean():.3f})",
            )
            return


def _correct_parts(history: History) -> list[str]:
    return [name for name in history.names("reward/part/", "/mean") if CORRECTNESS.search(name.split("/")[2])]


# -- shares of answers, groups and tokens --------------------------------------------------------------------------


def _share(
    history: History, name: str, tests: tuple[tuple[Severity, float], ...], steps: int
) -> tuple[Series, tuple[tuple[Severity, float], ...]] | None:
    """The last window of a share that lies over its mildest level, and the levels with their p values.

    The units are prompts, where they were counted.
    """
    series = history[name]
    if len(series) < 8:
        return None
    last = series.last(history.window(name, steps))
    if last.values.mean() <= tests[0][1]:
        return None
    prompts = history["prompts/num"]
    counted = prompts.values[np.isin(prompts.steps, last.steps)]
    units = float(counted.sum()) if len(counted) == len(last) and (counted > 0).all() else None
    return last, tuple((severity, above(last.values, limit, units)) for severity, limit in tests)


def no_signal(history: History, limits: HealthConfig) -> Iterator[Finding]:
    """Too many groups whose answers all scored alike, named by the most frequent cause."""
    name = f"{SIGNAL}/share"
    levels = tuple(zip(("info", "warning", "critical"), limits.no_signal_share, strict=True))
    found = _share(history, name, levels, limits.window_steps)
    if found is None:
        return
    last, tests = found
    share, success, predicted, verdict, cause = float(last.values.mean()), *_why_no_signal(history, last)
    if verdict != "duplicates" and rising(history[REWARD].last(50).values) < 0.05:
        tests = tests[:1]  # it still learns
    yield Finding(
        verdict,
        tests,
        int(history[name].steps[excursion(history[name].values, limits.no_signal_share[0])]),
        f"{share:.0%} of groups carry no signal{cause}"
        + (f"; a success rate of {success:.2f} predicts {predicted:.0%}" if predicted is not None else ""),
    )


def _why_no_signal(history: History, last: Series) -> tuple[float, float | None, VerdictName, str]:
    """Success rate, the share that `p^G + (1 - p)^G` predicts from it, and the verdict by cause."""
    window = len(last)

    def recent(name: str) -> float:
        series = history[name]
        return float(series[series.steps >= last.steps[0]].values.sum()) / window

    size = history["groups/size/mean"]
    source = next((n for n in (*_correct_parts(history), REWARD, ACCURACY) if len(history[n])), None)
    success = float(history[source].last(window if source != ACCURACY else 1).values.mean()) if source else None
    if success is not None and not 0 <= success <= 1:
        success = None
    predicted = None
    if success is not None and len(size):
        group = size.values[-1]
        predicted = success**group + (1 - success) ** group
    causes = {
        "too_easy": recent(f"{SIGNAL}/all_right/share"),
        "too_hard": recent(f"{SIGNAL}/all_wrong/share") + recent(f"{SIGNAL}/all_invalid/share"),
        "duplicates": recent(f"{SIGNAL}/identical/share"),
    }
    if any(causes.values()):
        verdict = max(causes, key=causes.get)
        shown = {"too_easy": "all right", "too_hard": "all wrong or invalid", "duplicates": "identical answers"}
        return success, predicted, verdict, f", {causes[verdict]:.0%} of all groups through {shown[verdict]}"
    duplicates = recent("groups/duplicate_answers/share")
    beyond = predicted is None or last.values.mean() > predicted + 0.2
    if duplicates > 0.5 and beyond:
        return success, predicted, "duplicates", f"; {duplicates:.0%} of answers repeat another one of their group"
    return success, predicted, "too_easy" if (success or 0.0) >= 0.5 else "too_hard", ""


def _over(verdict: VerdictName, name: str, limits: tuple[float, ...], what: str, steps_of: tuple[int, ...] = (1,)):
    """A rule: the mean of a share lies over its limits in the last window, or in a longer one."""

    def rule(history: History, config: HealthConfig) -> Iterator[Finding]:
        levels = getattr(config, limits)
        levels = levels if isinstance(levels, tuple) else (levels,)
        for windows in steps_of:
            tests = tuple(zip(("warning", "critical"), levels, strict=False))
            found = _share(history, name, tests, windows * config.window_steps)
            if found:
                last, tests = found
                onset = history[name].steps[excursion(history[name].values, levels[0])]
                yield Finding(
                    verdict,
                    tests,
                    int(onset),
                    f"{what}: {last.values.mean():.1%} over {len(last)} points, limit {levels[0]:.0%}",
                )

    return rule


def broken_format(history: History, limits: HealthConfig) -> Iterator[Finding]:
    """Answers that don't parse, after the warm-up, unless they become fewer."""
    name = "answers/invalid/share"
    found = _share(history, name, (("warning", limits.invalid_share),), limits.window_steps)
    start = (history.first_step or 0) + limits.warm_up_steps
    if found is None or found[0].steps[0] < start:
        return
    if rising(-history[name].last(50).values) < 0.01:
        return
    after = history[name]
    after = after[after.steps >= start]
    yield Finding(
        "format",
        found[1],
        int(after.steps[excursion(after.values, limits.invalid_share)]),
        f"{found[0].values.mean():.1%} of answers don't parse, over {len(found[0])} points; limit {limits.invalid_share:.0%}",
    )


def looping(history: History, limits: HealthConfig) -> Iterator[Finding]:
    """Answers repeat themselves, and did not at the run's start."""
    name = "answers/repetition/share"
    low, high = limits.repetition_share
    found = _share(history, name, (("warning", high),), limits.window_steps)
    if found is None:
        return
    series = history[name]
    early = float(series.values[: len(found[0])].mean())
    if len(series) < 2 * len(found[0]) or early >= low:
        return
    yield Finding(
        "looping",
        found[1],
        int(series.steps[excursion(series.values, (low + high) / 2)]),
        f"{found[0].values.mean():.0%} of 3-grams are repeated, {early:.0%} at the run's start",
    )


# -- policy --------------------------------------------------------------------------------------------------------


def entropy(history: History, limits: HealthConfig) -> Iterator[Finding]:
    """Entropy against the run's own start: gone while the reward is flat, or doubled."""
    name = "policy/entropy/mean"
    series, window = history[name], history.window(name, limits.window_steps)
    if len(series) < 2 * window:
        return
    start = float(np.median(series.values[:window]))
    last = series.last(window)
    if start <= 0:
        return
    low, high = limits.entropy_low * start, limits.entropy_high * start
    now = float(last.values.mean())
    if now < low and (flat := _flat_since_fall(history, series, low, limits)):
        yield Finding(
            "entropy_collapse",
            (("warning", above(-last.values, -low)), ("critical", above(-last.values, -low / 2))),
            flat[0],
            f"entropy {now:.3f} nats, {now / start:.0%} of the run's start ({start:.3f}); the reward moved by {flat[1]:+.3f} "
            f"since step {flat[0]}",
        )
    if now > high:
        yield Finding(
            "entropy_explosion",
            (("warning", above(last.values, high)), ("critical", above(last.values, 2 * high))),
            int(series.steps[excursion(series.values, (start + high) / 2)]),
            f"entropy {now:.3f} nats, {now / start:.1f} times the run's start ({start:.3f})",
        )


def _flat_since_fall(history: History, series: Series, low: float, limits: HealthConfig):
    """The step where the entropy fell under twice its limit, and the reward's change since, if that is flat.

    The bound of the change is one standard error wide: reward is noisy and such a window short. Where no reward was
    measured it counts as flat.
    """
    smooth, reward = _smooth(series.values, 9), history[REWARD]
    high, above_low = np.flatnonzero(smooth > 2 * low), np.flatnonzero(smooth >= low)
    fall = float(series.steps[high[-1] if len(high) else 0])
    gone = float(series.steps[min(above_low[-1] + 1, len(series) - 1) if len(above_low) else 0])
    if not len(reward):
        return int(fall), 0.0
    before = reward[(reward.steps <= fall) & (reward.steps > fall - limits.window_steps)]
    after = reward[reward.steps > gone]
    if len(before) < 4 or len(after) < 4:
        return None
    moved, error = change(before.values, after.values)
    scale = max(1.0, float(np.abs(reward.values).max()))
    return (int(fall), moved) if moved + error < limits.flat_reward * scale else None


def gradient_spike(history: History, limits: HealthConfig) -> Iterator[Finding]:
    """A gradient or loss that is not finite, or far outliers of the gradient's norm, several in 50 steps."""
    skipped = history.tail("policy/skipped_updates/count", 50)
    bad = {step: name for step, name in history.nonfinite if name.startswith(("policy/loss", "policy/grad_norm"))}
    bad |= {int(step): "policy/skipped_updates/count" for step in skipped.steps[skipped.values > 0]}
    bad = {step: name for step, name in sorted(bad.items()) if step > history.step - 50}
    if bad:
        first = next(iter(bad))
        yield Finding(
            "gradient_spike",
            (("critical", 0.0),),
            first,
            f"loss or gradient not finite at {len(bad)} of the last 50 steps, first at step {first} ({bad[first]})",
            at_once=True,
        )
        return
    series = history.tail(GRADIENT, 101)
    series = series[series.values > 0]
    if len(series) < 23 or series.values[-50:].max() <= limits.spike_factor * np.median(series.values):
        return
    num = min(50, len(series) // 2)
    before = sliding_window_view(series.values, num)[:-1]
    later = series[num:]
    median = np.median(before, 1)
    deviation = 1.4826 * np.median(np.abs(before - median[:, None]), 1)
    far = (later.values > median + limits.spike_deviations * deviation) & (later.values > limits.spike_factor * median)
    far &= later.steps > history.step - max(50, 50 * float(np.median(np.diff(series.steps))))
    if far.sum() < limits.spike_count:
        return
    steps = later.steps[far].astype(int)
    yield Finding(
        "gradient_spike",
        (("warning", 0.0),),
        int(steps[0]),
        f"gradient norm spiked at {far.sum()} of 50 steps (last at step {steps[-1]}), up to {later.values[far].max():.3g} "
        f"over a median of {np.median(series.values):.3g}",
        at_once=True,
    )


def gradient_dead(history: History, limits: HealthConfig) -> Iterator[Finding]:
    """Gradients that are exactly zero."""
    series = history[GRADIENT]
    last = series.last(2 * history.window(GRADIENT, limits.window_steps))
    dead = last.values == 0
    if len(last) < 16 or dead.mean() <= limits.dead_share:
        return
    zero = series.values == 0
    yield Finding(
        "gradient_dead",
        (("warning", 0.0),),
        int(series.steps[excursion(zero.astype(float), limits.dead_share)]),
        f"the gradient is exactly zero at {dead.mean():.0%} of the last {len(last)} points",
    )


def stale_logprobs(history: History, limits: HealthConfig) -> Iterator[Finding]:
    """The first pass over fresh answers gives other log-probabilities than when they were written.

    Float32 explains ratios up to 1e-3 from 1. A run that starts above that computes in bfloat16, or with another
    sampler, or is stale from its start, which a number alone can't tell: that is said, and only a rise over it warns.
    """
    series = history[DEVIATION]
    window = history.window(DEVIATION, limits.window_steps)
    if len(series) < 3:
        return
    start = series.values[:window]
    exact = float(np.quantile(start, 0.25)) <= limits.stale_deviation
    last = series.last(window)
    if exact:
        over = last.values > limits.stale_deviation
        if over.sum() < 3:
            return
        tests: tuple[tuple[Severity, float], ...] = (("warning", 0.0),)
        onset = last.steps[np.flatnonzero(over)[0]]
        text = (
            f"ratios of the first pass differ from 1 by up to {last.values.max():.2g}; float32 explains "
            f"{limits.stale_deviation:g}"
        )
    else:
        base = float(start.mean())
        doubled = len(series) >= 2 * window and above(np.log(np.maximum(last.values, 1e-12)), np.log(2 * base))
        rose = doubled is not False and doubled < 1
        tests = (("info", 0.0), *((("warning", doubled),) if rose else ()))
        onset = series.steps[excursion(series.values, 1.5 * base)] if rose else series.steps[0]
        text = (
            f"ratios of the first pass differ from 1 by {last.values.mean():.2g}, and by {base:.2g} at the run's start; "
            + ("they have risen" if rose else "bfloat16 or another sampler would explain it, float32 would not")
        )
    yield Finding("stale_logprobs", tests, int(onset), text)


def step_too_big(history: History, limits: HealthConfig) -> Iterator[Finding]:
    """The clip binds on many tokens, or on one side only."""
    low, high = history["policy/clip_low/share"], history["policy/clip_high/share"]
    window = history.window("policy/clip_high/share", limits.window_steps)
    if len(high) < window or (len(low) and len(low) != len(high)):
        return
    both = high.values + (low.values if len(low) else 0.0)
    last = both[-window:]
    tests = [
        (severity, above(last, limit))
        for severity, limit in zip(("warning", "critical"), limits.clip_share, strict=True)
    ]
    text = f"the clip binds on {last.mean():.0%} of tokens"
    if len(low):
        sides = low.values[-window:] - limits.clip_imbalance * high.values[-window:]
        uneven = max(above(sides, 0.0), above(last, 0.05))
        if uneven < tests[0][1]:
            tests[0] = ("warning", uneven)
            text += (
                f", low to high {low.values[-window:].mean() / max(float(high.values[-window:].mean()), 1e-9):.1f} : 1"
            )
    if tests[0][1] < 1:
        yield Finding("step_too_big", tuple(tests), int(high.steps[excursion(both, last.mean() / 2)]), text)


def mismatch(history: History, limits: HealthConfig) -> Iterator[Finding]:
    """Sampler and trainer give the same tokens other probabilities."""
    for name, sign, limit in (
        ("sampler/importance/mean", 1, limits.importance[1]),
        ("sampler/importance/mean", -1, limits.importance[0]),
        ("sampler/effective_sample/share", -1, limits.effective_sample),
        ("sampler/mismatch_kl/mean", 1, limits.mismatch_kl),
    ):
        series = history[name]
        window = history.window(name, limits.window_steps)
        if len(series) < window:
            continue
        last = series.last(window).values
        p = above(sign * last, sign * limit)
        if p < 1:
            yield Finding(
                "mismatch",
                (("warning", p),),
                int(series.steps[excursion(sign * series.values, sign * limit)]),
                f"{name} is {last.mean():.3g} over {window} points, {'over' if sign > 0 else 'under'} {limit:g}",
            )


def canary(history: History, limits: HealthConfig) -> Iterator[Finding]:
    """A known answer was graded otherwise than it must be."""
    flips = history.tail("verifier/canary/flips", limits.window_steps)
    if (flips.values > 0).any():
        first = int(flips.steps[flips.values > 0][0])
        text = (
            f"a known answer was graded wrongly at step {first} ({flips.values.sum():.0f} flips in {len(flips)} points)"
        )
        yield Finding("verifier_broken", (("critical", 0.0),), first, text, at_once=True)


RULES = (
    Rule("row", gradient_spike),
    Rule("row", canary),
    Rule("window", stale_logprobs),
    Rule("evaluation", reward_hacking),
    Rule("window", auxiliary_dominates),
    Rule("window", drift),
    Rule("window", no_signal),
    Rule("window", padding),
    Rule("window", _over("cap_hit", "answers/truncated/share", "truncated_share", "answers cut off at the cap")),
    Rule("window", looping),
    Rule("window", broken_format),
    Rule("window", entropy),
    Rule("window", gradient_dead),
    Rule("window", step_too_big),
    Rule("window", mismatch),
    Rule("window", _over("verifier_broken", "verifier/error/share", "verifier_errors", "the verifier fails", (1, 3))),
    Rule(
        "window",
        _over(
            "no_diversity",
            "groups/duplicate_answers/share",
            "duplicate_share",
            "answers that repeat another of their group",
        ),
    ),
)
