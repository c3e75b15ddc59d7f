"""Metrics of runs that never were: healthy ones of many shapes, and the same with one flaw planted.

A run has a skill that saturates (or rises like a logistic) with a time constant of its own; reward, held-out accuracy, length,
entropy, KL, gradient norms and shares follow from it, each with autocorrelated noise (AR(1), 0..0.9), heavy tails where
real ones have them, binomial noise on evaluations, and a spacing of rows and evaluations that differs from run to run.
Half of the runs log a KL, an invalid share that falls during a warm-up, causes of groups without signal, or counts.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from oncurve.config.health import VerdictName

Columns = dict[str, np.ndarray]


def ar1(rng: np.random.Generator, num: int, deviation: float, rho: float) -> np.ndarray:
    """Stationary noise of the given standard deviation and autocorrelation at lag one."""
    shocks = rng.normal(0, deviation * np.sqrt(1 - rho**2), num)
    shocks[0] /= np.sqrt(1 - rho**2)
    values = np.empty(num)
    last = 0.0
    for i, shock in enumerate(shocks):
        last = values[i] = rho * last + shock
    return values


class Generator:
    """One run's shape, drawn from `seed`. `columns` holds a value a step; `rows()` writes them as a run would."""

    def __init__(self, seed: int):
        self.rng = rng = np.random.default_rng(seed)
        self.num = num = int(rng.integers(300, 601))
        self.every = int(rng.choice([10, 20, 25, 50]))
        self.num_tasks = int(rng.choice([100, 200, 500]))
        self.spacing = int(rng.choice([1, 1, 1, 2, 5]))
        self.rho = rng.uniform(0, 0.9)
        t = self.steps = np.arange(1, num + 1)
        if rng.random() < 0.6:
            self.skill = 1 - np.exp(-t / rng.uniform(60, 400))
        else:
            curve = 1 / (1 + np.exp(-(t - rng.uniform(0.2, 0.6) * num) / rng.uniform(25, 80)))
            self.skill = (curve - curve[0]) / (1 - curve[0])
        low, gain = rng.uniform(0.1, 0.4), rng.uniform(0.15, 0.5)
        self.accuracy = low + gain * self.skill + rng.uniform(-0.05, 0.1)
        reward = low + gain * rng.uniform(0.7, 1.2) * self.skill ** rng.uniform(0.8, 1.25)
        self.group = int(rng.choice([8, 16]))
        fade = np.exp(-t / rng.uniform(5, 40))  # of what a warm-up mends
        invalid = np.clip(rng.uniform(0, 0.3) * fade + rng.uniform(0, 0.01) + self.noise(0.003), 0, 1)
        success = np.clip(self.accuracy + self.noise(0.03), 0.02, 0.98)
        silent = success**self.group + (1 - success) ** self.group
        length = rng.uniform(50, 400) * (1 + rng.uniform(-0.2, 0.4) * self.skill)
        entropy = rng.uniform(0.3, 1.5) * (rng.uniform(0.15, 0.6) + (1 - self.skill) * rng.uniform(0.3, 0.8))
        tail = rng.standard_t(4, num) * rng.uniform(0.05, 0.2)
        self.columns: Columns = {
            "reward/total/mean": reward * (1 - invalid) + self.noise(rng.uniform(0.01, 0.05)),
            "reward/part/correct/mean": reward * (1 - invalid) + self.noise(0.03),
            "reward/part/format/mean": 1 - invalid,
            "groups/no_signal/share": np.clip(silent + self.noise(0.03), 0, 1),
            "groups/size/mean": np.full(num, float(self.group)),
            "groups/duplicate_answers/share": np.clip(rng.uniform(0, 0.25) + 0.1 * self.skill + self.noise(0.03), 0, 1),
            "answers/length_tokens/mean": length * np.exp(self.noise(rng.uniform(0.01, 0.06))),
            "answers/truncated/share": np.clip(rng.uniform(0, 0.02) + self.noise(0.005), 0, 1),
            "answers/invalid/share": invalid,
            "answers/repetition/share": np.clip(rng.uniform(0, 0.1) + self.noise(0.01), 0, 1),
            "policy/entropy/mean": entropy * np.exp(self.noise(rng.uniform(0.02, 0.1))),
            "policy/grad_norm/before_clip": rng.uniform(0.05, 2) * (0.5 + fade) * np.exp(self.noise(0.2) + tail),
            "policy/ratio/first_pass_max_deviation": 1e-5 * np.exp(self.noise(0.5)),
            "policy/clip_low/share": np.clip(rng.uniform(0, 0.04) + self.noise(0.005), 0, 1),
            "policy/clip_high/share": np.clip(rng.uniform(0, 0.04) + self.noise(0.005), 0, 1),
            "sampler/mismatch_kl/mean": rng.uniform(1e-6, 0.02) * np.exp(self.noise(0.3)),
            "sampler/importance/mean": 1 + self.noise(0.02),
            "sampler/effective_sample/share": np.clip(rng.uniform(0.8, 1) - np.abs(self.noise(0.02)), 0, 1),
            "verifier/error/share": (rng.random(num) < 0.01) / 128,
        }
        if rng.random() < 0.5:
            kl = rng.uniform(0.05, 0.6) * (t / num) ** rng.uniform(0.5, 1.2)
            self.columns["policy/kl_reference/mean"] = kl * np.exp(self.noise(0.1))
        if rng.random() < 0.5:
            self.columns["prompts/num"] = np.full(num, rng.choice([16.0, 64.0, 256.0]))
        if rng.random() < 0.5:
            self.columns["groups/no_signal/all_right/share"] = np.clip(success**self.group, 0, 1)
            self.columns["groups/no_signal/all_wrong/share"] = np.clip((1 - success) ** self.group, 0, 1)

    def noise(self, deviation: float) -> np.ndarray:
        return ar1(self.rng, self.num, deviation, self.rho)

    def ramp(self, onset: int, length: float) -> np.ndarray:
        """0 up to the onset, then towards 1 within about `length` steps."""
        return np.clip((self.steps - onset) / length, 0, 1)

    def rows(self) -> list[dict[str, Any]]:
        """Rows of `metrics.jsonl`: a row a logged step, and a row for every evaluation, from step 0 on."""
        rows = [self._evaluation(0)]
        for i, step in enumerate(self.steps):
            if step % self.spacing == 0:
                rows.append({"step": int(step), **{name: float(values[i]) for name, values in self.columns.items()}})
            if step % self.every == 0:
                rows.append(self._evaluation(int(step)))
        return rows

    def _evaluation(self, step: int) -> dict[str, Any]:
        share = float(np.clip(self.accuracy[max(step - 1, 0)], 0, 1))
        right = self.rng.binomial(self.num_tasks, share)
        return {"step": step, "eval/accuracy/mean": right / self.num_tasks, "eval/accuracy/num_tasks": self.num_tasks}


