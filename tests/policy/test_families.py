"""What families differ in: positions, masks, token types; what can't share; and the self-check at start.

That shared rows are exact in every family is in `tests/conformance`.
"""

from types import SimpleNamespace

import pytest
import torch
from transformers import Gemma3TextConfig
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from oncurve.policy import check, prefix
from oncurve.policy.families import Family
from oncurve.policy.prompt import Prompt, Row
from oncurve.truths import BoxTruth
from oncurve.types import Message, Task

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
WINDOW = 5
IMAGE = 37
TASK = Task("t", "grounding", (Message("user", "box the cat"),), BoxTruth((0.1, 0.1, 0.5, 0.5)))


class FixedProcessor:
    """Says the same prompt to every task."""

    tokenizer = SimpleNamespace(pad_token_id=0)
    image_processor = None

    def __init__(self, inputs: dict[str, torch.Tensor]):
        self.inputs = inputs

    def apply_chat_template(self, messages, *, tokenize, **_):
        return dict(self.inputs) if tokenize else "fixed"


def config(kind: str, **more) -> SimpleNamespace:
    made = SimpleNamespace(model_type=kind, image_token_id=IMAGE, vision_config=SimpleNamespace(patch_size=14), **more)
    made.get_text_config = lambda: made
    return made


def encoded(kind: str, ids: list[int], **inputs: torch.Tensor) -> Prompt:
    """What the family makes of a prompt whose processor says nothing of token types."""
    model = SimpleNamespace(config=config(kind), device=torch.device("cpu"))
    seen = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
    return Family.of(model.config).encode(model, FixedProcessor(seen | inputs), TASK)


def prompt(ids: list[int], blocks: list[int] | None = None) -> Prompt:
    blocks_T = None if blocks is None else torch.tensor(blocks)
    return Prompt("", tuple(ids), torch.arange(len(ids))[None], {}, {}, (), (), blocks_T)


def test_paligemma_counts_from_1_and_its_prompt_is_one_block():
    found = encoded("paligemma", [IMAGE, IMAGE, 5, 6])
    assert found.positions.tolist() == [[1, 2, 3, 4]]
    assert found.next_position == 5
    assert {name: values.tolist() for name, values in found.token_types.items()} == {"token_type_ids": [0, 0, 0, 0]}
    assert found.blocks.tolist() == [1, 1, 1, 1]


def test_each_image_of_gemma_3_is_a_block():
    found = encoded("gemma3", [4, IMAGE, IMAGE, 5, IMAGE, IMAGE, IMAGE, 6])
    assert found.positions.tolist() == [list(range(8))]
    assert found.token_types["token_type_ids"].tolist() == [0, 1, 1, 0, 1, 1, 1, 0]
    assert found.blocks.tolist() == [0, 1, 1, 0, 2, 2, 2, 0]


def test_other_families_have_no_blocks_and_keep_what_their_processor_says():
    types = torch.tensor([[0, 1, 0]])
    found = encoded("llava", [4, IMAGE, 5], token_type_ids=types)
    assert found.blocks is None
    assert found.token_types["token_type_ids"].tolist() == [0, 1, 0]


def drawn(mask: torch.Tensor) -> list[str]:
    return ["".join("x" if seen else "." for seen in query) for query in mask[0, 0].tolist()]


BLOCKS = Row(prompt([11, 12, 13, 14], blocks=[0, 1, 1, 1]), ((21,), (31,)), (1.0, 1.0))


def test_a_block_sees_itself_in_both_directions():
    assert drawn(prefix.visible(prefix.lay_out([BLOCKS], 0))) == [
        "x.....",
        "xxxx..",
        "xxxx..",
        "xxxx..",
        "xxxxx.",
        "xxxx.x",
    ]


def test_a_window_cuts_a_block_unless_it_escapes():
    layout = prefix.lay_out([BLOCKS], 0)
    assert drawn(prefix.visible(layout, 2)) == [
        "x.....",
        "xxxx..",
        ".xxx..",
        "..xx..",
        "...xx.",
        "...x.x",
    ]
    assert drawn(prefix.visible(layout, 2, blocks_escape=True)) == [
        "x.....",
        "xxxx..",
        ".xxx..",
        ".xxx..",
        "...xx.",
        "...x.x",
    ]


def test_qwen_vl_counts_on_three_axes(qwen_vl):
    ids = [4, 5, 35, *[IMAGE] * 6, 36, 8, 9]
    inputs = {
        "input_ids": torch.tensor([ids]),
        "attention_mask": torch.ones(1, len(ids), dtype=torch.long),
        "pixel_values": torch.zeros(24, 3 * 2 * 14 * 14),
        "image_grid_thw": torch.tensor([[1, 4, 6]]),
    }
    family = Family.of(qwen_vl.config)
    found = family.encode(qwen_vl, FixedProcessor(inputs), TASK)
    assert family.num_position_axes == 3
    assert found.positions.tolist() == [
        [0, 1, 2, 3, 3, 3, 3, 3, 3, 6, 7, 8],
        [0, 1, 2, 3, 3, 3, 4, 4, 4, 6, 7, 8],
        [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8],
    ]
    assert found.next_position == 9
    assert found.token_types["mm_token_type_ids"].tolist() == [0, 0, 0, *[1] * 6, 0, 0, 0]
    assert found.model_image_sizes == ((6 * 14, 4 * 14),)


@pytest.fixture(scope="module")
def qwen_vl():
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    eye = {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 32}
    text = SMALL | {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 1e4}}
    made = Qwen2_5_VLConfig(
        text_config={name: value for name, value in text.items() if name != "bos_token_id"},
        vision_config=eye,
        image_token_id=IMAGE,
        video_token_id=38,
        vision_start_token_id=35,
        vision_end_token_id=36,
    )
    return Qwen2_5_VLForConditionalGeneration._from_config(made)


def test_sliding_windows_get_a_mask_of_their_own():
    layers = ["sliding_attention", "full_attention"]
    text = Gemma3TextConfig(**SMALL, head_dim=8, sliding_window=WINDOW, layer_types=layers)
    model = AutoModelForCausalLM.from_config(text)
    layout = prefix.lay_out([Row(prompt([3, 4, 5, 6, 8, 9]), ((20, 21), (22,)), (1.0, 1.0))], 0)
    masks = Family.of(model.config).shared_mask(model, layout)
    assert set(masks) == {"full_attention", "sliding_attention"}
    assert torch.equal(masks["full_attention"], prefix.visible(layout))
    assert torch.equal(masks["sliding_attention"], prefix.visible(layout, WINDOW))


@pytest.mark.parametrize(
    ("kind", "layers", "stateful", "named"),
    [
        ("qwen3_next", ["linear_attention", "full_attention"], False, "linear_attention"),
        ("mamba", None, True, "mamba"),
        ("jamba", ["mamba", "full_attention"], False, "mamba"),
        ("paligemma", None, False, None),
        ("gemma3", ["full_attention", "sliding_attention"], False, None),
        ("llama", ["full_attention", "sliding_attention"], False, None),
    ],
)
def test_what_cannot_share_is_read_off_the_config(kind, layers, stateful, named):
    made = config(kind, layer_types=layers)
    why = Family.of(made).why_no_shared_prefix(SimpleNamespace(config=made, _is_stateful=stateful))
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
    def causal(layout, window=None, blocks_escape=False):
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
