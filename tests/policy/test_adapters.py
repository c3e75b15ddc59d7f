"""Low-rank adapters: what trains, what the reference is, what is saved and loaded again; and gradient checkpointing."""

import json
import math
import shutil

import pytest
import torch

from oncurve.config.schema import LoraConfig, ModelConfig
from oncurve.errors import ModelError
from oncurve.policy.check import check_shared_prefix
from oncurve.policy.load import load_policy, load_weights, save_model
from oncurve.policy.prompt import Row

LORA = LoraConfig(rank=4, alpha=8)


@pytest.fixture(scope="module")
def base(make_policy, tmp_path_factory):
    """A folder with the tiny model's architecture and random weights."""
    folder = tmp_path_factory.mktemp("base")
    save_model(make_policy(), folder)
    return folder


def load(path, lora: LoraConfig | None = LORA, seed: int = 0, **more):
    return load_policy(ModelConfig(path=str(path), device="cpu", lora=lora, **more), seed=seed)


def adapters(policy) -> dict[str, torch.Tensor]:
    return {name: p for name, p in policy.model.named_parameters() if p.requires_grad}


def move(policy, std: float = 0.1) -> None:
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in adapters(policy).values():
            parameter += std * torch.randn(parameter.shape, generator=generator)


def logps(policy, task, **options) -> torch.Tensor:
    return policy.logps([Row(policy.encode(task), ((100, 101, 1), (102,)), (1.0, 0.7))], **options).logps_T


def test_adapters_train_and_nothing_else(base, tasks):
    policy = load(base)
    names = adapters(policy)
    assert names
    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    assert not any("lm_head" in name or "embed" in name for name in names)
    assert any("vision_model" in name for name in names)
    assert any("text_model" in name for name in names)
    logps(policy, tasks[0]).sum().backward()
    assert {name for name, p in policy.model.named_parameters() if p.grad is not None} == names.keys()


def test_targets_may_be_the_language_model_alone(base):
    names = adapters(load(base, LoraConfig(rank=4, targets="language")))
    assert names
    assert all("text_model" in name for name in names)


def test_the_scale_is_alpha_over_the_rank_or_over_its_root(base, tasks):
    before = logps(load(base, None), tasks[0])
    for rslora, scale in ((False, 8 / 4), (True, 8 / math.sqrt(4))):
        policy = load(base, LoraConfig(rank=4, alpha=8, rslora=rslora))
        assert torch.equal(logps(policy, tasks[0]), before)  # B starts at 0
        layer = policy.model.get_decoder().layers[0].self_attn.q_proj
        move(policy)
        x = torch.randn(3, layer.in_features)
        by_hand = (
            x @ (layer.base_layer.weight + scale * layer.lora_B["default"].weight @ layer.lora_A["default"].weight).T
        )
        torch.testing.assert_close(layer(x), by_hand)


def test_the_reference_is_the_base_under_the_same_weights(base, tasks):
    plain = load(base, None)
    before = logps(plain, tasks[0]).detach()
    policy = load(base)
    policy.freeze_reference()
    move(policy)
    assert policy.reference is policy.model
    assert (logps(policy, tasks[0]) - before).abs().max() > 0.01
    reference = logps(policy, tasks[0], reference=True)
    assert torch.equal(reference, before)
    assert not reference.requires_grad
    assert all(p.requires_grad for p in adapters(load(base)).values())
    assert adapters(policy).keys() == adapters(load(base)).keys()  # asking the base switches nothing off


def test_shared_rows_stay_exact(base, tasks):
    policy = load(base, gradient_checkpointing=True)
    move(policy)
    found = check_shared_prefix(policy, tasks[0])
    assert found.shared
    assert found.max_logp_error < 1e-4
    assert found.gradient_error < 1e-4


def test_the_seed_draws_the_adapter(base):
    a, b, c = (adapters(load(base, seed=seed)) for seed in (0, 0, 1))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not all(torch.equal(a[name], c[name]) for name in a)


