"""Rewards made of others: by the kind of a task, or as a weighted sum of parts with gates."""

import os
from functools import cache
from math import isnan

from oncurve.config.rewards import ComposeRules, KindRules, KindsRules, PythonRules, RewardConfig, RewardPart
from oncurve.errors import ConfigError
from oncurve.rewards.kinds import rules_for, verifier_of
from oncurve.rewards.python import PythonVerifier
from oncurve.rewards.scores import NOT_GRADED
from oncurve.types import Rollout, Score, Task, Verifier


def open_verifier(rules: RewardConfig, *, allow_unsafe: bool = False) -> Verifier:
    """The verifier of a configuration's rules. Raises `ConfigError` where a function can't be loaded."""
    if isinstance(rules, PythonRules):
        return PythonVerifier(rules)
    if isinstance(rules, KindsRules):
        return KindsVerifier(allow_unsafe)
    if isinstance(rules, ComposeRules):
        return ComposeVerifier(rules, allow_unsafe)
    return verifier_of(rules.type, allow_unsafe=allow_unsafe)


class KindsVerifier:
    """Hands each task to the verifier of its kind, opened when a task of that kind is met."""

    version = "kinds/1"
    num_threads = os.cpu_count() or 1

    def __init__(self, allow_unsafe: bool):
        self.isolation: str | None = None
        self._of = cache(lambda kind: self._open(kind, allow_unsafe))

    def _open(self, kind: str, allow_unsafe: bool) -> Verifier:
        verifier = verifier_of(kind, allow_unsafe=allow_unsafe)
        self.isolation = getattr(verifier, "isolation", self.isolation)
        return verifier

    def check(self, task: Task, rules: KindsRules) -> None:
        self._of(task.kind).check(task, rules_for(task, getattr(rules, task.kind)))

    def grade(self, task: Task, answer: Rollout, rules: KindsRules) -> Score:
        return self._of(task.kind).grade(task, answer, rules_for(task, getattr(rules, task.kind)))


class ComposeVerifier:
    """Adds up the parts. `Score.parts` is what each of them added: they sum to the value, but for a clamp of the total."""

    def __init__(self, rules: ComposeRules, allow_unsafe: bool):
        self._verifiers = {part.name: open_verifier(part.rules, allow_unsafe=allow_unsafe) for part in rules.parts}
        self.version = "compose/1(" + ", ".join(f"{name}={v.version}" for name, v in self._verifiers.items()) + ")"
        levels = [getattr(verifier, "isolation", None) for verifier in self._verifiers.values()]
        self.isolation = next(filter(None, levels), None)
        self.num_threads = max(getattr(verifier, "num_threads", 1) for verifier in self._verifiers.values())

    def check(self, task: Task, rules: ComposeRules) -> None:
        for part in self._parts(task, rules):
            self._verifiers[part.name].check(task, part_rules(task, part))

    def grade(self, task: Task, answer: Rollout, rules: ComposeRules) -> Score:
        """Score one answer.

        Invalid where a part whose `invalid` is "invalid" finds it so: it gets the floor. A fault of one part's verifier is
        a fault of the whole. Correct is what the first part says that says anything.
        """
        parts = self._parts(task, rules)
        graded: dict[RewardConfig, Score] = {}
        for part in parts:
            own = part_rules(task, part)
            if own not in graded:
                graded[own] = self._verifiers[part.name].grade(task, answer, own)
            if graded[own].status == "error" and graded[own].reason != NOT_GRADED:
                return graded[own]
        scores = [graded[part_rules(task, part)] for part in parts]
        correct = next((score.correct for score in scores if score.correct is not None), None)
        extracted = next((score.extracted for score in scores if score.extracted is not None), None)
        for part, score in zip(parts, scores, strict=True):
            if score.status == "invalid" and part.invalid == "invalid":
                return Score(
                    "invalid",
                    rules.floor_of(task.kind),
                    False,
                    {other.name: other.bounds[0] for other in parts},
                    extracted,
                    f"{part.name}: {score.evidence}",
                    score.reason,
                    self.version,
                )
        values = [part_value(part, score) for part, score in zip(parts, scores, strict=True)]
        shut = next(
            (p.name for p, value in zip(parts, values, strict=True) if p.gate is not None and value < p.gate), None
        )
        added = {
            part.name: 0.0 if shut and part.gate is None else part.weight * value
            for part, value in zip(parts, values, strict=True)
        }
        total = sum(added.values())
        if rules.clamp:
            total = min(max(total, rules.clamp[0]), rules.clamp[1])
        words = [f"{p.name}: {score.evidence}" for p, score in zip(parts, scores, strict=True) if score.evidence]
        if shut:
            words.insert(0, f"gate {shut} is shut")
        return Score("scored", total, correct, added, extracted, "; ".join(words), verifier=self.version)

    def _parts(self, task: Task, rules: ComposeRules) -> list[RewardPart]:
        parts = [part for part in rules.parts if part.is_for(task.kind)]
        if not parts:
            raise ConfigError(
                f"reward.parts: none is for task {task.id}, whose kind is {task.kind}; add one, or its kind"
            )
        return parts


def part_rules(task: Task, part: RewardPart) -> KindRules | PythonRules:
    """The rules of one part for one task. A task's own options go to the rules of its kind."""
    return part.rules if isinstance(part.rules, PythonRules) else rules_for(task, part.rules)


def part_value(part: RewardPart, score: Score) -> float:
    """What a part's score counts, before its weight. A part that was not graded, or that the score does not have, counts 0."""
    if score.status != "scored":
        value = 0.0
    elif part.take == "value":
        value = score.value
    elif part.take == "correct":
        value = float(bool(score.correct))
    else:
        value = score.parts.get(part.take, 0.0)
    assert not isnan(value), part.name
    return part.clamped(value)
