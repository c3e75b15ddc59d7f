"""What PPO's critic adds: advantages from values, the value loss, and how much of the returns it explains."""

import torch
from torch import Tensor


def gae(rewards_T: Tensor, values_T: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantages of one answer's trained tokens (arXiv 1506.02438 eq. 16); the value after the last is 0.

    `A_t = sum over l of (gamma lambda)^l delta_{t+l}` with `delta_t = r_t + gamma V_{t+1} - V_t`. The returns that the value
    loss aims at are `A + V` (TD(lambda)).
    """
    assert rewards_T.shape == values_T.shape, (rewards_T.shape, values_T.shape)
    advantages_T = torch.empty_like(values_T)
    after = values_T.new_zeros(())
    next_value = values_T.new_zeros(())
    for t in reversed(range(len(values_T))):
        delta = rewards_T[t] + gamma * next_value - values_T[t]
        after = delta + gamma * gae_lambda * after
        advantages_T[t], next_value = after, values_T[t]
    return advantages_T


def whiten(advantages_T: Tensor, eps: float = 1e-8) -> Tensor:
    """To mean 0 and (population) deviation 1 over all tokens given."""
    return (advantages_T - advantages_T.mean()) / (advantages_T.std(correction=0) + eps)


def value_loss(values_T: Tensor, old_values_T: Tensor, returns_T: Tensor, clip: float) -> Tensor:
    """`max((V - R)², (clip(V, V_old - clip, V_old + clip) - R)²) / 2` of each token (value clipping: arXiv 2005.12729)."""
    assert values_T.shape == old_values_T.shape == returns_T.shape, (
        values_T.shape,
        old_values_T.shape,
        returns_T.shape,
    )
    near_T = old_values_T + (values_T - old_values_T).clamp(-clip, clip)
    return torch.maximum((values_T - returns_T) ** 2, (near_T - returns_T) ** 2) / 2


def value_clipped(values_T: Tensor, old_values_T: Tensor, returns_T: Tensor, clip: float) -> Tensor:
    """Where the clip binds, that is where the value's gradient is 0: it has moved too far, towards the return."""
    moved_T = values_T - old_values_T
    near_T = old_values_T + moved_T.clamp(-clip, clip)
    return (moved_T.abs() > clip) & ((near_T - returns_T).abs() > (values_T - returns_T).abs())


def explained_variance(values_T: Tensor, returns_T: Tensor) -> float | None:
    """`1 - Var(R - V) / Var(R)`: 1 where the values are right, 0 where a constant does as well; None for equal returns."""
    spread = returns_T.var(correction=0).item()
    return 1 - (returns_T - values_T).var(correction=0).item() / spread if spread > 0 else None
