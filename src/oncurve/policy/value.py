"""PPO's critic: a linear head on what the language head reads."""

import torch
from torch import Tensor


class ValueHead(torch.nn.Module):
    """The value, in units of reward, of the state before each token: a linear map of the model's last hidden state.

    It starts at 0 everywhere, so it needs no random numbers.
    """

    def __init__(self, hidden_size: int):
        super().__init__()
        self.out = torch.nn.Linear(hidden_size, 1)
        torch.nn.init.zeros_(self.out.weight)
        torch.nn.init.zeros_(self.out.bias)

    def forward(self, hidden_TH: Tensor) -> Tensor:
        return self.out(hidden_TH.to(self.out.weight.dtype))[:, 0]
