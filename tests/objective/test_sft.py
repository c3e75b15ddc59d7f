"""The supervised loss by hand."""

import math

import pytest
import torch

from oncurve.objective.sft import sft_loss, soft_targets

LOGPS = torch.log(torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]], dtype=torch.float64))
NUMBERS = torch.tensor([1, 2, 3])


def test_no_softening_is_the_identity():
    assert torch.equal(soft_targets(3, 0.0), torch.eye(3))


def test_a_gaussian_by_hand():
    near = math.exp(-1 / 8)
    far = math.exp(-4 / 8)
    total = 1 + near + far
    rows = soft_targets(3, 2.0)
    assert rows[0].tolist() == pytest.approx([1 / total, near / total, far / total])
    assert rows[1].tolist() == pytest.approx([near / (1 + 2 * near), 1 / (1 + 2 * near), near / (1 + 2 * near)])
    assert soft_targets(101, 2.0).sum(1).tolist() == pytest.approx([1] * 101)


def test_words_are_plain_cross_entropy():
    loss = sft_loss(LOGPS, torch.tensor([0, 0]), NUMBERS, soft_targets(3, 2.0))
    assert loss.item() == pytest.approx(-(math.log(0.1) + math.log(0.4)) / 2)


@pytest.mark.parametrize("numbers", [NUMBERS, torch.tensor([], dtype=torch.long)])
def test_without_softening_numbers_are_words(numbers):
    loss = sft_loss(LOGPS, torch.tensor([3, 1]), numbers, soft_targets(3, 0.0).double())
    assert loss.item() == pytest.approx(-(math.log(0.4) + math.log(0.3)) / 2)


def test_numbers_are_spread_over_their_neighbours():
    soft = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.5, 0.5]], dtype=torch.float64)
    loss = sft_loss(LOGPS, torch.tensor([2, 0]), NUMBERS, soft)
    spread = -(0.25 * math.log(0.2) + 0.5 * math.log(0.3) + 0.25 * math.log(0.4))
    assert loss.item() == pytest.approx((spread - math.log(0.4)) / 2)


def test_number_ids_need_not_be_in_a_row():
    soft = torch.tensor([[0.5, 0.5], [0.5, 0.5]], dtype=torch.float64)
    loss = sft_loss(LOGPS[:1], torch.tensor([3]), torch.tensor([3, 0]), soft)
    assert loss.item() == pytest.approx(-(math.log(0.4) + math.log(0.1)) / 2)
