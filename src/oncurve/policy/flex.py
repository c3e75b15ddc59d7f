"""The mask of shared rows for FlexAttention: a rule and the blocks in which it shows anything, never a square on a GPU."""

from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from oncurve.policy.prefix import PADDING, PROMPT, Layout


def block_mask(layout: Layout, window: int | None = None, *, blocks_escape: bool = False) -> BlockMask:
    """What `prefix.visible` says, as a rule. It is compiled on a GPU only; elsewhere torch evaluates it as a square."""
    segment, place, block = layout.segment_BS, layout.place_BS, layout.block_BS

    def seen(b: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        mine = (segment[b, k] == PROMPT) | (segment[b, k] == segment[b, q])
        real = (segment[b, k] != PADDING) & (segment[b, q] != PADDING)
        within = (block[b, k] == block[b, q]) & (block[b, q] > 0)
        near = True if window is None else place[b, q] - place[b, k] < window
        shown = (k <= q) & near | within if blocks_escape else ((k <= q) | within) & near
        return shown & mine & real | (k == q)

    rows, size = segment.shape
    return create_block_mask(
        seen, rows, None, size, size, device=segment.device, _compile=segment.device.type == "cuda"
    )
