"""The work that `bench/peers.py` hands to every side: one prompt, its image, a random Qwen2.5-VL, and the reward.

It needs torch, transformers, tokenizers and Pillow, and nothing of Oncurve, so that a peer's environment can import it.
The model is of the real architecture (windowed vision tower, 2 x 2 merger, three-axis positions) and untrained; nothing
is downloaded.
"""

import random
import re

import torch
from PIL import Image, ImageDraw
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

PAD, EOS, UNK, IMAGE, VIDEO, VISION, VISION_END, USER, ASSISTANT = SPECIAL = (
    "<pad>", "<eos>", "<unk>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>",
    "<|user|>", "<|assistant|>",
)  # fmt: skip
VOCABULARY = (*SPECIAL, "<box>", "</box>", ",", "find", "the", "red", "square", *(f"{i / 100:.2f}" for i in range(101)))
TOKEN_IDS = {token: i for i, token in enumerate(VOCABULARY)}
CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}<|assistant|>"
)
PATCH_PX = 28  # the side of what one image token sees: 2 x 2 patches of 14
ASK = "find the red square"
ASK_IN_TEXT = "find the red square find the red "  # with its two roles 16 tokens, each space one of them
BOX = re.compile(r"<box>([01]\.\d\d),([01]\.\d\d),([01]\.\d\d),([01]\.\d\d)</box>")


def build_tokenizer() -> PreTrainedTokenizerFast:
    core = Tokenizer(models.WordLevel(TOKEN_IDS, unk_token=UNK))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"</?box>|,|\d\.\d\d|[a-z]+|\s"), "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        additional_special_tokens=list(SPECIAL[3:]),
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
    )
    named = {"image": IMAGE, "video": VIDEO, "vision_bos": VISION, "vision_eos": VISION_END}
    for name, token in named.items():
        setattr(tokenizer, f"{name}_token", token)
        setattr(tokenizer, f"{name}_token_id", TOKEN_IDS[token])
    return tokenizer


def build_processor() -> Qwen2_5_VLProcessor:
    """Put together by hand, since its own loader asks for torchvision's video processor."""
    processor = Qwen2_5_VLProcessor.__new__(Qwen2_5_VLProcessor)
    processor.tokenizer, processor.video_processor = build_tokenizer(), None
    sizes = {"shortest_edge": PATCH_PX**2, "longest_edge": 16_384 * PATCH_PX**2}
    processor.image_processor = Qwen2VLImageProcessorPil(size=sizes)
    processor.chat_template = CHAT_TEMPLATE
    processor.image_token, processor.image_token_id, processor.image_ids = IMAGE, TOKEN_IDS[IMAGE], [TOKEN_IDS[IMAGE]]
    processor.video_token, processor.video_token_id, processor.video_ids = VIDEO, TOKEN_IDS[VIDEO], [TOKEN_IDS[VIDEO]]
    processor.audio_token_id, processor.audio_ids = None, []
    return processor


def build_model(
    *, attention: str = "sdpa", text: dict | None = None, vision: dict | None = None
) -> Qwen2_5_VLForConditionalGeneration:
    """The same weights on every side: drawn from seed 0. `text` and `vision` change fields of the configs."""
    hidden = (text or {}).get("hidden_size", 256)
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(VOCABULARY),
            "hidden_size": hidden,
            "intermediate_size": 1024,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 1e4},
            "max_position_embeddings": 32_768,
            "bos_token_id": TOKEN_IDS[EOS],
            "eos_token_id": TOKEN_IDS[EOS],
            "pad_token_id": TOKEN_IDS[PAD],
            **(text or {}),
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": hidden,
            "fullatt_block_indexes": [1],
            "window_size": 112,
            **(vision or {}),
        },
        image_token_id=TOKEN_IDS[IMAGE],
        video_token_id=TOKEN_IDS[VIDEO],
        vision_start_token_id=TOKEN_IDS[VISION],
        vision_end_token_id=TOKEN_IDS[VISION_END],
    )
    torch.manual_seed(0)
    model = Qwen2_5_VLForConditionalGeneration._from_config(config, attn_implementation=attention).float()
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = TOKEN_IDS[EOS], TOKEN_IDS[PAD]
    return model


def draw(seed: int, num_image_tokens: tuple[int, int]) -> tuple[Image.Image, tuple[float, float, float, float]]:
    """An image that gives `(across, down)` image tokens, with one red square, and its box in 0..1."""
    rng = random.Random(seed)
    width, height = (PATCH_PX * n for n in num_image_tokens)
    image = Image.new("RGB", (width, height), tuple(rng.randint(60, 130) for _ in range(3)))
    w, h = rng.uniform(0.2, 0.5), rng.uniform(0.2, 0.5)
    x, y = rng.uniform(0, 1 - w), rng.uniform(0, 1 - h)
    ImageDraw.Draw(image).rectangle((x * width, y * height, (x + w) * width, (y + h) * height), fill=(200, 60, 60))
    return image, (x, y, x + w, y + h)


def reward(text: str, truth: tuple[float, float, float, float]) -> float:
    """IoU squared, and a little by length that keeps rewards apart: an untrained model must have a gradient too."""
    text = text.replace(" ", "").replace(EOS, "")
    found = BOX.fullmatch(text)
    return (_iou([float(x) for x in found.groups()], truth) ** 2 if found else 0.0) + 1e-3 * (len(text) % 7)


def _iou(a, b) -> float:
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    inter = max(0.0, w) * max(0.0, h)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter
    return inter / union if union > 0 else 0.0
