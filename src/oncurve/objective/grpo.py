"""The GRPO loss as pure functions of log-probabilities, advantages and a mask. All arrays run over `_T` tokens."""

from typing import Literal

import torch
from torch import Tensor

Estimator = Literal["k1", "k2", "k3"]
Reduction = Literal["sequence_mean", "group_mean", "token_mean", "constant"]


def ratio(logps_T: Tensor, old_logps_T: Tensor) -> Tensor:
    """`exp(logp - logp_old)`, the probability of each token under the policy over that under the one that wrote it."""
    assert logps_T.shape == old_logps_T.shape, (logps_T.shape, old_logps_T.shape)
    return torch.exp(logps_T - old_logps_T.detach())


def policy_term(ratio_T: Tensor, advantages_T: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """`-min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A)` (arXiv 2402.03300 eq. 3; two clips: 2503.14476 eq. 10)."""
    assert ratio_T.shape == advantages_T.shape, (ratio_T.shape, advantages_T.shape)
    clipped_T = ratio_T.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(ratio_T * advantages_T, clipped_T * advantages_T)


def kl_estimate(logps_T: Tensor, reference_logps_T: Tensor, estimator: Estimator) -> Tensor:
    """KL(policy || reference) at the sampled tokens, in nats (J. Schulman, "Approximating KL divergence", 2020).

    With `d = reference - logp`: `k1 = -d`, `k2 = d² / 2`, `k3 = exp(d) - d - 1`.
    """
    assert logps_T.shape == reference_logps_T.shape, (logps_T.shape, reference_logps_T.shape)
    d_T = reference_logps_T.detach() - logps_T
    if estimator == "k1":
        return -d_T
    return d_T**2 / 2 if estimator == "k2" else torch.expm1(d_T) - d_T


def token_loss(
    logps_T: Tensor,
    old_logps_T: Tensor,
    advantages_T: Tensor,
    reference_logps_T: Tensor | None = None,
    *,
    clip_low: float,
    clip_high: float,
    beta: float = 0.0,
    estimator: Estimator = "k3",
) -> Tensor:
    """Policy term plus `beta` times the KL estimate, of each token; `reference_logps_T` is needed where `beta` is not 0."""
    loss_T = policy_term(ratio(logps_T, old_logps_T), advantages_T, clip_low, clip_high)
    if beta:
        loss_T = loss_T + beta * kl_estimate(logps_T, reference_logps_T, estimator)
    return loss_T


def clipped(ratio_T: Tensor, advantages_T: Tensor, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """Where the clip binds below and above, that is where the token's policy gradient is 0 (two boolean `_T`)."""
    low_T = (ratio_T < 1 - clip_low) & (advantages_T < 0)
    high_T = (ratio_T > 1 + clip_high) & (advantages_T > 0)
    return low_T, high_T
