"""What the log-probabilities of a step say of the policy: metrics over its trained tokens, as pure functions."""

from collections.abc import Sequence

import torch
from torch import Tensor

from oncurve.objective import grpo


def policy_metrics(
    passes_PT: Sequence[Tensor],
    old_logps_T: Tensor,
    advantages_T: Tensor,
    entropy_T: Tensor,
    reference_logps_T: Tensor | None,
    *,
    clip_low: float,
    clip_high: float,
    estimator: grpo.Estimator,
) -> dict[str, float]:
    """Ratio, clip shares and KL, each the mean over tokens and passes; entropy of the first pass. Nats.

    `passes_PT` holds the policy's log-probabilities in each pass over the batch.
    """
    metrics = {"policy/entropy/mean": entropy_T.mean().item()}
    ratios_PT = torch.stack([grpo.ratio(logps_T, old_logps_T) for logps_T in passes_PT])
    low_PT, high_PT = grpo.clipped(ratios_PT, advantages_T.expand_as(ratios_PT), clip_low, clip_high)
    metrics["policy/ratio/mean"] = ratios_PT.mean().item()
    metrics["policy/clip_low/share"] = low_PT.double().mean().item()
    metrics["policy/clip_high/share"] = high_PT.double().mean().item()
    if reference_logps_T is not None:
        kl = [grpo.kl_estimate(logps_T, reference_logps_T, estimator).mean() for logps_T in passes_PT]
        metrics["policy/kl_reference/mean"] = torch.stack(kl).mean().item()
    return metrics


def mismatch_metrics(sampler_logps_T: Tensor, old_logps_T: Tensor) -> dict[str, float]:
    """How far the sampler's log-probabilities are from the trainer's for the same weights and tokens.

    `mismatch_kl` is the `k3` estimate of KL(sampler || trainer); `effective_sample` is `(Σw)² / (n Σw²)` of the token
    weights `w = exp(trainer - sampler)` (A. Kong, 1992); `first_pass_max_deviation` is the largest `|w - 1|`.
    """
    weights_T = grpo.ratio(old_logps_T, sampler_logps_T)
    effective = weights_T.sum() ** 2 / (len(weights_T) * (weights_T**2).sum())
    return {
        "sampler/mismatch_kl/mean": grpo.kl_estimate(sampler_logps_T, old_logps_T, "k3").mean().item(),
        "sampler/importance/mean": weights_T.mean().item(),
        "sampler/effective_sample/share": effective.item(),
        "policy/ratio/first_pass_max_deviation": (weights_T - 1).abs().max().item(),
    }
