"""The optimizer step: schedule, clipping, what Muon takes, and what a step that isn't finite leaves alone."""

import copy
import math

import pytest
import torch
from torch import nn

from oncurve.config.schema import OptimizerConfig
from oncurve.optimizer import Optimizer, learning_rate

RATE = 0.01


def config(**fields) -> OptimizerConfig:
    return OptimizerConfig(**{"learning_rate": RATE, "warmup_updates": 0, **fields})


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed_tokens = nn.Embedding(5, 8)
        self.conv = nn.Conv2d(3, 8, 2)
        self.hidden = nn.Linear(8, 16)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.lm_head = nn.Linear(16, 5, bias=False)


def with_gradients(model: nn.Module, scale: float = 1.0) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = scale * torch.randn(parameter.shape, generator=generator)
    return model


def state(model: nn.Module, optimizer: Optimizer) -> list[dict]:
    """Weights and moments."""
    return [model.state_dict(), *(part["state"] for part in optimizer.state_dict()["parts"])]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]),
        ("linear", [0.25, 0.5, 0.75, 1, 1, 0.8, 0.6, 0.4]),
        ("cosine", [0.25, 0.5, 0.75, 1, 1, 0.2 + 0.4 * (1 + math.cos(math.pi / 4)), 0.6, None]),
    ],
)
def test_the_schedule_by_hand(schedule, expected):
    options = config(schedule=schedule, warmup_updates=4, final_share=0.2)
    rates = [learning_rate(options, update, 8) / RATE for update in range(8)]
    for rate, share in zip(rates, expected, strict=True):
        assert share is None or rate == pytest.approx(share)
    assert learning_rate(options, 8, 8) / RATE == pytest.approx(1 if schedule == "constant" else 0.2)
    assert learning_rate(options, 99, 8) == learning_rate(options, 8, 8)


def test_no_warm_up_starts_at_the_full_rate():
    assert learning_rate(config(), 0, 10) == RATE


def test_the_first_adamw_step_by_hand():
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -2.0]]))
    model.weight.grad = torch.tensor([[0.3, -0.4]])
    report = Optimizer(model, config(weight_decay=0.1), 10).step(0.5)
    assert report.grad_norm == pytest.approx(0.5)
    assert (report.learning_rate, report.skipped) == (RATE, False)
    decayed = 1 - RATE * 0.1  # then a step of the rate against the gradient's sign
    assert model.weight.flatten().tolist() == pytest.approx([decayed - RATE, -2 * decayed + RATE], abs=1e-6)


def test_the_gradient_is_clipped_to_its_largest_norm():
    model = nn.Linear(2, 1, bias=False)
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    report = Optimizer(model, config(max_grad_norm=2.0), 10).step(0.0)
    assert report.grad_norm == 5
    assert model.weight.grad.flatten().tolist() == pytest.approx([1.2, 1.6], abs=1e-5)


def test_muon_takes_the_hidden_matrices_alone():
    model = Small()
    optimizer = Optimizer(model, config(type="muon"), 10)
    adamw, muon = optimizer._parts
    assert isinstance(muon, torch.optim.Muon)
    names = {id(p): name for name, p in model.named_parameters()}
    assert [names[id(p)] for p in muon.param_groups[0]["params"]] == ["hidden.weight"]
    assert {names[id(p)] for p in adamw.param_groups[0]["params"]} == {
        "embed_tokens.weight",
        "conv.weight",
        "conv.bias",
        "hidden.bias",
        "lm_head.weight",
    }


def test_muons_step_is_orthogonal_and_of_adamws_size():
    model = with_gradients(Small())
    before = model.hidden.weight.detach().clone()
    Optimizer(model, config(type="muon", max_grad_norm=1e9), 10).step(0.0)
    values = torch.linalg.svdvals(before - model.hidden.weight.detach()) / (RATE * 0.2 * math.sqrt(16))
    assert values.min() > 0.6  # five Newton-Schulz iterations bring singular values near 1, not to it
    assert values.max() < 1.3


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("loss", [float("nan"), float("inf"), 0.0])
def test_what_is_not_finite_leaves_weights_and_moments(kind, loss):
    model = with_gradients(Small())
    optimizer = Optimizer(model, config(type=kind), 10)
    optimizer.step(1.0)
    before = copy.deepcopy(state(model, optimizer))
    with_gradients(model, 0.5)
    if loss == 0.0:
        model.conv.bias.grad[0] = float("nan")
    report = optimizer.step(loss)
    assert report.skipped
    assert optimizer.done == 2
    torch.testing.assert_close(state(model, optimizer), before, rtol=0, atol=0)
    assert not Optimizer(with_gradients(model), config(type=kind), 10).step(1.0).skipped


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_loaded_state_goes_on_exactly(kind):
    straight = Small()
    optimizer = Optimizer(straight, config(type=kind, warmup_updates=3), 10)
    with_gradients(straight)
    optimizer.step(1.0)
    resumed = copy.deepcopy(straight)
    again = Optimizer(resumed, config(type=kind, warmup_updates=3), 10)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for model, one in ((straight, optimizer), (resumed, again)):
        with_gradients(model, -0.3)
        assert one.step(1.0).learning_rate == pytest.approx(RATE * 2 / 3)
    torch.testing.assert_close(straight.state_dict(), resumed.state_dict(), rtol=0, atol=0)


def test_zero_grad_clears():
    model = with_gradients(Small())
    Optimizer(model, config(type="muon"), 10).zero_grad()
    assert all(p.grad is None for p in model.parameters())
