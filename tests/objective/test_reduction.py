import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.objective.reduction import token_weights

LENGTHS = [[2, 4], [3, 0, 1, 5]]  # five answers, one left out, 15 tokens
NUMBER_OF_TOKENS = st.integers(0, 9)
UPDATES = st.lists(st.lists(NUMBER_OF_TOKENS, min_size=1, max_size=6), min_size=1, max_size=4).filter(
    lambda groups: any(map(any, groups))
)
REDUCTIONS = ["sequence_mean", "group_mean", "token_mean", "constant"]
quick = settings(deadline=None, max_examples=50)


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        ("sequence_mean", [[1 / 10, 1 / 20], [1 / 15, 0, 1 / 5, 1 / 25]]),
        ("group_mean", [[1 / 8, 1 / 16], [1 / 18, 0, 1 / 6, 1 / 30]]),
        ("token_mean", [[1 / 15, 1 / 15], [1 / 15, 0, 1 / 15, 1 / 15]]),
        ("constant", [[1 / 40, 1 / 40], [1 / 40, 0, 1 / 40, 1 / 40]]),
    ],
)
def test_by_hand(reduction, expected):
    weights = token_weights(LENGTHS, reduction, max_new_tokens=8)
    assert [pytest.approx(group) for group in expected] == weights


def test_an_update_of_the_worked_example():
    weights = token_weights([[10] * 8] * 14, "sequence_mean", 16)
    assert len(weights) == 14
    assert {weight for group in weights for weight in group} == {1 / (112 * 10)}


@pytest.mark.parametrize("reduction", ["sequence_mean", "group_mean", "token_mean"])
@given(lengths=UPDATES)
@quick
def test_all_tokens_together_weigh_one(reduction, lengths):
    weights = token_weights(lengths, reduction, 9)
    assert sum(
        w * n for ws, ns in zip(weights, lengths, strict=True) for w, n in zip(ws, ns, strict=True)
    ) == pytest.approx(1)


@given(lengths=UPDATES)
@quick
def test_each_answer_weighs_the_same_under_sequence_mean(lengths):
    pairs = zip(itertools.chain(*token_weights(lengths, "sequence_mean", 9)), itertools.chain(*lengths), strict=True)
    shares = [weight * length for weight, length in pairs if length]
    assert shares == pytest.approx([1 / len(shares)] * len(shares))


@given(lengths=UPDATES)
@quick
def test_each_group_weighs_the_same_under_group_mean(lengths):
    pairs = zip(token_weights(lengths, "group_mean", 9), lengths, strict=True)
    shares = [sum(w * n for w, n in zip(ws, ns, strict=True)) for ws, ns in pairs if any(ns)]
    assert shares == pytest.approx([1 / len(shares)] * len(shares))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@given(lengths=UPDATES)
@quick
def test_an_answer_left_out_is_as_if_absent(reduction, lengths):
    present = [[length for length in group if length] for group in lengths]
    kept = [
        [weight for weight, length in zip(*pair, strict=True) if length]
        for pair in zip(token_weights(lengths, reduction, 9), lengths, strict=True)
    ]
    assert kept == token_weights(present, reduction, 9)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_an_update_without_an_answer_weighs_nothing(reduction):
    assert token_weights([[0, 0], [0]], reduction, 9) == [[0, 0], [0]]


def written_formula(losses: list[list[torch.Tensor]], reduction: str, max_new_tokens: int) -> torch.Tensor:
    """The reductions as the papers write them, over the token losses of each answer of each group."""
    groups = [[answer for answer in group if len(answer)] for group in losses]
    groups = [group for group in groups if group]
    answers = [answer for group in groups for answer in group]
    if reduction == "sequence_mean":
        return torch.stack([answer.mean() for answer in answers]).mean()
    if reduction == "group_mean":
        return torch.stack([torch.stack([answer.mean() for answer in group]).mean() for group in groups]).mean()
    if reduction == "token_mean":
        return torch.cat(answers).mean()
    return torch.stack([answer.sum() / max_new_tokens for answer in answers]).mean()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@given(lengths=UPDATES, cut=st.integers(1, 20), seed=st.integers(0, 99))
@quick
def test_micro_batches_add_up_to_the_written_formula(reduction, lengths, cut, seed):
    """Loss and gradient, however the tokens of an update are cut into micro-batches (here even within an answer)."""
    size = sum(map(sum, lengths))
    losses_T = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    whole = losses_T.clone().requires_grad_()
    cursor = iter(whole.split(list(itertools.chain(*lengths))))
    expected = written_formula([[next(cursor) for _ in group] for group in lengths], reduction, 9)
    expected.backward()

    weights = token_weights(lengths, reduction, 9)
    weights_T = torch.tensor(
        [w for ws, ns in zip(weights, lengths, strict=True) for w, n in zip(ws, ns, strict=True) for _ in range(n)],
        dtype=torch.float64,
    )
    parts, total = losses_T.clone().requires_grad_(), 0.0
    for start in range(0, size, cut):
        loss = (weights_T[start : start + cut] * parts[start : start + cut]).sum()
        loss.backward()
        total += loss.item()
    assert total == pytest.approx(expected.item(), abs=1e-12)
    torch.testing.assert_close(parts.grad, whole.grad, rtol=0, atol=1e-12)
