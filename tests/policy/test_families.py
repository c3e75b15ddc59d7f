"""Shared rows against plain ones, by log-probabilities and every parameter's gradient, in families of several kinds."""

from types import SimpleNamespace

import pytest
import torch
from transformers import (
    Gemma3TextConfig,
    Lfm2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from oncurve.policy import check, prefix
from oncurve.policy.families import Family
from oncurve.policy.policy import Policy
from oncurve.policy.prompt import Prompt, Row
from oncurve.types import BoxTruth, Message, Task

SMALL = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}
WINDOW = 5  # shorter than any prompt here
START, END, IMAGE = 35, 36, 37  # Qwen-VL's vision tokens
BANNED = (0, 7, 33, START, END, IMAGE)


class FixedProcessor:
    """Says the same prompt to every task."""

    tokenizer = SimpleNamespace(pad_token_id=0)
    image_processor = None

    def __init__(self, inputs: dict[str, torch.Tensor]):
        self.inputs = inputs

    def apply_chat_template(self, messages, *, tokenize, **_):
        return dict(self.inputs) if tokenize else "fixed"


def text_model(config) -> torch.nn.Module:
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def qwen_vl() -> torch.nn.Module:
    text = {name: value for name, value in SMALL.items() if name != "bos_token_id"}
    config = Qwen2_5_VLConfig(
        text_config=text
        | {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 1e4}}
        | {"max_window_layers": 2},
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "out_hidden_size": 32,
            "fullatt_block_indexes": [1],
            "window_size": 112,
        },
        image_token_id=IMAGE,
        video_token_id=38,
        vision_start_token_id=START,
        vision_end_token_id=END,
        tie_word_embeddings=False,
    )
    return Qwen2_5_VLForConditionalGeneration._from_config(config, attn_implementation="sdpa")


MODELS = {
    "llama": lambda: text_model(LlamaConfig(**SMALL)),
    "mistral_window": lambda: text_model(MistralConfig(**SMALL, sliding_window=WINDOW)),
    "qwen2_window": lambda: text_model(
        Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1)
    ),
    "gemma3_text": lambda: text_model(
        Gemma3TextConfig(
            **SMALL, head_dim=8, sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"]
        )
    ),
    "qwen2_5_vl": qwen_vl,
}


def prompt(ids: list[int]) -> Prompt:
    return Prompt("", tuple(ids), torch.arange(len(ids))[None], {}, {}, (), ())


def image_inputs(seed: int) -> dict[str, torch.Tensor]:
    """Twelve tokens: two of text, an image of 2 x 3 merged patches between its marks, two of text."""
    ids = [4, 5, START, *[IMAGE] * 6, END, 8, 9]
    pixels = torch.randn(24, 3 * 2 * 14 * 14, generator=torch.Generator().manual_seed(seed))
    return {
        "input_ids": torch.tensor([ids]),
        "attention_mask": torch.ones(1, len(ids), dtype=torch.long),
        "mm_token_type_ids": torch.tensor([[int(token == IMAGE) for token in ids]]),
        "pixel_values": pixels,
        "image_grid_thw": torch.tensor([[1, 4, 6]]),
    }


TASK = Task("t", "grounding", (Message("user", "box the cat"),), BoxTruth((0.1, 0.1, 0.5, 0.5)))


def make(name: str, perturb_weights) -> tuple[Policy, list[Prompt]]:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    perturb_weights(model, 0.15)
    family = Family.of(model.config)
    if name == "qwen2_5_vl":
        processors = [FixedProcessor(image_inputs(seed)) for seed in (0, 1)]
        prompts = [family.encode(model, processor, TASK) for processor in processors]
    else:
        prompts = [prompt([3, 4, 5, 6, 8, 9, 10, 11, 12]), prompt([13, 14, 15, 3, 4, 16])]
    policy = Policy(model, FixedProcessor({}), family, eos_ids=frozenset({1}), banned_ids=BANNED)
    return policy, prompts


