"""One small model with random weights for each family, built from its config alone, and what the tests measure on it.

`pytest tests/conformance --families-table` prints the measured errors as the table of `docs/families.md`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from oncurve.policy.families import Family
from oncurve.policy.policy import Policy
from oncurve.policy.prompt import Prompt, Row
from oncurve.truths import BoxTruth
from oncurve.types import Message, Task

WINDOW = 5  # shorter than any prompt
START, END, IMAGE, VIDEO = 35, 36, 37, 38
BANNED = (0, 7, 33, START, END, IMAGE)

SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
}
MIXED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
GEMMA = MIXED | {"query_pre_attn_scalar": 8}
THREE_AXES = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}}
QWEN_IDS = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": START,
    "vision_end_token_id": END,
}
QWEN_EYE = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 32}
EYE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
SIGLIP = EYE | {"model_type": "siglip_vision_model", "projection_dim": 32, "vision_use_head": False}
IDEFICS = {"image_token_id": IMAGE, "scale_factor": 2, "pad_token_id": 0}
PALI = {"image_token_index": IMAGE, "projection_dim": 32, "hidden_size": 32}


def text(kind: str, **more) -> tuple[str, dict]:
    return kind, SIZES | more


def eyed(kind: str, text_kind: str, vision: dict, text_more: dict | None = None, **more) -> tuple[str, dict]:
    language = SIZES | {"model_type": text_kind} | (text_more or {})
    return kind, {"text_config": language, "vision_config": vision, "tie_word_embeddings": False, **more}


FAMILIES = {
    "Llama": text("llama"),
    "SmolLM2": text("llama", num_attention_heads=3, num_key_value_heads=1, hidden_size=24, tie_word_embeddings=True),
    "Qwen2, Qwen2.5": text("qwen2"),
    "Qwen2 with windows": text("qwen2", use_sliding_window=True, **MIXED),
    "Qwen3": text("qwen3"),
    "Mistral with a window": text("mistral", sliding_window=WINDOW),
    "Gemma 2": text("gemma2", **GEMMA),
    "Gemma 3 text": text("gemma3_text", **GEMMA),
    "Qwen2-VL": eyed(
        "qwen2_vl",
        "qwen2_vl_text",
        {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2},
        THREE_AXES,
        **QWEN_IDS,
    ),
    "Qwen2.5-VL": eyed(
        "qwen2_5_vl",
        "qwen2_5_vl_text",
        QWEN_EYE | {"fullatt_block_indexes": [1], "window_size": 56},
        THREE_AXES,
        **QWEN_IDS,
    ),
    "Qwen3-VL": eyed(
        "qwen3_vl",
        "qwen3_vl_text",
        QWEN_EYE | {"deepstack_visual_indexes": [0, 1], "num_position_embeddings": 64},
        THREE_AXES,
        **QWEN_IDS,
    ),
    "Idefics3": eyed("idefics3", "llama", EYE, **IDEFICS),
    "SmolVLM": eyed("smolvlm", "llama", EYE, **IDEFICS),
    "LLaVA": eyed("llava", "llama", SIGLIP | {"model_type": "clip_vision_model"}, image_token_index=IMAGE),
    "InternVL": eyed("internvl", "qwen2", EYE | {"image_size": [32, 32], "patch_size": [8, 8]}, image_token_id=IMAGE),
    "PaliGemma": eyed("paligemma", "gemma", SIGLIP, **PALI),
    "PaliGemma 2": eyed("paligemma", "gemma2", SIGLIP, GEMMA, **PALI),
    "Gemma 3": eyed(
        "gemma3",
        "gemma3_text",
        SIGLIP,
        GEMMA,
        image_token_index=IMAGE,
        mm_tokens_per_image=4,
        boi_token_index=START,
        eoi_token_index=END,
    ),
}

LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
WITH_STATE = {
    "LFM2": text("lfm2", layer_types=["conv", "full_attention"]),
    "Qwen3-Next": text("qwen3_next", **LINEAR, **EXPERTS),
    "Jamba": text("jamba", num_experts=1, num_experts_per_tok=1, attn_layer_period=2, attn_layer_offset=1),
    "Mamba": text("mamba", state_size=4, expand=2),
}  # no mask parts a state, so these run on plain rows

IMAGE_TOKENS = {"llava": 16, "paligemma": 16}  # of an image of 32 px; the other families here make 4 of its 16 patches

TASK = Task("t", "grounding", (Message("user", "box the cat"),), BoxTruth((0.1, 0.1, 0.5, 0.5)))


class FixedProcessor:
    """Says the same prompt to every task, as a chat template and a processor would."""

    tokenizer = SimpleNamespace(pad_token_id=0)
    image_processor = None

    def __init__(self, inputs: dict[str, torch.Tensor]):
        self.inputs = inputs

    def apply_chat_template(self, messages, *, tokenize, **_):
        return dict(self.inputs) if tokenize else "fixed"


class Float64(TorchFunctionMode):
    """Every cast to float32 inside a model gives float64, so that the comparison is not bounded by norms and rotary tables."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        if function is torch.Tensor.float:
            return arguments[0].double()
        wide = {key: torch.float64 if value is torch.float32 else value for key, value in (options or {}).items()}
        return function(*(torch.float64 if value is torch.float32 else value for value in arguments), **wide)


