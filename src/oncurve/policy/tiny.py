"""The built-in tiny model before training: a real Idefics3 of about a million parameters with a tokenizer of its own."""

import math

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3Processor,
    LlamaConfig,
    PreTrainedTokenizerFast,
)
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

from oncurve.tasks.scenes import names

IMAGE_PX, PATCH_PX = 64, 8
STRUCTURE = [
    "<pad>",
    "<eos>",
    "<unk>",
    "<image>",
    "<fake_token_around_image>",
    "<global-img>",
    "<end_of_utterance>",
    "<user>",
    "<assistant>",
]
NUMBERS = [f"{i / 100:.2f}" for i in range(101)]
MARKS = ["<box>", "</box>", "none"]
WORDS = ["box", "the", "left", "right", "top", "bottom", "largest", "smallest"]

PLACE_STD = 0.3  # of the position embeddings at start: as large as what the patches themselves carry

CHAT_TEMPLATE = (
    "{%- for message in messages -%}<{{ message.role }}>"
    "{%- if message.content is string -%}{{ message.content }}{%- else -%}"
    "{%- for part in message.content if part.type == 'text' -%}{{ part.text }}{%- endfor -%}"
    "{%- for part in message.content if part.type == 'image' -%}<image>{%- endfor -%}"
    "{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}<assistant>{%- endif -%}"
)
"""The phrase stands before the image, so that the image's tokens can attend to what is looked for."""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Known words, marks and two-decimal numbers are one token each; anything else falls back to bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*STRUCTURE, *alphabet])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(STRUCTURE)
    core.add_tokens([AddedToken(mark, normalized=False) for mark in MARKS[:2]])
    core.add_tokens(
        [AddedToken(word, single_word=True, normalized=False) for word in [*NUMBERS, MARKS[2], *WORDS, *names()]]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=STRUCTURE[3:],
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_processor() -> Idefics3Processor:
    """Every image is resized to one square of 64 px, whatever its shape: boxes are in 0..1 of either axis."""
    square = {"longest_edge": IMAGE_PX}
    image_processor = Idefics3ImageProcessorPil(size=square, max_image_size=square, do_image_splitting=False)
    tokens = (IMAGE_PX // PATCH_PX) ** 2
    return Idefics3Processor(image_processor, build_tokenizer(), image_seq_len=tokens, chat_template=CHAT_TEMPLATE)


def build_untrained(seed: int) -> tuple[Idefics3ForConditionalGeneration, Idefics3Processor]:
    """A model with random weights, except that places and numbers start as smooth curves rather than as noise."""
    processor = build_processor()
    tokenizer = processor.tokenizer
    special = {name: tokenizer.convert_tokens_to_ids(f"<{name}>") for name in ("pad", "eos", "image")}
    torch.manual_seed(seed)
    config = Idefics3Config(
        image_token_id=special["image"],
        pad_token_id=special["pad"],
        scale_factor=1,
        tie_word_embeddings=False,
        vision_config={
            "hidden_size": 96,
            "intermediate_size": 288,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "image_size": IMAGE_PX,
            "patch_size": PATCH_PX,
        },
        text_config=LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=4096,
            pad_token_id=special["pad"],
            bos_token_id=None,
            eos_token_id=special["eos"],
            tie_word_embeddings=False,
        ),
    )
    model = Idefics3ForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    _smooth_start(model, tokenizer)
    model.generation_config.eos_token_id = special["eos"]
    model.generation_config.pad_token_id = special["pad"]
    return model, processor


@torch.no_grad()
def _smooth_start(model: Idefics3ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast) -> None:
    vision, text = model.config.vision_config, model.config.text_config
    side = IMAGE_PX // PATCH_PX
    centers = (torch.arange(side) + 0.5) / side
    waves = _waves(centers, vision.hidden_size // 8)
    down, across = waves[:, None].expand(side, side, -1), waves[None].expand(side, side, -1)
    places = torch.cat([down, across], -1).flatten(end_dim=1)
    positions = model.model.vision_model.embeddings.position_embedding.weight
    positions.copy_(_mixed(places, vision.hidden_size, PLACE_STD))
    ids = torch.tensor(tokenizer.convert_tokens_to_ids(NUMBERS))
    numbers = _waves(torch.linspace(0, 1, len(NUMBERS)), 16)
    for table in (model.get_input_embeddings().weight, model.get_output_embeddings().weight):
        table[ids] = _mixed(numbers, text.hidden_size, text.initializer_range)


def _waves(x: torch.Tensor, count: int) -> torch.Tensor:
    """Cosines and sines of `x` in 0..1 at `count` frequencies, the slow ones larger: `(values, 2 count)`."""
    k = torch.arange(1, count + 1)
    angle = math.pi * x[:, None] * k
    return torch.cat([angle.cos(), angle.sin()], 1) / k.repeat(2).sqrt()


def _mixed(features: torch.Tensor, width: int, std: float) -> torch.Tensor:
    """Features brought to `width` by a random matrix and to a standard deviation."""
    mixed = features @ torch.randn(features.shape[1], width)
    return mixed * (std / mixed.std())
