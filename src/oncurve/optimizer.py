"""AdamW or Muon with one learning rate, its schedule, and the step that refuses what is not finite."""

import math
from dataclasses import dataclass

import torch

from oncurve.config.schema import OptimizerConfig


@dataclass(frozen=True, slots=True)
class StepReport:
    """One optimizer step: the gradient's norm before clipping, the rate, and whether the weights moved at all."""

    grad_norm: float
    learning_rate: float
    skipped: bool


class Optimizer:
    """Clips the gradient's norm, then steps.

    `muon` orthogonalises the update of every hidden matrix (K. Jordan, "Muon", 2024) with its size matched to AdamW's
    (arXiv 2502.16982 eq. 4), so that both share one rate; embeddings, head, vectors and convolutions stay with AdamW.
    """

    def __init__(self, model: torch.nn.Module, config: OptimizerConfig, num_updates: int):
        self.config, self.num_updates = config, num_updates
        self.done = 0  # steps so far, skipped ones included
        trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        hidden = [(name, p) for name, p in trained if p.ndim == 2 and "embed" not in name and "lm_head" not in name]
        matrices = [p for _, p in hidden] if config.type == "muon" else []
        held = {id(p) for p in matrices}
        self.parameters = [p for _, p in trained]
        self._parts: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(
                [p for p in self.parameters if id(p) not in held],
                lr=config.learning_rate,
                betas=config.betas,
                weight_decay=config.weight_decay,
            )
        ]
        if matrices:
            self._parts.append(
                torch.optim.Muon(
                    matrices,
                    lr=config.learning_rate,
                    weight_decay=config.weight_decay,
                    adjust_lr_fn="match_rms_adamw",
                )
            )

    def zero_grad(self) -> None:
        for part in self._parts:
            part.zero_grad(set_to_none=True)

    def step(self, loss: float) -> StepReport:
        """Clip and step; where `loss` or the gradient's norm is not finite, leave weights and moments as they are."""
        rate = learning_rate(self.config, self.done, self.num_updates)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.config.max_grad_norm).item()
        self.done += 1
        skipped = not (math.isfinite(loss) and math.isfinite(norm))
        if not skipped:
            for part in self._parts:
                for group in part.param_groups:
                    group["lr"] = rate
                part.step()
        return StepReport(norm, rate, skipped)

    def state_dict(self) -> dict:
        return {"done": self.done, "parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state: dict) -> None:
        self.done = state["done"]
        for part, saved in zip(self._parts, state["parts"], strict=True):
            part.load_state_dict(saved)


def learning_rate(config: OptimizerConfig, update: int, num_updates: int) -> float:
    """The rate of update `update` (from 0): linear warm-up, then constant, linear or cosine down to `final_share`."""
    warm = min(1.0, (update + 1) / max(1, config.warmup_updates))
    if config.schedule == "constant":
        return config.learning_rate * warm
    done = min(1.0, max(0, update - config.warmup_updates) / max(1, num_updates - config.warmup_updates))
    share = 1 - done if config.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return config.learning_rate * warm * (config.final_share + (1 - config.final_share) * share)
