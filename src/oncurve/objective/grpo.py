"""The parts of a policy loss as pure functions of log-probabilities and advantages. All arrays run over `_T` tokens."""

from typing import Literal

import torch
from torch import Tensor

Estimator = Literal["k1", "k2", "k3"]
Reduction = Literal["sequence_mean", "group_mean", "token_mean", "constant"]


def ratio(logps_T: Tensor, old_logps_T: Tensor) -> Tensor:
    """`exp(logp - logp_old)`, the probability of each token under the policy over that under the one that wrote it."""
    assert logps_T.shape == old_logps_T.shape, (logps_T.shape, old_logps_T.shape)
    return torch.exp(logps_T - old_logps_T.detach())


def sequence_ratio(logps_T: Tensor, old_logps_T: Tensor, answer_T: Tensor) -> Tensor:
    """The geometric mean of an answer's token ratios, at each of its tokens (GSPO, arXiv 2507.18071 eq. 7).

    `answer_T` holds the index of each token's answer, from 0; all trained tokens of an answer must be there.
    """
    assert logps_T.shape == old_logps_T.shape == answer_T.shape, (logps_T.shape, old_logps_T.shape, answer_T.shape)
    lengths = torch.bincount(answer_T)
    sums = logps_T.new_zeros(len(lengths)).index_add(0, answer_T, logps_T - old_logps_T.detach())
    return torch.exp(sums / lengths)[answer_T]


def policy_term(ratio_T: Tensor, advantages_T: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """`-min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A)` (arXiv 2402.03300 eq. 3; two clips: 2503.14476 eq. 10)."""
    assert ratio_T.shape == advantages_T.shape, (ratio_T.shape, advantages_T.shape)
    clipped_T = ratio_T.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(ratio_T * advantages_T, clipped_T * advantages_T)


def cispo_term(ratio_T: Tensor, logps_T: Tensor, advantages_T: Tensor, clip_high: float) -> Tensor:
    """`-min(ratio, 1 + clip_high) A logp`, the clipped ratio held constant (CISPO, arXiv 2506.13585 eq. 4 and 5).

    A token beyond the clip keeps a gradient, where the term of PPO and GRPO drops it.
    """
    assert ratio_T.shape == logps_T.shape == advantages_T.shape, (ratio_T.shape, logps_T.shape, advantages_T.shape)
    return -ratio_T.detach().clamp(max=1 + clip_high) * advantages_T * logps_T


def importance_weights(old_logps_T: Tensor, sampler_logps_T: Tensor, cap: float) -> Tensor:
    """`min(exp(old - sampler), cap)`: what the trainer makes of tokens that another program sampled.

    Truncated importance weights as in IMPALA (arXiv 1802.01561 eq. 1), between sampler and old policy as in the decoupled
    objective of AReaL (arXiv 2505.24298).
    """
    return ratio(old_logps_T, sampler_logps_T).clamp(max=cap).detach()


def kl_estimate(logps_T: Tensor, reference_logps_T: Tensor, estimator: Estimator) -> Tensor:
    """KL(policy || reference) at the sampled tokens, in nats (J. Schulman, "Approximating KL divergence", 2020).

    With `d = reference - logp`: `k1 = -d`, `k2 = d² / 2`, `k3 = exp(d) - d - 1`.
    """
    assert logps_T.shape == reference_logps_T.shape, (logps_T.shape, reference_logps_T.shape)
    d_T = reference_logps_T.detach() - logps_T
    if estimator == "k1":
        return -d_T
    return d_T**2 / 2 if estimator == "k2" else torch.expm1(d_T) - d_T


def clipped(ratio_T: Tensor, advantages_T: Tensor, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """Where the clip binds below and above, that is where the token's policy gradient is 0 (two boolean `_T`)."""
    low_T = (ratio_T < 1 - clip_low) & (advantages_T < 0)
    high_T = (ratio_T > 1 + clip_high) & (advantages_T > 0)
    return low_T, high_T
