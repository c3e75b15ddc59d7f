"""Models from folders: a Qwen2.5-VL with an offline processor on real photographs, and what can't be loaded."""

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from oncurve.config.schema import CocoData, ModelConfig
from oncurve.errors import ModelError
from oncurve.policy.check import check_shared_prefix
from oncurve.policy.load import load_policy, save_model
from oncurve.tasks.sets import load_tasks

SPECIAL = ["<pad>", "<|im_end|>", "<unk>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
WORDS = ["<|box_start|>", "box", "the", "bird", "dog", *(f"{i}" for i in range(10))]
TEMPLATE = (
    "{% for m in messages %}{% for c in m['content'] %}{% if c['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endfor %}"
)


@pytest.fixture(scope="module")
def qwen_folder(tmp_path_factory):
    """A Qwen2.5-VL with random weights as a user has one on disk; no torchvision, so no video processor."""
    folder = tmp_path_factory.mktemp("qwen")
    ids = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    core = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[a-z]+|\d|\s"), "isolated")
    extra = [*SPECIAL[3:], "<|box_start|>"]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<|im_end|>", unk_token="<unk>", extra_special_tokens=extra
    )
    tokenizer.save_pretrained(folder)
    Qwen2VLImageProcessorPil(size={"shortest_edge": 28 * 28, "longest_edge": 24 * 28 * 28}).save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    torch.manual_seed(0)
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": 64,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_window_layers": 2,
            "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4},
            "bos_token_id": 1,
            "eos_token_id": 1,
            "pad_token_id": 0,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 32,
            "fullatt_block_indexes": [1],
            "window_size": 112,
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    model = Qwen2_5_VLForConditionalGeneration._from_config(config)
    model.generation_config.eos_token_id = 1
    model.save_pretrained(folder)
    return folder


def load(path) -> ModelConfig:
    return load_policy(ModelConfig(path=str(path), device="cpu"))


def test_qwen_sees_a_photograph(qwen_folder, tmp_path):
    policy = load(qwen_folder)
    photo = load_tasks(CocoData(type="coco", path="recipes/photos/instances.json", images="recipes/photos"))[0]
    prompt = policy.encode(photo)
    ((width, height),) = prompt.model_image_sizes
    assert width % 28 == height % 28 == 0
    assert prompt.ids.count(3) == width * height // 28**2  # one token for each patch of 28 x 28 px
    assert prompt.positions.shape == (3, len(prompt))
    check = check_shared_prefix(policy, photo)
    assert check.shared
    assert check.max_logp_error < 1e-5
    save_model(policy, tmp_path / "saved")
    assert load(tmp_path / "saved").encode(photo).ids == prompt.ids


def test_marks_of_answers_stay_allowed(qwen_folder):
    policy = load(qwen_folder)
    box_start = policy.tokenizer.convert_tokens_to_ids("<|box_start|>")
    banned = set(policy.banned_ids.tolist())
    assert box_start not in banned
    assert banned == {0, 2, 3, 4, 5, 6} | set(range(len(policy.tokenizer), 64))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("builtin:small", "there are builtin:tiny, builtin:untrained"),
        ("builtin:tinny", "no such built-in model"),
        ("recipes/no_run", "there is no such folder"),
        ("recipes/photo", "did you mean recipes/photos"),
        ("a/b/c", "there is no such folder"),
        ("recipes", "neither a model's folder"),
    ],
)
def test_what_is_no_model(path, said):
    with pytest.raises(ModelError, match=said):
        load(path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_device_that_is_not_there():
    with pytest.raises(ModelError, match="no CUDA device that torch can use"):
        load_policy(ModelConfig(path="builtin:untrained", device="cuda"))


def test_a_model_without_chat_template(qwen_folder, tmp_path):
    import shutil

    folder = shutil.copytree(qwen_folder, tmp_path / "mute")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="no chat template"):
        load(folder)
