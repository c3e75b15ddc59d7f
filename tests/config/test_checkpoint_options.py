"""Which checkpoints stay: the names to choose the best by, and what a choice needs."""

import pytest

from oncurve.config.loader import load
from oncurve.config.schema import TrainConfig
from oncurve.errors import ConfigError


@pytest.fixture
def loaded(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text("[checkpoint]\nevery_steps = 50\n")
    return lambda *overrides: load(path, overrides, TrainConfig)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("eval/mean_iou", "eval/mean_iou/mean"),
        ("eval/mean_iou/mean", "eval/mean_iou/mean"),
        ("eval/accuracy", "eval/accuracy/mean"),
        ("eval/heldout/valid_format", "eval/heldout/valid_format"),
    ],
)
def test_short_and_full_names(loaded, written, name):
    config = loaded(f"--checkpoint.keep_best={written}")
    assert config.checkpoint.keep_best == name
    assert TrainConfig.model_validate_json(config.model_dump_json()) == config
    assert loaded().checkpoint.keep_best is None


def test_another_name_lists_those_that_are_allowed(loaded):
    with pytest.raises(ConfigError) as caught:
        loaded("--checkpoint.keep_best=eval/mean_uoi/mean")
    assert 'did you mean "eval/mean_iou/mean"?' in str(caught.value)
    assert "eval/heldout/acc@0.95" in str(caught.value)


@pytest.mark.parametrize("every", [0, 20, 100])
def test_every_checkpoint_must_be_evaluated(loaded, every):
    with pytest.raises(ConfigError) as caught:
        loaded("--checkpoint.keep_best=eval/mean_iou", f"--evaluate.every_steps={every}")
    words = " ".join(str(caught.value).split())
    assert (
        f"50 is no multiple of evaluate.every_steps {every}; set evaluate.every_steps to 50 or a divisor of it" in words
    )
    assert loaded("--checkpoint.keep_best=eval/mean_iou", "--evaluate.every_steps=25").evaluate.every_steps == 25
