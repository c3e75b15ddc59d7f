"""Objectives and advantages that a configuration refuses, each with what to set instead."""

import pytest
from pydantic import ValidationError

from oncurve.config.loader import load
from oncurve.config.schema import PpoObjective, TrainConfig
from oncurve.errors import ConfigError


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["--objective.mini_batches=3"], "does not divide the 16 groups of an update; allowed here: 1, 2, 4, 8, 16"),
        (["--objective.ratio=sequence"], "never bind a sequence ratio"),
        (["--objective.kl.move_every=10"], "beta = 0 has none"),
        (["--advantage.baseline=none"], 'so needs over = "batch"'),
        (["--objective.type=ppo", "--advantage.std=none"], "PPO's advantages come from its critic"),
        (["--objective.type=cispo", "--objective.clip_low=0.1"], "clip_low"),
        (["--objective.type=dr_grpo"], '"grpo", "cispo" or "ppo"'),
        (["--objective.importance_cap=0.5"], "a number of at least 1"),
        (["--groups.size.type=adaptive", "--groups.size.min=10"], "min 10 and max 16 don't hold"),
        (["--groups.size.type=adaptive", "--sampling.group_size=4"], "leave group_size out"),
        (["--groups.no_signal.type=resample", "--objective.type=ppo"], "PPO compares no group"),
        (["--groups.no_signal.type=skip", "--objective.kl.beta=0.1"], "gives them a gradient"),
        (["--groups.no_signal.type=skip", "--objective.entropy=0.1"], "gives them a gradient"),
        (["--groups.no_signal.type=hotter", "--advantage.over=batch"], 'set advantage.over = "group"'),
        (["--groups.no_signal.type=supervise", "--objective.sft_weight=0.1"], "leave one of them out"),
        (["--groups.no_signal.type=supervise", "--reward.type=math"], 'those of reward.type "math" can\'t be'),
        (["--groups.no_signal.type=again"], '"resample", "hotter", "reassign" or "supervise"'),
        (["--groups.no_signal.type=reassign", "--groups.no_signal.band=[0.8, 0.2]"], "band [0.8, 0.2] is empty"),
        (["--curriculum.order=hard"], '"shuffled" or "easy_first"'),
        (["--sampling.temperatures=[]"], "a list of at least 1"),
    ],
)
def test_what_is_refused_and_why(overrides, says, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("seed = 0\n")
    with pytest.raises(ConfigError) as caught:
        load(path, overrides, TrainConfig)
    assert says in " ".join(str(caught.value).split())


def test_another_type_brings_its_own_defaults(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('[objective]\ntype = "grpo"\nclip_high = 0.3\nratio = "token"\n')
    found = load(path, ["--objective.type=ppo"], TrainConfig).objective
    assert isinstance(found, PpoObjective)
    assert (found.clip_high, found.gae_lambda, found.reduction) == (0.3, 0.95, "token_mean")
    assert found.optimizer_steps == 1


def test_a_critic_belongs_to_ppo_alone():
    with pytest.raises(ValidationError, match="critic"):
        TrainConfig.model_validate({"objective": {"type": "grpo", "critic": {}}})
