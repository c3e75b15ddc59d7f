"""A prompt as the model takes it, and batches of prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """A task's prompt after chat template and processor. Prompts with the same `key` are one row."""

    text: str
    ids: tuple[int, ...]
    positions: Tensor  # (axes, prompt tokens): one axis, or Qwen-VL's three
    token_types: dict[str, Tensor]  # (prompt tokens,): what tells image tokens from text, where the family asks for it
    images: dict[str, Tensor]  # the processor's image tensors of this prompt alone
    image_hashes: tuple[str, ...]
    model_image_sizes: tuple[tuple[int, int], ...]  # width, height in px of each image as the model saw it
    blocks: Tensor | None = None  # (prompt tokens,): those of one number above 0 see one another in both directions

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def key(self) -> str:
        """Equal for the same token ids with the same images."""
        return sha256(repr((self.ids, self.image_hashes)).encode()).hexdigest()

    @property
    def batch_key(self) -> tuple:
        """Equal for prompts whose image tensors can be concatenated."""
        return tuple((name, *image.shape[1:]) for name, image in sorted(self.images.items()))

    @property
    def next_position(self) -> int:
        """The position of an answer's first token, on every axis."""
        return int(self.positions.max()) + 1 if len(self) else 0


@dataclass(frozen=True, slots=True)
class Row:
    """Answers to one prompt, to be run as one sequence `[prompt | answer 1 | … | answer n]`.

    Each answer is its token ids; `temperatures` holds one for each answer (0 counts as 1: a greedy answer's
    log-probabilities are those of the untempered softmax).
    """

    prompt: Prompt
    answers: tuple[tuple[int, ...], ...]
    temperatures: tuple[float, ...]

    @property
    def num_answer_tokens(self) -> int:
        return sum(map(len, self.answers))

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + self.num_answer_tokens

    @property
    def num_tokens_plain(self) -> int:
        """What the same answers cost with one row each."""
        return len(self.prompt) * len(self.answers) + self.num_answer_tokens


def concat_images(prompts: Sequence[Prompt], device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    """The image tensors of prompts with one `batch_key`, concatenated; floating ones in the model's dtype."""
    tensors = {name: torch.cat([prompt.images[name] for prompt in prompts]) for name in prompts[0].images}
    return {name: t.to(device, dtype if t.is_floating_point() else None) for name, t in tensors.items()}


def left_padded(rows: Sequence[Tensor], size: int, value: int = 0) -> Tensor:
    """Rows `(…, tokens)` padded on the left to `size` tokens and stacked on a new axis before the last."""
    return torch.stack([torch.nn.functional.pad(row, (size - row.shape[-1], 0), value=value) for row in rows], -2)