def healthy(seed: int) -> list[dict[str, Any]]:
    return Generator(seed).rows()


def planted(flaw: VerdictName, seed: int) -> tuple[list[dict[str, Any]], int]:
    """A run with one flaw, and the step from which on it is there: between 30 % and 60 % of the run, and 100 at the least.

    `flaw` is a key of `FLAWS`; what it takes to be seen at all (a KL, parts) is logged in every such run.
    """
    run = Generator(seed)
    onset = int(run.rng.integers(max(100, 0.3 * run.num), 0.6 * run.num))
    FLAWS[flaw](run, onset)
    return run.rows(), onset


def _hack(run: Generator, onset: int) -> None:
    ramp = run.ramp(onset, run.rng.uniform(20, 150))
    held = run.accuracy[onset - 1] - run.rng.uniform(0, 0.15) * ramp
    run.accuracy = np.where(run.steps > onset, held, run.accuracy)
    run.columns["reward/total/mean"] += run.rng.uniform(0.12, 0.4) * ramp


def _auxiliary(run: Generator, onset: int) -> None:
    start = run.rng.uniform(0.1, 0.3)
    level = run.rng.uniform(0.2, 0.5)
    run.columns["reward/part/correct/mean"] = level + run.noise(0.02)
    run.columns["reward/part/format/mean"] = start + run.rng.uniform(0.4, 0.7) * run.ramp(onset, 120) + run.noise(0.02)
    weight = run.rng.uniform(0.5, 1.5)
    run.columns["reward/total/mean"] = (
        run.columns["reward/part/correct/mean"] + weight * run.columns["reward/part/format/mean"]
    )
    run.accuracy = np.full(run.num, level)


def _drift(run: Generator, onset: int) -> None:
    slope = run.rng.uniform(0.0005, 0.002)
    bend = np.maximum(0, run.steps - onset) * (slope + 0.005) * run.rng.uniform(1, 4)
    run.columns["policy/kl_reference/mean"] = (0.02 + slope * run.steps + bend) * np.exp(run.noise(0.08))


def _silent(cause: str | None, success: float | None) -> Callable[[Generator, int], None]:
    def plant(run: Generator, onset: int) -> None:
        ramp, level = run.ramp(onset, 40), run.rng.uniform(0.65, 0.95)
        for other in ("all_right", "all_wrong"):
            run.columns.pop(f"groups/no_signal/{other}/share", None)
        share = run.columns["groups/no_signal/share"] * (1 - ramp) + level * ramp + run.noise(0.02)
        run.columns["groups/no_signal/share"] = np.clip(share, 0, 1)
        if success is None:
            repeats = run.columns["groups/duplicate_answers/share"]
            run.columns["groups/duplicate_answers/share"] = np.clip(repeats + ramp * 0.7, 0, 1)
        else:
            for name in ("reward/total/mean", "reward/part/correct/mean"):
                run.columns[name] = run.columns[name] * (1 - ramp) + success * ramp + run.noise(0.01)
            run.accuracy = run.accuracy * (1 - ramp) + success * ramp
        if cause and run.rng.random() < 0.5:
            run.columns[f"groups/no_signal/{cause}/share"] = np.clip(level * ramp, 0, 1)

    return plant


