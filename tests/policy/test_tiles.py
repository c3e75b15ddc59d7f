"""Tiled attention is masked attention, without a square of the row's size; the head in chunks is the head."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import flex_attention
from torch.utils._python_dispatch import TorchDispatchMode

from oncurve.policy import flex, head, prefix, tiles
from oncurve.policy.prompt import Row

quick = settings(deadline=None, max_examples=25)


class Shapes(TorchDispatchMode):
    """The shapes of all tensors that operations give back, forward and backward."""

    def __init__(self):
        super().__init__()
        self.found: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.found.update(
            tuple(x.shape) for x in (out if isinstance(out, tuple | list) else (out,)) if torch.is_tensor(x)
        )
        return out


def segments_and_places(prompt: int, answers: list[int], left: int, size: int) -> tuple[list[int], list[int]]:
    segments, places = [-1] * left + [0] * prompt, [0] * left + [*range(prompt)]
    for i, length in enumerate(answers):
        segments += [i + 1] * length
        places += range(prompt, prompt + length)
    return segments + [-1] * (size - len(segments)), places + [0] * (size - len(places))


@given(
    rows=st.lists(
        st.tuples(st.integers(1, 9), st.lists(st.integers(1, 11), min_size=1, max_size=5), st.integers(0, 3)),
        min_size=1,
        max_size=3,
    ),
    window=st.sampled_from([None, 1, 4, 100]),
    tile=st.sampled_from([1, 4, 256]),
)
@quick
def test_tiles_are_the_mask_in_value_and_gradient(rows, window, tile):
    size = max(left + prompt + sum(answers) for prompt, answers, left in rows)
    both = [segments_and_places(*row, size) for row in rows]
    segment_BS, place_BS = (torch.tensor(x) for x in zip(*both, strict=True))
    layout = prefix.Layout(None, None, segment_BS, place_BS, torch.zeros_like(place_BS), None, None, None, None)
    real = (segment_BS != tiles.PADDING)[:, None, :, None]
    generator = torch.Generator().manual_seed(0)
    qkv = [torch.randn(len(rows), 2, size, 8, dtype=torch.float64, generator=generator) for _ in range(3)]
    weights = torch.randn(len(rows), 2, size, 8, dtype=torch.float64, generator=generator) * real

    def run(attend):
        leaves = [x.clone().requires_grad_() for x in qkv]
        out = attend(*leaves)
        return [out.detach() * real, *torch.autograd.grad((weights * out).sum(), leaves)]

    masked = run(
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=prefix.visible(layout, window), scale=0.4
        )
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "TILE", tile)
        tiled = run(lambda q, k, v: tiles.attend(q, k, v, tiles.codes(segment_BS, place_BS, window), 0.4))
    for a, b in zip(masked, tiled, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [None, 4])
def test_the_block_mask_of_flex_attention_is_the_mask(window):
    """Values on a CPU, uncompiled; the compiled kernels of a GPU are `bench/gpu.py`'s to check."""
    both = [segments_and_places(9, [3, 1, 5], 2, 24), segments_and_places(11, [4, 2], 0, 24)]
    segment_BS, place_BS = (torch.tensor(x) for x in zip(*both, strict=True))
    layout = prefix.Layout(None, None, segment_BS, place_BS, torch.zeros_like(place_BS), None, None, None, None)
    q, k, v = torch.randn(3, 2, 2, 24, 16, generator=torch.Generator().manual_seed(0)).unbind(0)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=prefix.visible(layout, window))
    found = flex_attention(q, k, v, block_mask=flex.block_mask(layout, window))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def gradients(policy, rows):
    policy.model.zero_grad()
    found = policy.logps(rows)
    weights = torch.randn(len(found.logps_T), generator=torch.Generator().manual_seed(1), dtype=found.logps_T.dtype)
    (found.logps_T * weights).sum().backward()
    grads = {name: p.grad.clone() for name, p in policy.model.named_parameters() if p.grad is not None}
    return found.logps_T.detach(), found.entropy_T, grads


@pytest.fixture
def rows(policy, tasks):
    short, long = sorted((policy.encode(task) for task in tasks[:4]), key=len)[::3]
    return [
        Row(short, ((100, 101, 102), (103,)), (1.0, 0.7)),
        Row(long, ((104, 105), (106, 107, 108, 109), (100,)), (1.0, 1.0, 1.3)),
    ]


def same(a, b, tolerance) -> None:
    for x, y in zip(a[:2], b[:2], strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=tolerance)
    assert a[2].keys() == b[2].keys()
    for name, grad in a[2].items():
        torch.testing.assert_close(grad, b[2][name], rtol=tolerance, atol=tolerance)


def test_a_whole_model_in_tiles(make_policy, rows):
    policy = make_policy("float64")
    policy.tiled_from = None
    masked = gradients(policy, rows)
    policy.tiled_from = 0
    same(masked, gradients(policy, rows), 1e-9)


def test_a_long_row_has_no_square(make_policy, tasks):
    policy = make_policy()
    prompt = policy.encode(tasks[0])
    answers = ((100, 101, 102, 103, 104, 105, 106, 107, 108, 1),) * 1200
    row = Row(prompt, answers, (1.0,) * len(answers))
    assert row.num_tokens > 12_000
    with Shapes() as shapes:
        gradients(policy, [row])
    assert not [shape for shape in shapes.found if len(shape) > 1 and min(shape[-2:]) >= 6_000]
    assert max(torch.Size(shape).numel() for shape in shapes.found) < row.num_tokens**2 / 10


def test_the_head_in_chunks(make_policy, rows, monkeypatch):
    policy = make_policy("float64")
    config = policy.model.config.get_text_config()
    size = config.vocab_size
    whole = gradients(policy, rows)
    monkeypatch.setattr(head, "CHUNK_LOGITS", 4 * size)
    with Shapes() as shapes:
        chunked = gradients(policy, rows)
    same(whole, chunked, 1e-9)
    per_vocabulary = {shape[0] for shape in shapes.found if len(shape) == 2 and shape[1] == size}
    assert per_vocabulary - {config.hidden_size} == {3, 4}  # the weight itself stands there transposed


def test_a_model_that_rescales_behind_its_head_keeps_it(make_policy, rows):
    policy = make_policy()
    expected = policy.logps(rows).logps_T
    policy.model.config.get_text_config().logit_scale = 2.0
    with head.headless(policy.model) as own:
        assert "forward" not in vars(policy.model.get_output_embeddings())
        assert own(expected) is expected
    torch.testing.assert_close(policy.logps(rows).logps_T, expected)  # this family does not read the scale
