"""GAE, the clipped value loss and explained variance, by hand and by their definitions."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from oncurve.objective.critic import explained_variance, gae, value_clipped, value_loss, whiten

quick = settings(deadline=None, max_examples=50)


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


REWARDS, VALUES = column(0.0, -0.1, 1.0), column(0.2, 0.4, 0.5)


def test_gae_by_hand():
    # gamma 0.9, lambda 0.5: deltas 0.16, -0.05, 0.5; A_2 = 0.5, A_1 = -0.05 + 0.45 * 0.5, A_0 = 0.16 + 0.45 * A_1
    assert gae(REWARDS, VALUES, 0.9, 0.5).tolist() == pytest.approx([0.16 + 0.45 * 0.175, 0.175, 0.5])


def test_lambda_1_is_the_return_less_the_value_and_lambda_0_one_step():
    assert gae(REWARDS, VALUES, 1.0, 1.0).tolist() == pytest.approx([0.7, 0.5, 0.5])
    assert gae(REWARDS, VALUES, 1.0, 0.0).tolist() == pytest.approx([0.2, 0.0, 0.5])


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=8), st.floats(0, 1), st.floats(0, 1))
@quick
def test_gae_is_the_sum_of_its_definition(numbers, gamma, lam):
    rewards, values = column(*numbers), column(*reversed(numbers))
    after = [*values.tolist()[1:], 0.0]
    deltas = [r + gamma * n - v for r, n, v in zip(numbers, after, values.tolist(), strict=True)]
    expected = [sum((gamma * lam) ** i * d for i, d in enumerate(deltas[t:])) for t in range(len(deltas))]
    assert gae(rewards, values, gamma, lam).tolist() == pytest.approx(expected, abs=1e-9)


def test_right_values_leave_no_advantage():
    values = column(0.9, 0.9, 1.0)  # of the rewards below, from each token on
    assert gae(column(0.0, -0.1, 1.0), values, 1.0, 0.95).tolist() == pytest.approx([0, 0, 0])


def test_the_value_loss_by_hand():
    old, returns = column(0.0, 0.0, 0.0, 0.0), column(1.0, 1.0, -1.0, 0.1)
    values = column(0.1, 0.5, 0.5, 0.5)  # within the clip; towards the return; away from it; past it
    assert value_loss(values, old, returns, 0.2).tolist() == pytest.approx([0.405, 0.32, 1.125, 0.08])
    assert value_clipped(values, old, returns, 0.2).tolist() == [False, True, False, False]


@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(-2, 2))
@example(4e-144, 0.125, 4e-144)  # old + (value - old) is rounded: no clip, though the two differ
@quick
def test_the_value_loss_is_a_bound_and_flat_just_where_it_is_clipped(value, old, target):
    v = column(value).requires_grad_()
    loss = value_loss(v, column(old), column(target), 0.2)
    loss.sum().backward()
    assert loss.item() >= (value - target) ** 2 / 2 - 1e-12
    if value_clipped(v.detach(), column(old), column(target), 0.2).item():
        assert v.grad.item() == 0
    elif abs(value - old) < 0.19:
        assert v.grad.item() == pytest.approx(value - target)


def test_whitened_advantages_have_mean_0_and_deviation_1():
    found = whiten(column(1.0, 2.0, 6.0))
    assert found.mean().item() == pytest.approx(0)
    assert found.std(correction=0).item() == pytest.approx(1)
    assert whiten(column(2.0, 2.0)).tolist() == [0, 0]


def test_explained_variance():
    returns = column(0.0, 1.0, 2.0)
    assert explained_variance(returns, returns) == 1
    assert explained_variance(column(5.0, 5.0, 5.0), returns) == pytest.approx(0)
    assert explained_variance(-returns, returns) == pytest.approx(-3)
    assert explained_variance(returns, column(1.0, 1.0, 1.0)) is None