def test_saved_small_and_loaded_again(base, tasks, tmp_path):
    policy = load(base)
    move(policy)
    save_model(policy, tmp_path / "model")
    assert json.loads((tmp_path / "model/adapter_config.json").read_text())["base_model_name_or_path"] == str(base)
    assert not list(tmp_path.glob("model/model*.safetensors"))
    again = load(base, seed=1)
    load_weights(again, tmp_path / "model")
    for name, parameter in adapters(policy).items():
        assert torch.equal(adapters(again)[name], parameter)
    merged = load(tmp_path, None)
    assert not merged.has_adapter
    torch.testing.assert_close(logps(merged, tasks[0]), logps(policy, tasks[0]), rtol=0, atol=1e-4)
    assert merged.encode(tasks[0]).ids == policy.encode(tasks[0]).ids
    assert all(p.requires_grad for p in merged.model.parameters())


def test_an_adapter_on_an_adapter(base, tasks, tmp_path):
    first = load(base)
    move(first)
    save_model(first, tmp_path / "first")
    second = load(tmp_path / "first")
    torch.testing.assert_close(logps(second, tasks[0], reference=False), logps(first, tasks[0]), rtol=0, atol=1e-4)
    move(second, 0.05)
    save_model(second, tmp_path / "second")
    merged = load(tmp_path / "second", None)
    torch.testing.assert_close(logps(merged, tasks[0]), logps(second, tasks[0]), rtol=0, atol=1e-4)


def test_weights_of_another_adapter_are_refused(base, tmp_path):
    save_model(load(base, LoraConfig(rank=2)), tmp_path)
    with pytest.raises(ModelError, match=r"holds another adapter than this model has"):
        load_weights(load(base), tmp_path)
    save_model(load(base, LoraConfig(rank=4, targets="language")), tmp_path)
    with pytest.raises(ModelError, match=r"holds another adapter than this model has"):
        load_weights(load(base), tmp_path)


def test_weights_beside_another_base_are_refused(base, tmp_path):
    save_model(load(base), tmp_path / "adapter")
    shutil.copytree(base, tmp_path / "other")
    with pytest.raises(
        ModelError, match=r"is an adapter to .*, and model\.path now leads to .*other; put the base back"
    ):
        load_weights(load(tmp_path / "other"), tmp_path / "adapter")


def test_a_base_that_has_moved_is_named(base, tmp_path):
    shutil.copytree(base, tmp_path / "here")
    save_model(load(tmp_path / "here"), tmp_path / "adapter")
    (tmp_path / "here").rename(tmp_path / "there")
    with pytest.raises(
        ModelError, match=r"adapter to .*here, which can't .*\n.*base_model_name_or_path in .*adapter_con"
    ):
        load(tmp_path / "adapter", None)


def test_a_built_in_base_is_named_by_its_name(tmp_path):
    policy = load("builtin:tiny")
    save_model(policy, tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["base_model_name_or_path"] == "builtin:tiny"
    assert not load(tmp_path, None).has_adapter


def test_untrained_weights_are_no_base():
    with pytest.raises(ValueError, match="lora trains beside a model's weights, and builtin:untrained has none"):
        ModelConfig(path="builtin:untrained", lora=LORA)


def test_checkpointing_runs_layers_twice_and_only_where_a_gradient_is_asked(base, tasks):
    kept, again = load(base, None), load(base, None, gradient_checkpointing=True)
    runs = []
    again.model.get_decoder().layers[0].register_forward_pre_hook(lambda *_: runs.append(1))
    found, expected = logps(again, tasks[0]), logps(kept, tasks[0])
    found.sum().backward()
    expected.sum().backward()
    assert len(runs) == 2
    assert torch.equal(found, expected)
    for parameter, other in zip(again.model.parameters(), kept.model.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=0, atol=0)
    with torch.no_grad():
        logps(again, tasks[0])
    assert len(runs) == 3
    _, state = again.prefill([again.encode(tasks[0])], [2], 2)
    assert again.decode(torch.tensor([100, 101]), state).shape[0] == 2  # with its cache
    assert state.cache.get_seq_length() == len(again.encode(tasks[0])) + 2
