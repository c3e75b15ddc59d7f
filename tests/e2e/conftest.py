"""One short supervised run and one short GRPO run, made once; every test reads them or copies them."""

import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from oncurve.cli.main import main

WARM_UP = """
name = "warmed"
batch_size = 4
[model]
path = "builtin:untrained"
[evaluate]
every_steps = 20
num_tasks = 8
[[stages]]
name = "by-heart"
num_updates = 40
data = { type = "scenes", num_scenes = 2, max_things = 1 }
optimizer = { learning_rate = 5e-3, warmup_updates = 2 }
"""

TRAIN = """
name = "small"
num_steps = 4
accumulate_steps = 2
data = { type = "scenes", num_scenes = 2, max_things = 1 }
heldout = { type = "scenes", split = "heldout", num_scenes = 8 }
sampling = { prompts_per_step = 2, answers_per_prompt = 4 }
objective = { passes = 2, kl = { beta = 0.05 } }
optimizer = { warmup_updates = 0, learning_rate = 1e-3 }
evaluate = { every_steps = 2, num_tasks = 8, num_probes = 2 }
checkpoint = { every_steps = 2 }
"""


class Done(NamedTuple):
    """What a command did."""

    status: int
    out: str
    err: str


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Sums in one order, so that runs in this process and in others give the same bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def oncurve() -> Callable[..., Done]:
    """The command line, in this process."""

    def run(*arguments: object) -> Done:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = main([str(argument) for argument in arguments])
        return Done(status, out.getvalue(), err.getvalue())

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("e2e")
    (folder / "warm_up.toml").write_text(WARM_UP)
    (folder / "train.toml").write_text(TRAIN)
    return folder


@pytest.fixture(scope="session")
def warmed_up(oncurve, folder) -> Done:
    """`oncurve sft` on two scenes, which it learns by heart: enough for answers whose rewards vary."""
    return oncurve("sft", folder / "warm_up.toml", f"--runs_folder={folder}")


@pytest.fixture(scope="session")
def warmed(warmed_up, folder) -> Path:
    assert warmed_up.status == 0, warmed_up.err
    return folder / "warmed"


@pytest.fixture(scope="session")
def trained(oncurve, folder, warmed) -> Done:
    """`oncurve train` for four steps: two updates of two passes, with a KL term."""
    return oncurve("train", folder / "train.toml", f"--runs_folder={folder}", f"--model.path={warmed}")


@pytest.fixture(scope="session")
def run_folder(trained, folder) -> Path:
    assert trained.status == 0, trained.err
    return folder / "small"
