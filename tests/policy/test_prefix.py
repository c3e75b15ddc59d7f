"""The layout and mask of shared rows: one row written out in full, then properties of any batch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.policy import prefix
from oncurve.policy.prompt import Prompt, Row, left_padded

PAD = 99
quick = settings(deadline=None, max_examples=40)


def prompt(ids: tuple[int, ...], positions: torch.Tensor | None = None) -> Prompt:
    places = torch.arange(len(ids))[None] if positions is None else positions
    return Prompt("", ids, places, {}, {}, (), ())


def row(ids: tuple[int, ...], *answers: tuple[int, ...]) -> Row:
    return Row(prompt(ids), answers, (1.0,) * len(answers))


def drawn(mask: torch.Tensor) -> list[str]:
    return ["".join("x" if seen else "." for seen in query) for query in mask[0].tolist()]


HAND = row((11, 12, 13), (21, 22), (31,))


def test_a_row_by_hand():
    layout = prefix.lay_out([HAND], PAD)
    assert layout.ids_BS.tolist() == [[11, 12, 13, 21, 22, 31]]
    assert layout.positions_ABS.tolist() == [[[0, 1, 2, 3, 4, 3]]]
    assert layout.segment_BS.tolist() == [[0, 0, 0, 1, 1, 2]]
    assert layout.place_BS.tolist() == [[0, 1, 2, 3, 4, 3]]
    assert layout.columns_K.tolist() == [2, 3]  # both first tokens come from the last prompt column
    assert layout.predictor_T.tolist() == [0, 1, 0]
    assert layout.targets_T.tolist() == [21, 22, 31]
    assert layout.answer_T.tolist() == [0, 0, 1]


def test_its_mask_by_hand():
    (mask,) = prefix.visible(prefix.lay_out([HAND], PAD))
    assert drawn(mask) == [
        "x.....",
        "xx....",
        "xxx...",
        "xxxx..",
        "xxxxx.",
        "xxx..x",
    ]


def test_a_sliding_window_counts_in_the_places_of_the_plain_row():
    (mask,) = prefix.visible(prefix.lay_out([HAND], PAD), window=3)
    assert drawn(mask) == [
        "x.....",
        "xx....",
        "xxx...",
        ".xxx..",
        "..xxx.",
        ".xx..x",  # place 3 like the first answer's first token, though it stands two columns further
    ]


def test_a_padded_batch_by_hand():
    layout = prefix.lay_out([HAND, row((14,), (41, 42))], PAD)
    assert layout.ids_BS[1].tolist() == [PAD, PAD, 14, 41, 42, PAD]
    assert layout.positions_ABS[0, 1].tolist() == [0, 0, 0, 1, 2, 0]
    assert layout.segment_BS[1].tolist() == [-1, -1, 0, 1, 1, -1]
    assert layout.columns_K.tolist() == [2, 3]
    assert layout.predictor_T.tolist() == [0, 1, 0, 2, 3]
    assert layout.targets_T.tolist() == [21, 22, 31, 41, 42]
    assert layout.answer_T.tolist() == [0, 0, 1, 2, 2]
    assert drawn(prefix.visible(layout)[1]) == [
        "x.....",  # padding sees itself and nothing else
        ".x....",
        "..x...",
        "..xx..",
        "..xxx.",
        ".....x",
    ]


def test_three_axes_restart_behind_the_prompts_maximum():
    positions = torch.tensor([[0, 1, 1, 1], [0, 1, 1, 2], [0, 1, 2, 1]])
    shared = Row(prompt((1, 2, 3, 4), positions), ((5, 6), (7,)), (1.0, 1.0))
    layout = prefix.lay_out([shared], PAD)
    assert layout.positions_ABS[:, 0].tolist() == [
        [0, 1, 1, 1, 3, 4, 3],
        [0, 1, 1, 2, 3, 4, 3],
        [0, 1, 2, 1, 3, 4, 3],
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_additive_mask_is_zero_and_the_least_number(dtype):
    seen = prefix.visible(prefix.lay_out([HAND], PAD))
    numbers = prefix.additive(seen, dtype)
    assert numbers.dtype == dtype
    assert (numbers[seen] == 0).all()
    assert (numbers[~seen] == torch.finfo(dtype).min).all()


def test_an_empty_answer_is_refused():
    with pytest.raises(AssertionError, match="without tokens"):
        prefix.lay_out([row((1, 2), (3,), ())], PAD)


def test_left_padding():
    rows = [torch.tensor([[1, 2]]), torch.tensor([[3]])]
    assert left_padded(rows, 3, 9).tolist() == [[[9, 1, 2], [9, 9, 3]]]


answers = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple), min_size=1, max_size=4)
rows = st.tuples(st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple), answers).map(
    lambda r: row(r[0], *r[1])
)


@given(batch=st.lists(rows, min_size=1, max_size=3), window=st.sampled_from([None, 1, 2, 4]))
@quick
def test_every_answer_sees_what_its_plain_row_sees(batch, window):
    layout = prefix.lay_out(batch, PAD)
    mask = prefix.visible(layout, window)[:, 0]
    predictors = torch.stack([layout.predictor_T // len(layout.columns_K), layout.predictor_T % len(layout.columns_K)])
    token = 0
    for b, one in enumerate(batch):
        for a, answer in enumerate(one.answers):
            segment = layout.segment_BS[b]
            columns = ((segment == 0) | (segment == a + 1)).nonzero()[:, 0]
            size = len(one.prompt) + len(answer)
            assert layout.ids_BS[b, columns].tolist() == [*one.prompt.ids, *answer]
            assert layout.positions_ABS[0, b, columns].tolist() == list(range(size))
            plain = torch.ones(size, size, dtype=torch.bool).tril()
            if window:
                plain &= ~torch.ones(size, size, dtype=torch.bool).tril(-window)
            assert torch.equal(mask[b][columns][:, columns], plain)
            others = [c for c in range(mask.shape[-1]) if c not in columns.tolist()]
            assert not mask[b][columns][len(one.prompt) :, others].any()
            for place in range(len(answer)):
                source = columns[len(one.prompt) + place - 1]
                assert predictors[0, token] == b
                assert layout.columns_K[predictors[1, token]] == source
                token += 1
    assert mask.any(-1).all()
