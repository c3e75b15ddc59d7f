"""The metrics of a step that its answers and scores give, under the names of `docs/metrics.md`."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from oncurve.groups.signal import distinct, graded, why_no_signal
from oncurve.types import Batch, Group, Rollout, Score

Answer = tuple[Rollout, Score]


def step_metrics(batch: Batch, tolerance: float = 0.0) -> dict[str, float]:
    """Reward, groups, lengths and formats of one step, over all that was sampled. What can't be measured is absent, never 0.

    Rewards of a group that lie no further apart than `tolerance` are equal.
    """
    answers = [pair for group in batch.groups for pair in zip(group.rollouts, group.scores, strict=True)]
    return {
        **_rewards(batch.groups, answers),
        **_groups(batch, tolerance),
        **_lengths(answers),
        **_formats(answers),
        "prompts/num": len({group.task.id for group in batch.groups}),
        "groups/num": len(batch.groups),
        "answers/num": len(answers),
    }


def _rewards(groups: Sequence[Group], answers: Sequence[Answer]) -> dict[str, float]:
    counted = [score for _, score in answers if score.status != "error"]
    metrics = {"verifier/error/share": 1 - len(counted) / len(answers)}
    if not counted:
        return metrics
    metrics["reward/total/mean"] = float(np.mean([score.value for score in counted]))
    for part in sorted({part for score in counted for part in score.parts}):
        metrics[f"reward/part/{part}/mean"] = float(np.mean([score.parts.get(part, 0.0) for score in counted]))
    for name, kept, power in (
        ("std_in_group", graded, 0.5),
        ("variance_in_group", graded, 1.0),
        ("std_of_distinct", distinct, 0.5),
    ):
        rewards_PG = [[score.value for _, score in kept(group)] for group in groups]
        if variances := [np.var(rewards, ddof=1) for rewards in rewards_PG if len(rewards) > 1]:
            metrics[f"reward/total/{name}"] = float(np.mean(np.power(variances, power)))
    return metrics


def _groups(batch: Batch, tolerance: float) -> dict[str, float]:
    causes = Counter(cause for group in batch.groups if (cause := why_no_signal(group, tolerance)))
    num, texts = len(batch.groups), [[rollout.text for rollout in group.rollouts] for group in batch.groups]
    return {
        "groups/no_signal/share": causes.total() / num,
        **{f"groups/no_signal/{cause}/share": count / num for cause, count in sorted(causes.items())},
        "groups/trained/share": batch.roles.count("train") / num,
        "groups/size/mean": float(np.mean([len(group.rollouts) for group in batch.groups])),
        "groups/size/max": max(len(group.rollouts) for group in batch.groups),
        "groups/distinct_answers/mean": float(np.mean([len(set(t)) for t in texts])),
        "groups/duplicate_answers/share": 1 - sum(len(set(t)) for t in texts) / sum(map(len, texts)),
    }


def _lengths(answers: Sequence[Answer]) -> dict[str, float]:
    def lengths(correct: bool | None) -> list[int]:
        return [len(rollout.tokens) for rollout, score in answers if correct is None or score.correct is correct]

    metrics = {}
    for name, correct in (("", None), ("_correct", True), ("_wrong", False)):
        if found := lengths(correct):
            p50, p90 = np.quantile(found, [0.5, 0.9])
            for summary, value in (("mean", np.mean(found)), ("p50", p50), ("p90", p90)):
                metrics[f"answers/length_tokens{name}/{summary}"] = float(value)
    return metrics


def _formats(answers: Sequence[Answer]) -> dict[str, float]:
    num = len(answers)
    reasons = Counter(score.reason for _, score in answers if score.status == "invalid")
    return {
        "answers/truncated/share": sum(rollout.stop == "length" for rollout, _ in answers) / num,
        "answers/invalid/share": reasons.total() / num,
        **{f"answers/invalid/{reason}/share": count / num for reason, count in sorted(reasons.items())},
        "answers/repetition/share": float(np.mean([repetition(rollout.tokens) for rollout, _ in answers])),
    }


def repetition(tokens: Sequence[int]) -> float:
    """The share of an answer's 3-grams that occurred before in it; 0 for fewer than four tokens."""
    grams = list(zip(tokens, tokens[1:], tokens[2:], strict=False))
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
