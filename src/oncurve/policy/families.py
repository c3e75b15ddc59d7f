"""What differs between model families in how a prompt, positions and masks are handed over."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from oncurve.errors import ModelError
from oncurve.policy import flex, prefix, tiles
from oncurve.policy.prompt import Prompt
from oncurve.types import Task

ATTENTION_LAYERS = {"full_attention", "sliding_attention"}
Mask = Tensor | BlockMask
TOKEN_TYPES = ("mm_token_type_ids", "token_type_ids")


@dataclass(frozen=True, slots=True)
class Family:
    """How to call one family. `of` reads it off a loaded model's config."""

    num_position_axes: int = 1
    first_position: int = 0
    token_types: Literal["mm_token_type_ids", "token_type_ids"] | None = None
    answer_token_type: int = 0
    two_way: Literal["prompt", "images"] | None = None  # what sees itself in both directions

    @classmethod
    def of(cls, config) -> "Family":
        if config.model_type.startswith("qwen") and hasattr(config, "vision_config"):
            return cls(num_position_axes=3, token_types="mm_token_type_ids")
        if config.model_type == "paligemma":
            return cls(first_position=1, token_types="token_type_ids", answer_token_type=1, two_way="prompt")
        if config.model_type == "gemma3":
            return cls(token_types="token_type_ids", two_way="images")
        return cls()

    def why_no_shared_prefix(self, model) -> str | None:
        """What in the model's config can't honour a mask over a shared row, or None.

        Such layers raise nothing when they are handed one, so the config is asked first and a self-check follows.
        """
        config = model.config.get_text_config()
        strange = sorted(set(getattr(config, "layer_types", None) or []) - ATTENTION_LAYERS)
        if strange:
            return f"layers of type {', '.join(strange)} carry a state that a mask can't part"
        if getattr(model, "_is_stateful", False):
            return f"{config.model_type} carries a state that a mask can't part"
        return None

    def encode(self, model, processor, task: Task) -> Prompt:
        """Chat template, processor and positions of a task's prompt. Raises `ModelError` for images without eyes."""
        with_images = hasattr(processor, "image_processor")
        if task.images and not with_images:
            raise ModelError(
                f"task {task.id} has {len(task.images)} image(s), and {model.config.model_type} reads text alone; "
                "choose a vision-language model or a data set without images"
            )
        messages = [
            {
                "role": message.role,
                "content": [
                    *({"type": "image", "image": image.pixels} for image in message.images),
                    {"type": "text", "text": message.text},
                ]
                if with_images
                else message.text,
            }
            for message in task.messages
        ]
        options = {"add_generation_prompt": True, "return_dict": True, "return_tensors": "pt"}
        inputs = dict(processor.apply_chat_template(messages, tokenize=True, **options))
        text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = inputs.pop("input_ids")
        inputs.pop("attention_mask")
        inputs.pop("labels", None)
        types = {name: inputs.pop(name)[0] for name in TOKEN_TYPES if name in inputs}
        if self.token_types:
            # Not left to the processor: without them some of these models fall back to other masks or positions in silence.
            is_image = ids[0] == model.config.image_token_id
            types = {self.token_types: torch.zeros_like(ids[0]) if self.two_way == "prompt" else is_image.long()}
        return Prompt(
            text=text,
            ids=tuple(ids[0].tolist()),
            positions=self._prompt_positions(model, ids, types, inputs),
            token_types=types,
            blocks=self._blocks(types),
            images=inputs,
            image_hashes=tuple(image.sha256 for image in task.images),
            model_image_sizes=_model_image_sizes(model, inputs),
        )

    def _prompt_positions(self, model, ids: Tensor, types: dict[str, Tensor], images: dict[str, Tensor]) -> Tensor:
        if self.num_position_axes == 3 and "image_grid_thw" in images:
            token_types = {name: values[None].to(model.device) for name, values in types.items()}
            grid = images["image_grid_thw"].to(model.device)
            return model.model.get_rope_index(ids.to(model.device), image_grid_thw=grid, **token_types)[0][:, 0].cpu()
        counted = torch.arange(self.first_position, self.first_position + ids.shape[1])
        return counted.expand(self.num_position_axes, -1)

    def _blocks(self, types: dict[str, Tensor]) -> Tensor | None:
        """Which tokens of a prompt see one another in both directions: PaliGemma's all, each image of Gemma 3 by itself."""
        if self.two_way is None:
            return None
        values = types[self.token_types]
        if self.two_way == "prompt":
            return torch.ones_like(values)
        starts = values.diff(prepend=values.new_zeros(1)) == 1
        return starts.cumsum(0) * values

    def position_ids(self, positions: Tensor) -> Tensor:
        """`(axes, rows, columns)` as the family takes it."""
        return positions if self.num_position_axes > 1 else positions[0]

    def shared_mask(self, model, layout: prefix.Layout, tiled_from: int | None = None) -> Mask | dict[str, Mask]:
        """The mask of a batch of shared rows: one, or one for each type of layer where some have sliding windows.

        Rows of `tiled_from` columns and more get `tiles.codes` in its place, on a CPU and under sdpa, where no part of the
        prompt sees itself in both directions.
        """
        config, escape = model.config.get_text_config(), self.two_way == "prompt"
        tiled = (
            tiled_from is not None
            and layout.ids_BS.shape[1] >= tiled_from
            and layout.ids_BS.device.type == "cpu"
            and config._attn_implementation == "sdpa"
            and self.two_way is None
        )

        def mask(window: int | None) -> Mask:
            if config._attn_implementation == "flex_attention":
                return flex.block_mask(layout, window, blocks_escape=escape)
            if tiled:
                return tiles.codes(layout.segment_BS, layout.place_BS, window)
            seen = prefix.visible(layout, window, blocks_escape=escape)
            return prefix.additive(seen, model.dtype) if config._attn_implementation == "eager" else seen

        window, layer_types = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
        if layer_types is None:
            return mask(window)
        if "sliding_attention" in layer_types:
            return {"full_attention": mask(None), "sliding_attention": mask(window)}
        return mask(None)

    @contextmanager
    def handed(self, model, mask: Tensor | dict[str, Tensor]) -> Iterator[Tensor | dict[str, Tensor]]:
        """The mask as the model's own forward takes it, while the context lasts.

        PaliGemma 2 takes one mask alone, though its language model takes one for each type of layer: a hook hands them on.
        """
        if self.two_way != "prompt" or not isinstance(mask, dict):
            yield mask
            return
        hook = model.get_decoder().register_forward_pre_hook(
            lambda module, args, kwargs: (args, kwargs | {"attention_mask": mask}), with_kwargs=True
        )
        try:
            yield mask["full_attention"]
        finally:
            hook.remove()


def _model_image_sizes(model, images: dict[str, Tensor]) -> tuple[tuple[int, int], ...]:
    if "image_grid_thw" in images:
        patch = model.config.vision_config.patch_size
        return tuple((int(w) * patch, int(h) * patch) for _, h, w in images["image_grid_thw"])
    if "pixel_values" in images:
        pixels = images["pixel_values"].flatten(end_dim=-4)
        return tuple((pixels.shape[-1], pixels.shape[-2]) for _ in pixels)
    return ()
