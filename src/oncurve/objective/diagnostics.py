"""What the log-probabilities of a step say of the policy: metrics over its trained tokens, as pure functions."""

from collections.abc import Sequence

import torch
from torch import Tensor

from oncurve.objective import critic, grpo
from oncurve.objective.terms import TokenTerms


def policy_metrics(passes: Sequence[TokenTerms], entropy_T: Tensor) -> dict[str, float]:
    """Ratio, clip shares and KL, each the mean over tokens and passes over the batch; entropy of the first pass. Nats."""

    def mean(columns: Sequence[Tensor]) -> float:
        return torch.stack(list(columns)).double().mean().item()

    metrics = {
        "policy/entropy/mean": entropy_T.mean().item(),
        "policy/ratio/mean": mean([terms.ratio_T for terms in passes]),
        "policy/clip_low/share": mean([terms.clipped_low_T for terms in passes]),
        "policy/clip_high/share": mean([terms.clipped_high_T for terms in passes]),
    }
    if passes[0].kl_T is not None:
        metrics["policy/kl_reference/mean"] = mean([terms.kl_T for terms in passes])
    return metrics


def mismatch_metrics(sampler_logps_T: Tensor, old_logps_T: Tensor, cap: float | None = None) -> dict[str, float]:
    """How far the sampler's log-probabilities are from the trainer's for the same weights and tokens.

    `mismatch_kl` is the `k3` estimate of KL(sampler || trainer); `effective_sample` is `(Σw)² / (n Σw²)` of the token
    weights `w = exp(trainer - sampler)` (A. Kong, 1992); `first_pass_max_deviation` is the largest `|w - 1|`; `capped` is
    the share of weights above `cap`.
    """
    weights_T = grpo.ratio(old_logps_T, sampler_logps_T)
    effective = weights_T.sum() ** 2 / (len(weights_T) * (weights_T**2).sum())
    metrics = {
        "sampler/mismatch_kl/mean": grpo.kl_estimate(sampler_logps_T, old_logps_T, "k3").mean().item(),
        "sampler/importance/mean": weights_T.mean().item(),
        "sampler/effective_sample/share": effective.item(),
        "policy/ratio/first_pass_max_deviation": (weights_T - 1).abs().max().item(),
    }
    if cap is not None:
        metrics["sampler/importance/capped/share"] = (weights_T > cap).double().mean().item()
    return metrics


def critic_metrics(
    passes_PT: Sequence[Tensor], old_values_T: Tensor, returns_T: Tensor, weights_T: Tensor, clip: float
) -> dict[str, float]:
    """The value loss (summed with the tokens' weights, a mean over passes), its clip share, and what the values explain."""
    losses = [(weights_T * critic.value_loss(values_T, old_values_T, returns_T, clip)).sum() for values_T in passes_PT]
    clips = [critic.value_clipped(values_T, old_values_T, returns_T, clip).double().mean() for values_T in passes_PT]
    metrics = {
        "critic/loss": torch.stack(losses).mean().item(),
        "critic/clip/share": torch.stack(clips).mean().item(),
        "critic/value/mean": old_values_T.mean().item(),
        "critic/return/mean": returns_T.mean().item(),
    }
    explained = critic.explained_variance(old_values_T, returns_T)
    return metrics if explained is None else metrics | {"critic/explained_variance": explained}
