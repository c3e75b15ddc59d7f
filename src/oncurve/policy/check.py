"""At start, the shared row against the plain way on the loaded model: one small group, log-probabilities and gradients."""

from dataclasses import dataclass

import torch

from oncurve.policy.policy import Policy
from oncurve.policy.prompt import Row
from oncurve.types import Task

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 0.1}
"""Of a log-probability in nats and of a gradient relative to its norm. A row without the mask is off by 0.5 and more."""

LENGTHS = (3, 5, 1)


@dataclass(frozen=True, slots=True)
class PrefixCheck:
    """What the self-check found. Where it fails, the policy falls back to plain rows and says so."""

    shared: bool
    why_plain: str | None
    max_logp_error: float | None  # nats
    gradient_error: float | None  # relative, over all parameters


def check_shared_prefix(policy: Policy, task: Task, seed: int = 0) -> PrefixCheck:
    """Compare both forwards on `task` with three random answers; switches `policy.why_plain` on where they differ."""
    if not policy.shared_prefix:
        return PrefixCheck(False, policy.why_plain, None, None)
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.ones(policy.model.config.get_text_config().vocab_size, dtype=torch.bool)
    allowed[policy.banned_ids.cpu()] = False
    pool = allowed.nonzero()[:, 0]
    answers = tuple(tuple(pool[torch.randint(len(pool), (n,), generator=generator)].tolist()) for n in LENGTHS)
    row = Row(policy.encode(task, max(LENGTHS)), answers, (1.0,) * len(answers))
    weights = torch.randn(sum(LENGTHS), generator=generator).to(policy.device)
    shared, plain = (_logps_and_gradient(policy, row, weights, plain) for plain in (False, True))
    logp_error = (shared[0] - plain[0]).abs().max().item()
    gradient_error = ((shared[1] - plain[1]).norm() / plain[1].norm()).item()
    tolerance = TOLERANCE[policy.compute_dtype]
    if not (logp_error <= tolerance and gradient_error <= tolerance):
        policy.why_plain = (
            f"the self-check differs from plain rows by {logp_error:.1e} nats and {gradient_error:.1e} of the gradient "
            f"(allowed {tolerance:g} in {str(policy.compute_dtype).removeprefix('torch.')})"
        )
    return PrefixCheck(policy.shared_prefix, policy.why_plain, logp_error, gradient_error)


def _logps_and_gradient(
    policy: Policy, row: Row, weights_T: torch.Tensor, plain: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    why, policy.why_plain = policy.why_plain, "the self-check asks" if plain else None
    try:
        logps_T = policy.logps([row]).logps_T
    finally:
        policy.why_plain = why
    parameters = [p for p in policy.model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad((weights_T * logps_T).sum(), parameters, allow_unused=True)
    flat = torch.cat([g.flatten() for g in gradients if g is not None])
    return logps_T.detach(), flat
