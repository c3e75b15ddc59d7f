"""Attention over a long shared row without its square mask, on a CPU.

A row `[prompt | answer 1 | … | answer n]` falls into tiles: the prompt under a causal mask; all answers against the
prompt, unmasked; each run of answers against itself, masked. A tile's softmax is partial, and partial ones add up by
their log-sum-exp (Milakov and Gimelshein, arXiv 1805.02867); backward needs that of the whole row only (FlashAttention,
arXiv 2205.14135). What no query sees is never computed, and no mask is larger than a tile.

transformers hands a 4-D mask on to the attention function as it is. So a row's `codes`, an integer tensor of shape
`(rows, 1, columns, 3)`, take the mask's place, and the attention function of the name `sdpa` is registered anew: it
reads them, and leaves every other call to transformers' own.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

TILE = 256  # queries of a masked tile
PROMPT, PADDING = 0, -1

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True, slots=True)
class Tile:
    """Queries and keys of one row that meet: causal, under an additive mask, or all of them."""

    row: int
    queries: slice
    keys: slice | Tensor
    causal: bool = False
    mask: Tensor | None = None

    def of(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        row = slice(self.row, self.row + 1)
        return queries[row, :, self.queries], keys[row, :, self.keys], values[row, :, self.keys]

    @property
    def options(self) -> dict:
        return {"dropout_p": 0.0, "is_causal": self.causal, "attn_mask": self.mask}


def codes(segment_BS: Tensor, place_BS: Tensor, window: int | None = None) -> Tensor:
    """What stands for the mask: segment and place of each column, and the layer's sliding window (0: none)."""
    window_BS = torch.full_like(place_BS, window or 0)
    return torch.stack([segment_BS, place_BS, window_BS], -1)[:, None]


def tiles(codes: Tensor, dtype: torch.dtype) -> Iterator[Tile]:
    """The tiles of all rows. Padding is in none of them: its output is 0."""
    for row, (segment, place, windows) in enumerate(codes[:, 0].unbind(0)[i].unbind(-1) for i in range(len(codes))):
        real = (segment != PADDING).nonzero()[:, 0]
        begin, end = int(real[0]), int(real[-1]) + 1
        start = begin + int((segment == PROMPT).sum())
        window = int(windows[0])
        if not window or window >= int(place.max()) + 1:
            yield Tile(row, slice(begin, start), slice(begin, start), causal=True)
            yield Tile(row, slice(start, end), slice(begin, start))
            runs = _runs(segment, start, end)
        else:
            runs = [(a, min(a + TILE, end), begin) for a in range(begin, end, TILE)]
        for a, b, first in runs:
            queries, columns = torch.arange(a, b), torch.arange(first, b)
            seen = columns <= queries[:, None]
            seen &= (segment[columns] == segment[a:b, None]) | (segment[columns] == PROMPT)
            if window:
                seen &= place[a:b, None] - place[columns] < window
                kept = seen.any(0)
                columns, seen = columns[kept], seen[:, kept]
            mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)
            yield Tile(row, slice(a, b), columns if window else slice(first, b), mask=mask)


def _runs(segment: Tensor, start: int, end: int) -> list[tuple[int, int, int]]:
    """Runs of about `TILE` answer columns `[a, b)`, with the first column of the answer that stands at `a`."""
    found, first = [], start
    bounds = (segment[start:end].diff().nonzero()[:, 0] + start + 1).tolist()
    a = start
    while a < end:
        b = min(a + TILE, end)
        inside = [bound for bound in bounds if a < bound <= b]
        if inside and b < end:
            b = inside[-1]  # whole answers where they fit
        found.append((a, b, first))
        first = b if b in bounds else max([bound for bound in bounds if bound < b], default=start)
        a = b
    return found


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, queries, keys, values, codes, scale):
        found = list(tiles(codes, queries.dtype))
        out = torch.zeros_like(queries)
        total = queries.new_full(
            queries.shape[:-1], -torch.inf, dtype=torch.promote_types(queries.dtype, torch.float32)
        )
        for tile in found:
            part, lse = _forward(*tile.of(queries, keys, values), **tile.options, scale=scale)
            place = (tile.row, slice(None), tile.queries)
            joint = torch.logaddexp(total[place], lse[0])
            out[place] = (
                out[place] * (total[place] - joint).exp()[..., None] + part[0] * (lse[0] - joint).exp()[..., None]
            )
            total[place] = joint
        ctx.save_for_backward(queries, keys, values, out, total)
        ctx.tiles, ctx.scale = found, scale
        return out

    @staticmethod
    def backward(ctx, grad_out):
        queries, keys, values, out, total = ctx.saved_tensors
        grads = torch.zeros_like(queries), torch.zeros_like(keys), torch.zeros_like(values)
        for tile in ctx.tiles:
            grad, _, _ = tile.of(grad_out, keys, values)
            own_out, _, _ = tile.of(out, keys, values)
            row = slice(tile.row, tile.row + 1)
            parts = _backward(
                grad,
                *tile.of(queries, keys, values),
                own_out,
                total[row, :, tile.queries],
                **tile.options,
                scale=ctx.scale,
            )
            for whole, part, columns in zip(grads, parts, (tile.queries, tile.keys, tile.keys), strict=True):
                whole[tile.row, :, columns] += part[0]
        return *grads, None, None


def attend(queries: Tensor, keys: Tensor, values: Tensor, codes: Tensor, scale: float | None = None) -> Tensor:
    """Attention `(rows, heads, columns, size)` of shared rows under `codes`; as many key as query heads."""
    device = queries.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else queries.dtype
    return _Tiled.apply(queries.to(dtype), keys.to(dtype), values.to(dtype), codes, scale)


def _attention(module, query, key, value, attention_mask, scaling=None, **kwargs):
    if attention_mask is None or attention_mask.dtype != torch.long:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    groups = query.shape[1] // key.shape[1]
    out = attend(query, repeat_kv(key, groups), repeat_kv(value, groups), attention_mask, scaling)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register("sdpa", _attention)
