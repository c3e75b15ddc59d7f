"""What a group's answers say: whether they differ in reward, why not, and how many of them are distinct."""

from oncurve.types import Group, Rollout, Score


def graded(group: Group) -> list[tuple[Rollout, Score]]:
    """The answers whose verifier did not fail, with their scores."""
    return [pair for pair in zip(group.rollouts, group.scores, strict=True) if pair[1].status != "error"]


def distinct(group: Group) -> list[tuple[Rollout, Score]]:
    """Of the graded answers the first of each text: what was written before brings no new comparison."""
    first: dict[str, tuple[Rollout, Score]] = {}
    for rollout, score in graded(group):
        first.setdefault(rollout.text, (rollout, score))
    return list(first.values())


def why_no_signal(group: Group, tolerance: float = 0.0) -> str | None:
    """Why all scored answers of a group got one reward (to within `tolerance`), or None where they did not.

    `too_few_scored` (the verifier failed on all but one at most), `all_invalid`, `identical`, `all_right`, `all_wrong`, or
    `equal_rewards` where the verifier does not say what is correct.
    """
    kept = graded(group)
    if len(kept) < 2:
        return "too_few_scored"
    values = [score.value for _, score in kept]
    if max(values) - min(values) > tolerance:
        return None
    if all(score.status == "invalid" for _, score in kept):
        return "all_invalid"
    if len({rollout.text for rollout, _ in kept}) == 1:
        return "identical"
    if any(score.correct is None for _, score in kept):
        return "equal_rewards"
    return "all_right" if all(score.correct for _, score in kept) else "all_wrong"