@dataclass(frozen=True)
class Bed:
    """A policy of one family and two rows whose prompts differ in length; answers are ragged, some of one token."""

    policy: Policy
    rows: list[Row]
    throughout: Callable[[], AbstractContextManager]  # in which everything about the policy is to be run


def prompts_of(model, family: Family) -> list[Prompt]:
    """With eyes, each prompt holds two images, and text before, between and behind them."""
    words = ([3, 4, 5, 6, 8, 9, 10, 11, 12], [13, 14, 15, 3, 4, 16])
    kind, found = model.config.model_type, []
    for seed, (start, end) in enumerate(((words[0][:4], words[0][4:]), (words[1][:2], words[1][2:]))):
        generator = torch.Generator().manual_seed(seed)
        images: dict[str, torch.Tensor] = {}
        counts: list[int] = []
        if kind.startswith("qwen") and family.num_position_axes == 3:
            counts = [6, 4]
            images["image_grid_thw"] = torch.tensor([[1, 4, 6], [1, 4, 4]])
            patch = model.config.vision_config.patch_size
            images["pixel_values"] = torch.randn(40, 3 * 2 * patch * patch, generator=generator)
        elif hasattr(model.config, "vision_config"):
            counts = [IMAGE_TOKENS.get(kind, 4)] * 2
            shape = (1, 2) if kind in ("idefics3", "smolvlm") else (2,)
            images["pixel_values"] = torch.randn(*shape, 3, 32, 32, generator=generator)
        blocks = [[START, *[IMAGE] * count, END] for count in counts]
        ids = [*start, *([*blocks[0], 17, *blocks[1]] if blocks else []), *end]
        seen = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
        found.append(family.encode(model, FixedProcessor(seen | images), TASK))
    return found


def make_bed(name: str, dtype: str, *, attention: str = "sdpa", adapters: bool = False) -> Bed:
    """`adapters` puts LoRA on every linear layer, frozen weights below, and gradient checkpointing on."""
    kind, parts = (FAMILIES | WITH_STATE)[name]
    torch.manual_seed(0)
    auto = AutoModelForImageTextToText if "vision_config" in parts else AutoModelForCausalLM
    model = auto.from_config(AutoConfig.for_model(kind, **parts), attn_implementation=attention).eval()
    throughout: Callable[[], AbstractContextManager] = Float64 if dtype == "float64" else nullcontext
    if adapters:
        import peft

        model.add_adapter(peft.LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
        again = {"use_reentrant": False, "context_fn": lambda: (nullcontext(), throughout())}
        model.gradient_checkpointing_enable(again)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.15 * torch.randn(parameter.shape, generator=generator)
    if dtype == "float64":
        model.double()
    family = Family.of(model.config)
    policy = Policy(
        model,
        FixedProcessor({}),
        family,
        eos_ids=frozenset({1}),
        banned_ids=BANNED,
        compute_dtype=getattr(torch, dtype),
    )
    first, second = prompts_of(model, family)
    rows = [
        Row(first, ((20, 21, 22, 23, 24, 25, 1), (26,), (27, 28, 20)), (1.0, 0.7, 1.3)),
        Row(second, ((21, 1), (29, 30, 31, 32, 6)), (0.0, 1.5)),
    ]
    return Bed(policy, rows, throughout)


@pytest.fixture(scope="session")
def bed() -> Callable[..., Bed]:
    return make_bed


def pytest_generate_tests(metafunc):
    if "family" in metafunc.fixturenames:
        metafunc.parametrize("family", FAMILIES)


MEASURED: dict[str, dict[str, str]] = {}


@pytest.fixture(scope="session")
def measured() -> Callable[[str, str, str], None]:
    """`measured(family, column, text)`: a cell of the table."""

    def keep(family: str, column: str, text: str) -> None:
        MEASURED.setdefault(family, {})[column] = text

    return keep


def pytest_addoption(parser):
    parser.addoption("--families-table", action="store_true", help="print what was measured as a Markdown table")


def pytest_terminal_summary(terminalreporter, config):
    if not (config.getoption("families_table", False) and MEASURED):
        return
    columns = list(dict.fromkeys(column for cells in MEASURED.values() for column in cells))
    for cells in (
        ["family", *columns],
        ["---"] * (len(columns) + 1),
        *([name, *(found.get(column, "") for column in columns)] for name, found in MEASURED.items()),
    ):
        terminalreporter.write_line("| " + " | ".join(cells) + " |")
