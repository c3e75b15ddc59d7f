"""The supervised loss: cross-entropy against the written answer, with numbers softened over their neighbours."""

import torch
from torch import Tensor


def soft_targets(num_values: int, std: float) -> Tensor:
    """Rows `(num_values, num_values)` that sum to 1: a Gaussian of deviation `std` steps around each value.

    A coordinate one step off is then a small error rather than a wrong word (the idea of distance-aware label smoothing,
    arXiv 1905.07298). `std` 0 gives the identity, that is plain cross-entropy.
    """
    if std == 0:
        return torch.eye(num_values)
    values = torch.arange(num_values, dtype=torch.float32)
    near = torch.exp(-((values[:, None] - values) ** 2) / (2 * std**2))
    return near / near.sum(1, keepdim=True)


def sft_loss(logps_TV: Tensor, targets_T: Tensor, number_ids: Tensor, soft: Tensor) -> Tensor:
    """The mean over `_T` answer tokens of the cross-entropy in nats.

    `number_ids` are the token ids of the values that `soft` spreads over; every other target is plain.
    """
    assert len(logps_TV) == len(targets_T), (logps_TV.shape, targets_T.shape)
    loss_T = -logps_TV.gather(-1, targets_T[:, None])[:, 0]
    if not len(number_ids):
        return loss_T.mean()
    is_number, which = (targets_T[:, None] == number_ids).max(-1)
    spread = -(soft[which] * logps_TV[:, number_ids]).sum(-1)
    return torch.where(is_number, spread, loss_T).mean()
