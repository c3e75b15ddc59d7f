"""The metrics of a step that its answers and scores give, under the names of `docs/metrics.md`."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from oncurve.types import Batch, Group, Rollout, Score

Answer = tuple[Rollout, Score]


def step_metrics(batch: Batch) -> dict[str, float]:
    """Reward, groups, lengths and formats of one step. What can't be measured is absent, never 0."""
    answers = [pair for group in batch.groups for pair in zip(group.rollouts, group.scores, strict=True)]
    return {
        **_rewards(batch.groups, answers),
        **_groups(batch),
        **_lengths(answers),
        **_formats(answers),
        "prompts/num": len({group.task.id for group in batch.groups}),
        "groups/num": len(batch.groups),
        "answers/num": len(answers),
    }


def _rewards(groups: Sequence[Group], answers: Sequence[Answer]) -> dict[str, float]:
    graded = [score for _, score in answers if score.status != "error"]
    metrics = {"verifier/error/share": 1 - len(graded) / len(answers)}
    if not graded:
        return metrics
    metrics["reward/total/mean"] = float(np.mean([score.value for score in graded]))
    for part in sorted({part for score in graded for part in score.parts}):
        metrics[f"reward/part/{part}/mean"] = float(np.mean([score.parts.get(part, 0.0) for score in graded]))
    deviations = [np.std(rewards, ddof=1) for rewards in map(_graded_rewards, groups) if len(rewards) > 1]
    if deviations:
        metrics["reward/total/std_in_group"] = float(np.mean(deviations))
        metrics["reward/total/variance_in_group"] = float(np.mean(np.square(deviations)))
    return metrics


def _groups(batch: Batch) -> dict[str, float]:
    causes = Counter(cause for group in batch.groups if (cause := why_no_signal(group)))
    num, texts = len(batch.groups), [[rollout.text for rollout in group.rollouts] for group in batch.groups]
    return {
        "groups/no_signal/share": causes.total() / num,
        **{f"groups/no_signal/{cause}/share": count / num for cause, count in sorted(causes.items())},
        "groups/size/mean": float(np.mean([len(group.rollouts) for group in batch.groups])),
        "groups/duplicate_answers/share": 1 - sum(len(set(t)) for t in texts) / sum(map(len, texts)),
    }


def why_no_signal(group: Group) -> str | None:
    """Why all scored answers of a group got one reward, or None where they did not.

    `too_few_scored` (the verifier failed on all but one at most), `all_invalid`, `identical`, `all_right`, `all_wrong`, or
    `equal_rewards` where the verifier does not say what is correct.
    """
    graded = [pair for pair in zip(group.rollouts, group.scores, strict=True) if pair[1].status != "error"]
    if len(graded) < 2:
        return "too_few_scored"
    if len({score.value for _, score in graded}) > 1:
        return None
    if all(score.status == "invalid" for _, score in graded):
        return "all_invalid"
    if len({rollout.text for rollout, _ in graded}) == 1:
        return "identical"
    if any(score.correct is None for _, score in graded):
        return "equal_rewards"
    return "all_right" if all(score.correct for _, score in graded) else "all_wrong"


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


def _graded_rewards(group: Group) -> list[float]:
    return [reward for reward, scored in zip(group.rewards_G, group.scored_G, strict=True) if scored]