def batch(prompts: list[Prompt]) -> list[Row]:
    """Ragged answers, some of one token, each at a temperature of its own."""
    return [
        Row(prompts[0], ((20, 21, 22, 23, 24, 25, 1), (26,), (27, 28, 20)), (1.0, 0.7, 1.3)),
        Row(prompts[1], ((21, 1), (29, 30, 31, 32, 6)), (0.0, 1.5)),
    ]


def compare(policy: Policy, rows: list[Row], plain_logps, logp_error: float, gradient_error: float) -> None:
    """Shared rows, and `Policy.plain`, against one unpadded row an answer."""
    weights = torch.randn(
        sum(row.num_answer_tokens for row in rows), generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    named = [(name, p) for name, p in policy.model.named_parameters() if p.requires_grad]

    def with_gradients(logps_T: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        loss = (weights * logps_T.double()).sum()
        found = torch.autograd.grad(loss, [p for _, p in named], allow_unused=True)
        return logps_T.detach(), [torch.zeros(1) if g is None else g for g in found]

    one_by_one = torch.cat(
        [
            plain_logps(policy, row.prompt, answer, temperature or 1.0)
            for row in rows
            for answer, temperature in zip(row.answers, row.temperatures, strict=True)
        ]
    )
    truth, truth_gradients = with_gradients(one_by_one)
    largest = max(g.norm() for g in truth_gradients)
    for why_plain in (None, "asked by the test"):
        policy.why_plain = why_plain
        found, gradients = with_gradients(policy.logps(rows).logps_T)
        assert (found - truth).abs().max() < logp_error
        for (name, _), gradient, expected in zip(named, gradients, truth_gradients, strict=True):
            # a key bias has a gradient of zero in exact arithmetic, so its rounding is measured against the largest
            scale = expected.norm() if expected.norm() > 1e-5 * largest else largest
            assert (gradient - expected).norm() < gradient_error * scale, name


@pytest.mark.parametrize("name", MODELS)
def test_float32(name, perturb_weights, plain_logps):
    policy, prompts = make(name, perturb_weights)
    assert policy.shared_prefix
    compare(policy, batch(prompts), plain_logps, 1e-4, 1e-4)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "gemma3_text"])
def test_float64(name, perturb_weights, to_float64, plain_logps):
    policy, prompts = make(name, perturb_weights)
    to_float64(policy.model)
    policy.compute_dtype = torch.float64
    # Qwen's vision tower turns its queries and keys in float32, whatever the model's dtype
    compare(policy, batch(prompts), plain_logps, 1e-9, 1e-6 if name == "qwen2_5_vl" else 1e-9)


@pytest.mark.parametrize("name", ["llama", "qwen2_window"])
def test_eager_attention_takes_the_additive_mask(name, perturb_weights, plain_logps):
    policy, prompts = make(name, perturb_weights)
    policy.model.set_attn_implementation("eager")
    masks = policy.family.shared_mask(policy.model, prefix.lay_out(batch(prompts), 0))
    assert all(m.dtype == torch.float32 for m in (masks.values() if isinstance(masks, dict) else [masks]))
    compare(policy, batch(prompts), plain_logps, 1e-4, 1e-4)


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-4), ("float64", 1e-9)])
def test_the_tiny_idefics3(dtype, bound, make_policy, tasks, plain_logps):
    policy = make_policy(dtype)
    first = policy.encode(tasks[0])
    other = next(p for p in map(policy.encode, tasks) if len(p) != len(first))
    rows = [
        Row(first, ((100, 200, 300, 1), (150,)), (1.0, 0.8)),
        Row(other, ((310, 320), (330, 340, 350)), (1.0, 1.2)),
    ]
    compare(policy, rows, plain_logps, bound, bound)


def test_qwen_vl_counts_on_three_axes(perturb_weights):
    policy, (first, _) = make("qwen2_5_vl", perturb_weights)
    assert policy.family == Family(num_position_axes=3)
    assert first.positions.tolist() == [
        [0, 1, 2, 3, 3, 3, 3, 3, 3, 6, 7, 8],
        [0, 1, 2, 3, 3, 3, 4, 4, 4, 6, 7, 8],
        [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8],
    ]
    assert first.next_position == 9
    assert first.model_image_sizes == ((6 * 14, 4 * 14),)


