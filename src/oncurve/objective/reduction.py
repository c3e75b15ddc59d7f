"""From per-token losses to one number: what each answer's tokens weigh in an update.

The weights are counted over the whole update before any backward, so that the sum over micro-batches, accumulated steps
and workers is exact under every split.
"""

from collections.abc import Sequence

from oncurve.objective.grpo import Reduction


def token_weights(lengths: Sequence[Sequence[int]], reduction: Reduction, max_new_tokens: int) -> list[list[float]]:
    """The weight of one token of each answer, as `[group][answer]`; the loss is the sum of weight times token loss.

    `lengths` counts the trained tokens of each answer of each group of the update; an answer left out of the reduction
    (a verifier's fault) has length 0 and weight 0.

    - `sequence_mean`: the mean over answers of each answer's mean (GRPO, arXiv 2402.03300 eq. 3)
    - `group_mean`: the mean over groups of the mean over answers; a group weighs the same at every size
    - `token_mean`: the mean over all tokens (DAPO, arXiv 2503.14476 eq. 8)
    - `constant`: the sum over an answer's tokens divided by `max_new_tokens`, then the mean over answers (Dr. GRPO, arXiv
      2503.20783 section 3.2)
    """
    answers = sum(length > 0 for group in lengths for length in group)
    tokens = sum(map(sum, lengths))
    groups = sum(any(group) for group in lengths)

    def weight(length: int, group: Sequence[int]) -> float:
        if length == 0:
            return 0.0
        if reduction == "sequence_mean":
            return 1 / (answers * length)
        if reduction == "group_mean":
            return 1 / (groups * sum(n > 0 for n in group) * length)
        return 1 / tokens if reduction == "token_mean" else 1 / (answers * max_new_tokens)

    return [[weight(length, group) for length in group] for group in lengths]
