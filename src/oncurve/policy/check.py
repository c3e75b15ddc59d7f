"""At start, the shared row, in tiles and under a mask, against the plain way: one small group, logps and gradients."""

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
    plain_logps, plain_gradient = _logps_and_gradient(policy, row, weights, why_plain="the self-check asks")
    errors = []
    for tiled_from in (0, None):
        logps, gradient = _logps_and_gradient(policy, row, weights, tiled_from=tiled_from)
        errors.append([(logps - plain_logps).abs().max(), (gradient - plain_gradient).norm() / plain_gradient.norm()])
    logp_error, gradient_error = torch.tensor(errors).amax(0).tolist()  # NaN, where there is one
    tolerance = TOLERANCE[policy.compute_dtype]
    if not (logp_error <= tolerance and gradient_error <= tolerance):
        policy.why_plain = (
            f"the self-check differs from plain rows by {logp_error:.1e} nats and {gradient_error:.1e} of the gradient "
            f"(allowed {tolerance:g} in {str(policy.compute_dtype).removeprefix('torch.')})"
        )
    return PrefixCheck(policy.shared_prefix, policy.why_plain, logp_error, gradient_error)


def _logps_and_gradient(
    policy: Policy, row: Row, weights_T: torch.Tensor, **attributes
) -> tuple[torch.Tensor, torch.Tensor]:
    before = {name: getattr(policy, name) for name in attributes}
    try:
        for name, value in attributes.items():
            setattr(policy, name, value)
        logps_T = policy.logps([row]).logps_T
    finally:
        for name, value in before.items():
            setattr(policy, name, value)
    parameters = [p for p in policy.model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad((weights_T * logps_T).sum(), parameters, allow_unused=True)
    flat = torch.cat([g.flatten() for g in gradients if g is not None])
    return logps_T.detach(), flat