def test_sliding_windows_get_a_mask_of_their_own(perturb_weights):
    policy, prompts = make("gemma3_text", perturb_weights)
    layout = prefix.lay_out(batch(prompts), 0)
    masks = policy.family.shared_mask(policy.model, layout)
    assert set(masks) == {"full_attention", "sliding_attention"}
    assert torch.equal(masks["full_attention"], prefix.visible(layout))
    assert torch.equal(masks["sliding_attention"], prefix.visible(layout, WINDOW))


def test_a_model_with_state_is_named_and_runs_on_plain_rows(perturb_weights, plain_logps):
    torch.manual_seed(0)
    config = Lfm2Config(**SMALL, block_ff_dim=32, layer_types=["conv", "full_attention"])
    model = text_model(config).eval()
    policy = Policy(model, FixedProcessor({}), Family.of(config), eos_ids=frozenset({1}), banned_ids=BANNED)
    assert not policy.shared_prefix
    assert "layers of type conv" in policy.why_plain
    one, two = prompt([3, 4, 5, 6]), prompt([8, 9, 10, 11, 12])
    found = policy.logps([Row(one, ((20, 21), (22,)), (1.0, 1.0)), Row(two, ((23, 24, 25),), (1.0,))]).logps_T
    truth = torch.cat([plain_logps(policy, p, a) for p, a in ((one, (20, 21)), (one, (22,)), (two, (23, 24, 25)))])
    torch.testing.assert_close(found, truth, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "layers", "stateful", "named"),
    [
        ("qwen3_next", ["linear_attention", "full_attention"], False, "linear_attention"),
        ("mamba", None, True, "mamba"),
        ("paligemma", None, False, "paligemma"),
        ("gemma3", ["full_attention"], False, "gemma3"),
        ("llama", ["full_attention", "sliding_attention"], False, None),
    ],
)
def test_what_cannot_share_is_read_off_the_config(kind, layers, stateful, named):
    config = SimpleNamespace(model_type=kind, layer_types=layers)
    config.get_text_config = lambda: config
    why = Family.of(config).why_no_shared_prefix(SimpleNamespace(config=config, _is_stateful=stateful))
    assert why is None if named is None else named in why


def test_the_check_passes_on_the_tiny_model(make_policy, tasks):
    for dtype, bound in (("float32", 1e-4), ("float64", 1e-9)):
        found = check.check_shared_prefix(make_policy(dtype), tasks[0])
        assert found.shared
        assert found.why_plain is None
        assert 0 < found.max_logp_error < bound
        assert 0 < found.gradient_error < bound


def test_the_check_passes_in_bfloat16(make_policy, tasks):
    found = check.check_shared_prefix(make_policy("bfloat16"), tasks[0])
    assert found.shared
    assert 1e-4 < found.gradient_error < 0.1
    assert found.max_logp_error < 0.1


def test_a_mask_that_is_not_honoured_falls_back(make_policy, tasks, monkeypatch, plain_logps):
    def causal(layout, window=None):
        rows, size = layout.ids_BS.shape
        return torch.ones(size, size, dtype=torch.bool).tril().expand(rows, 1, size, size)

    policy = make_policy()
    monkeypatch.setattr(prefix, "visible", causal)
    found = check.check_shared_prefix(policy, tasks[0])
    assert not found.shared
    assert not policy.shared_prefix
    assert found.max_logp_error > 0.05
    assert f"{found.max_logp_error:.1e} nats" in policy.why_plain
    assert f"{found.gradient_error:.1e} of the gradient" in policy.why_plain
    encoded = policy.encode(tasks[0])
    logps = policy.logps([Row(encoded, ((100, 101), (102, 103)), (1.0, 1.0))]).logps_T
    truth = torch.cat([plain_logps(policy, encoded, answer) for answer in ((100, 101), (102, 103))])
    torch.testing.assert_close(logps, truth, rtol=0, atol=1e-4)


def test_the_check_leaves_a_family_that_cannot_share_alone(make_policy, tasks):
    policy = make_policy()
    policy.why_plain = "it has state"
    assert check.check_shared_prefix(policy, tasks[0]) == check.PrefixCheck(False, "it has state", None, None)
