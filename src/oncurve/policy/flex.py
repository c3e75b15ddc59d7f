"""The mask of shared rows for FlexAttention: a rule and the blocks in which it shows anything, never a square on a GPU."""

from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from oncurve.policy.prefix import PADDING, PROMPT, Layout


def block_mask(layout: Layout, window: int | None = None) -> BlockMask:
    """What `prefix.visible` says, as a rule. It is compiled on a GPU only; elsewhere torch evaluates it as a square."""
    segment, place = layout.segment_BS, layout.place_BS

    def seen(b: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        mine = (segment[b, k] == PROMPT) | (segment[b, k] == segment[b, q])
        real = (segment[b, k] != PADDING) & (segment[b, q] != PADDING)
        shown = (k <= q) & mine & real
        if window is not None:
            shown = shown & (place[b, q] - place[b, k] < window)
        return shown | (k == q)

    rows, size = segment.shape
    return create_block_mask(
        seen, rows, None, size, size, device=segment.device, _compile=segment.device.type == "cuda"
    )