def _pad(run: Generator, onset: int) -> None:
    run.columns["answers/length_tokens/mean"] *= 1 + run.rng.uniform(0.9, 2.5) * run.ramp(
        onset, run.rng.uniform(40, 150)
    )
    run.accuracy = np.where(run.steps > onset, run.accuracy[onset - 1], run.accuracy)


def _raise(name: str, low: float, high: float, length: float = 40) -> Callable[[Generator, int], None]:
    """Takes a share to a level between `low` and `high`."""

    def plant(run: Generator, onset: int) -> None:
        ramp = run.ramp(onset, length)
        run.columns[name] = np.clip(
            run.columns[name] * (1 - ramp) + run.rng.uniform(low, high) * ramp + run.noise(0.005), 0, 1
        )

    return plant


def _times(name: str, low: float, high: float, length: float = 40) -> Callable[[Generator, int], None]:
    """Takes a metric to between `low` and `high` times itself."""

    def plant(run: Generator, onset: int) -> None:
        run.columns[name] = run.columns[name] * run.rng.uniform(low, high) ** run.ramp(onset, length)

    return plant


def _entropy_to(run: Generator, onset: int, low: float, high: float) -> None:
    """Takes the entropy to between `low` and `high` times the run's start."""
    entropy, ramp = run.columns["policy/entropy/mean"], run.ramp(onset, 60)
    level = entropy[:20].mean() * run.rng.uniform(low, high) * np.exp(run.noise(0.05))
    run.columns["policy/entropy/mean"] = entropy ** (1 - ramp) * level**ramp


def _explosion(run: Generator, onset: int) -> None:
    _entropy_to(run, onset, 2.5, 6)


def _collapse(run: Generator, onset: int) -> None:
    _entropy_to(run, onset, 0.005, 0.06)
    run.accuracy = np.where(run.steps > onset, run.accuracy[onset - 1], run.accuracy)
    reward = run.columns["reward/total/mean"]
    level = float(reward[max(0, onset - 20) : onset].mean())
    run.columns["reward/total/mean"] = np.where(run.steps > onset, level + run.noise(0.02), reward)


def _spikes(run: Generator, onset: int) -> None:
    hit = (run.steps > onset) & (run.rng.random(run.num) < run.rng.uniform(0.15, 0.4))
    run.columns["policy/grad_norm/before_clip"] = run.columns["policy/grad_norm/before_clip"] * np.where(
        hit, run.rng.uniform(15, 100, run.num), 1
    )


def _dead(run: Generator, onset: int) -> None:
    dead = (run.steps > onset) & (run.rng.random(run.num) < run.rng.uniform(0.6, 1))
    run.columns["policy/grad_norm/before_clip"] = np.where(dead, 0.0, run.columns["policy/grad_norm/before_clip"])


def _mismatch(run: Generator, onset: int) -> None:
    ramp = run.ramp(onset, 20)
    which = run.rng.integers(3)
    if which == 0:
        run.columns["sampler/mismatch_kl/mean"] += run.rng.uniform(0.15, 0.6) * ramp
    elif which == 1:
        run.columns["sampler/importance/mean"] = (
            run.columns["sampler/importance/mean"] * run.rng.choice([0.35, 2.8]) ** ramp
        )
    else:
        run.columns["sampler/effective_sample/share"] *= run.rng.uniform(0.1, 0.25) ** ramp


FLAWS: dict[VerdictName, Callable[[Generator, int], None]] = {
    "reward_hacking": _hack,
    "auxiliary_dominates": _auxiliary,
    "drift": _drift,
    "too_easy": _silent("all_right", 0.97),
    "too_hard": _silent("all_wrong", 0.02),
    "duplicates": _silent("identical", None),
    "padding": _pad,
    "cap_hit": _raise("answers/truncated/share", 0.1, 0.5),
    "looping": _raise("answers/repetition/share", 0.4, 0.8),
    "format": _raise("answers/invalid/share", 0.1, 0.6),
    "entropy_collapse": _collapse,
    "entropy_explosion": _explosion,
    "gradient_spike": _spikes,
    "gradient_dead": _dead,
    "stale_logprobs": _times("policy/ratio/first_pass_max_deviation", 1e3, 1e5, 1),
    "step_too_big": _raise("policy/clip_high/share", 0.25, 0.6),
    "mismatch": _mismatch,
    "verifier_broken": _raise("verifier/error/share", 0.04, 0.4),
    "no_diversity": _raise("groups/duplicate_answers/share", 0.65, 0.95),
}
"""A verdict and what plants it."""
