"""Every recipe loads against its schema, and runs: a step or two of training, an update of every supervised stage."""

import tomllib
from pathlib import Path

import pytest

from oncurve.cli.main import main
from oncurve.config.loader import load
from oncurve.config.schema import SftConfig, TrainConfig
from oncurve.record.reader import RunReader

ROOT = Path(__file__).parents[1]
RECIPES = {path.stem: path for path in sorted((ROOT / "recipes").glob("*.toml"))}
STAGES = {name: tomllib.loads(path.read_text("utf-8")).get("stages") for name, path in RECIPES.items()}
NAMED = {"cat_and_dog", "pr1", "pr1_code", "warmup", "photos"}
NAMED |= {"dr_grpo", "dapo", "gspo", "cispo", "rloo", "reinforce_plus_plus", "ppo"}


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    """A recipe's paths are relative to the project's folder."""
    monkeypatch.chdir(ROOT)


def test_the_named_recipes_are_there():
    assert RECIPES.keys() >= NAMED


@pytest.mark.parametrize("name", RECIPES)
def test_it_loads_and_says_how_it_is_run(name):
    verb, schema = ("sft", SftConfig) if STAGES[name] else ("train", TrainConfig)
    config = load(RECIPES[name], [], schema)
    assert config.name == name  # so that its run folder has its name
    comments = [line for line in RECIPES[name].read_text("utf-8").splitlines() if line.startswith("#")]
    assert any(f"oncurve {verb} " in line and f"recipes/{name}.toml" in line for line in comments)


@pytest.mark.parametrize("name", [name for name, stages in STAGES.items() if not stages])
def test_it_trains(name, tmp_path, capsys):
    config = load(RECIPES[name], [], TrainConfig)
    num_steps = config.accumulate_steps
    overrides = [f"--runs_folder={tmp_path}", f"--num_steps={num_steps}", "--model.path=builtin:untrained"]
    assert main(["train", str(RECIPES[name]), *overrides, "--evaluate.num_tasks=4"]) == 0, capsys.readouterr().err
    reader = RunReader(tmp_path / name)
    assert reader.steps() == list(range(1, num_steps + 1))
    rows = reader.step(1)
    sizes = [sum(row.group == group for row in rows) for group in {row.group for row in rows}]
    if config.groups.no_signal.type == "resample":  # no answer of an untrained model parses: every group is replaced
        assert len(sizes) == config.sampling.prompts_per_step * (1 + config.groups.no_signal.max_rounds)
    else:
        assert len(rows) == config.answers_per_step
    if config.groups.size.type == "fixed":
        assert set(sizes) == {config.sampling.answers_per_group}
    assert {(row.reference_logps is not None) for row in rows} == {config.objective.kl.beta > 0}
    last = [row for row in reader.metrics() if "policy/grad_norm/before_clip" in row][-1]
    assert last["policy/skipped_updates/count"] == 0


@pytest.mark.parametrize("name", [name for name, stages in STAGES.items() if stages])
def test_it_runs_every_stage(name, tmp_path, capsys):
    overrides = [f"--stages.{i}.num_updates=1" for i in range(len(STAGES[name]))]
    overrides += [f"--runs_folder={tmp_path}", "--model.path=builtin:untrained", "--batch_size=4"]
    assert main(["sft", str(RECIPES[name]), *overrides, "--evaluate.num_tasks=4"]) == 0, capsys.readouterr().err
    losses = [row["step"] for row in RunReader(tmp_path / name).metrics() if "policy/loss" in row]
    assert losses == list(range(1, len(STAGES[name]) + 1))
