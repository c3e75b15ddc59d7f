"""An objective's loss token by token: what the update minimises, what the metrics count and what `oncurve trace` shows."""

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from oncurve.config.schema import CispoObjective, GrpoObjective, ObjectiveConfig
from oncurve.objective import grpo


@dataclass(frozen=True, slots=True)
class TokenInputs:
    """What an objective is given of each trained token. Log-probabilities and entropy in nats.

    Constant but for `logps_T` and `entropy_T`. Example: `TokenInputs(logps, old, sampler, advantages, answer_T)`.
    """

    logps_T: Tensor  # under the policy
    old_logps_T: Tensor  # under the policy that wrote the token, by the trainer
    sampler_logps_T: Tensor  # the same, as the sampler noted it
    advantages_T: Tensor
    answer_T: Tensor  # the index of each token's answer, from 0
    reference_logps_T: Tensor | None = None
    entropy_T: Tensor | None = None  # of the distribution that the token was drawn from

    def at(self, kept_T: Tensor) -> "TokenInputs":
        """These tokens only."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: None if column is None else column[kept_T] for name, column in columns.items()})


@dataclass(frozen=True, slots=True)
class TokenTerms:
    """What an objective makes of each token."""

    loss_T: Tensor
    policy_T: Tensor  # the policy term, importance weight included
    ratio_T: Tensor
    kl_T: Tensor | None  # the estimate, without beta; None without a reference
    clipped_low_T: Tensor  # boolean
    clipped_high_T: Tensor


def token_terms(objective: ObjectiveConfig, given: TokenInputs) -> TokenTerms:
    """`importance weight * policy term + beta KL - entropy coefficient * entropy`, each only where it is in use."""
    sequence = isinstance(objective, GrpoObjective) and objective.ratio == "sequence"
    logps_T, old_T, advantages_T = given.logps_T, given.old_logps_T, given.advantages_T
    ratio_T = grpo.sequence_ratio(logps_T, old_T, given.answer_T) if sequence else grpo.ratio(logps_T, old_T)
    if isinstance(objective, CispoObjective):
        policy_T = grpo.cispo_term(ratio_T, logps_T, advantages_T, objective.clip_high)
        high_T = ratio_T > 1 + objective.clip_high
        low_T = torch.zeros_like(high_T)
    else:
        policy_T = grpo.policy_term(ratio_T, advantages_T, objective.clip_low, objective.clip_high)
        low_T, high_T = grpo.clipped(ratio_T, advantages_T, objective.clip_low, objective.clip_high)
    if objective.importance_cap is not None:
        policy_T = policy_T * grpo.importance_weights(old_T, given.sampler_logps_T, objective.importance_cap)
    loss_T, kl_T, kl = policy_T, None, objective.kl
    if given.reference_logps_T is not None:
        kl_T = grpo.kl_estimate(logps_T, given.reference_logps_T, kl.estimator)
        if kl.place == "loss":
            loss_T = loss_T + kl.beta * kl_T
    if objective.entropy:
        loss_T = loss_T - objective.entropy * given.entropy_T
    return TokenTerms(loss_T, policy_T, ratio_T, kl_T, low_T, high_T)


def needs_every_answer(objective: ObjectiveConfig) -> bool:
    """Whether an answer whose advantage is 0 has a gradient all the same."""
    return objective.type == "ppo" or objective.entropy > 0 or (objective.kl.beta > 0 and objective.kl.place == "loss")
