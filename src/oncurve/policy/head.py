"""The language head on the columns that predict an answer's token, in chunks: its logits never all stand at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHUNK_LOGITS = 2**23  # of one chunk: 32 MiB in float32
RESCALES = ("final_logit_softcapping", "logit_scale", "logits_scaling")  # what some families do behind the head


def rescales(model) -> bool:
    """Whether the family rescales its logits behind the head."""
    config = model.config.get_text_config()
    return any(getattr(config, name, None) not in (None, 1.0) for name in RESCALES)


@contextmanager
def headless(model) -> Iterator[Callable[[Tensor], Tensor]]:
    """While the context lasts, the model's `logits` are the hidden states that its head reads. Yields the head.

    A family that rescales its logits behind the head keeps it: its logits are what they are, and the head yielded does
    nothing.
    """
    if rescales(model):
        yield lambda logits: logits
        return
    head = model.get_output_embeddings()
    forward = head.forward
    head.forward = lambda hidden: hidden
    try:
        yield forward
    finally:
        del head.forward


def in_chunks(
    terms: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    hidden_TH: Tensor,
    targets_T: Tensor,
    temperatures_T: Tensor,
    num_logits: int,
) -> tuple[Tensor, Tensor]:
    """`terms` of some tokens at a time, `num_logits` each, joined. Where there are several chunks, backward runs each again."""
    size = max(1, CHUNK_LOGITS // num_logits)
    if len(targets_T) <= size:
        return terms(hidden_TH, targets_T, temperatures_T)
    parts = [
        checkpoint(terms, *part, use_reentrant=False)
        for part in zip(*(x.split(size) for x in (hidden_TH, targets_T, temperatures_T)), strict=True)
    ]
    logps, entropies = zip(*parts, strict=True)
    return torch.cat(logps), torch.cat(entropies)
