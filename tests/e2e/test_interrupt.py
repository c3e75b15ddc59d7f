"""Ctrl-C, kills, a second process, a reward function that changes: what a resume makes of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from typing import NamedTuple

import pytest
from safetensors.torch import load_file

import oncurve as package
from oncurve.compare import compare
from oncurve.record import checkpoint
from oncurve.record.files import LOCK, locked
from oncurve.record.reader import RunReader

REWARD = """
import time
from pathlib import Path
here = Path(__file__).parent
before = set()
def score(task, text):
    if not (here / "small" / "probes" / "step-000000.json").exists():
        before.add(text)  # of canaries, which come back at every step, and of the first evaluation
    elif text not in before:
        (here / "asked").touch()
        while not (here / "go").exists():
            time.sleep(0.01)
    return sum(map(ord, text)) % 7 / 7
"""
CTRL_C = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
MAIN = CTRL_C + "from oncurve.cli.main import main; sys.exit(main())"  # even where SIGINT was ignored


class Gated(NamedTuple):
    """A run whose reward function waits for a file called `go`, and notes in `asked` that it was asked."""

    arguments: list[str]
    folder: Path
    run: Path

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen]:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(package.__file__).parents[1])}
        command = [sys.executable, "-c", MAIN, *self.arguments]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            while not (self.folder / "asked").exists():
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.01)
            try:
                yield process
            finally:
                process.kill()


def gated(config: Path, folder: Path) -> Gated:
    (folder / "reward.py").write_text(REWARD)
    rules = f'--reward={{ type = "python", function = "{folder}/reward.py:score", timeout_s = 300, workers = 1 }}'
    overrides = [f"--runs_folder={folder}", "--model.path=builtin:untrained", "--evaluate.num_tasks=2", rules]
    return Gated(["train", str(config), "--no-audit", *overrides], folder, folder / "small")


@pytest.fixture(scope="module")
def stopped(folder, tmp_path_factory) -> tuple[Gated, str]:
    """Ctrl-C came while the first step's answers were graded."""
    run = gated(folder / "train.toml", tmp_path_factory.mktemp("gated"))
    with run.running() as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == "\n"
        said = process.stderr.readline()
        (run.folder / "go").touch()
        _, err = process.communicate()
    assert process.returncode == 130
    assert "after this update" in said
    return run, err


def test_ctrl_c_finishes_the_update_saves_and_says_how_to_go_on(stopped, oncurve, tmp_path):
    run, err = stopped
    assert f"stopped after step 2, which is saved; go on with\n    oncurve train --resume {run.run}" in err
    assert checkpoint.latest(run.run).step == 2
    assert RunReader(run.run).steps() == [1, 2]
    folder = copytree(run.run, tmp_path / "small")
    done = oncurve("train", "--resume", folder)
    assert (done.status, done.err) == (0, "")
    whole = oncurve(*run.arguments, f"--runs_folder={tmp_path}/whole")
    assert whole.status == 0
    found = compare(folder, tmp_path / "whole" / "small")
    assert found.identical, found.first_difference
    assert found.checkpoints == (2, 4)


def test_a_second_ctrl_c_leaves_at_once(folder, tmp_path):
    run = gated(folder / "train.toml", tmp_path)
    with run.running() as process:  # nothing ever says `go`
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == "\n"
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert f"stopped at once; go on from the last checkpoint with\n    oncurve train --resume {run.run}" in err
    assert "Traceback" not in err
    assert RunReader(run.run).steps() == []
    assert checkpoint.latest(run.run) is None


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != LOCK}


def test_a_reward_function_that_changed_forks_the_run(stopped, oncurve, tmp_path):
    run, _ = stopped
    folder = copytree(run.run, tmp_path / "small")
    before, old = files(folder), RunReader(folder).info
    (run.folder / "reward.py").write_text(REWARD + "# more\n")
    try:
        done = [oncurve("train", "--resume", folder) for _ in range(2)]
    finally:
        (run.folder / "reward.py").write_text(REWARD)
    for number, (status, out, err) in enumerate(done, 1):
        fork = tmp_path / f"small-fork-{number}"
        assert (status, err) == (0, "")
        said = " ".join(out.split())
        now = RunReader(fork).info
        then, rules = (info["reward_rules"].split()[0] for info in (old, now))
        assert f"the reward rules have changed since {folder} began: then {then}, now {rules}." in said
        assert f"the run goes on as {fork}, and {folder} stays as it is" in said
        assert "goes on after step 2" in said
        assert then != rules
        assert then.partition("/")[0] == rules.partition("/")[0]
        origin = {"run": str(folder), "step": 2, "reward_rules": old["reward_rules"], "num_rollbacks": 0}
        assert now["forked_from"] == origin
        assert now["config"] == old["config"] | {"name": fork.name, "runs_folder": str(tmp_path)}
        assert RunReader(fork).steps() == [3, 4]
        assert sorted(path.name for path in (fork / "checkpoints").iterdir()) == ["step-000002", "step-000004"]
    assert files(folder) == before


def test_a_fork_goes_on_like_any_run(stopped, oncurve, tmp_path):
    """Its own rules are those that it began with, so it does not fork again; before its first checkpoint it has the old one."""
    run, _ = stopped
    folder = copytree(run.run, tmp_path / "small")
    (run.folder / "reward.py").write_text(REWARD + "# more\n")
    try:
        assert oncurve("train", "--resume", folder).status == 0
        fork = tmp_path / "small-fork-1"
        whole = copytree(fork, tmp_path / "whole")
        subprocess.run(["rm", "-r", fork / "checkpoints" / "step-000004"], check=True)
        done = oncurve("train", "--resume", fork)
    finally:
        (run.folder / "reward.py").write_text(REWARD)
    assert (done.status, done.err) == (0, "")
    assert "have changed" not in done.out
    assert compare(fork, whole).identical


def test_a_second_process_is_refused(stopped, oncurve):
    run, _ = stopped
    before = (run.run / "metrics.jsonl").read_bytes()
    for arguments in (["train", "--resume", run.run], [*run.arguments, "--replace"]):
        with locked(run.run):
            status, _, err = oncurve(*arguments)
        assert status == 2
        assert f"is being written by another process (process {os.getpid()})" in err
        assert (run.run / "metrics.jsonl").read_bytes() == before


def test_before_the_first_checkpoint_the_run_begins_again(oncurve, run_folder, tmp_path):
    folder = copytree(run_folder, tmp_path / "small")
    for gone in (*(folder / "checkpoints").iterdir(), folder / "steps" / "step-000003.parquet"):
        subprocess.run(["rm", "-r", gone], check=True)
    rows = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(rows[:3]) + '{"step": 3, "torn')
    done = oncurve("train", "--resume", folder)
    assert (done.status, done.err) == (0, "")
    assert "no checkpoint had been saved yet, so the run begins again" in done.out
    assert compare(folder, run_folder).identical


def test_evaluating_or_not_never_changes_training(oncurve, folder, run_folder, warmed, tmp_path):
    """The evaluations of `run_folder` come every two steps; the same weights and answers come without, and with more."""
    expected = load_file(run_folder / "checkpoints" / "step-000004" / "model" / "model.safetensors")
    for every in (0, 1):
        options = [f"--runs_folder={tmp_path}", f"--model.path={warmed}", f"--evaluate.every_steps={every}"]
        assert oncurve("train", folder / "train.toml", *options, f"--name=every-{every}").status == 0
        run = tmp_path / f"every-{every}"
        found = load_file(run / "checkpoints" / "step-000004" / "model" / "model.safetensors")
        assert found.keys() == expected.keys()
        assert all(found[name].equal(expected[name]) for name in found)
        for file in sorted((run_folder / "steps").iterdir()):
            assert (run / "steps" / file.name).read_bytes() == file.read_bytes()


def test_the_best_checkpoint_stays(oncurve, folder, warmed, tmp_path):
    options = [f"--runs_folder={tmp_path}", f"--model.path={warmed}", "--accumulate_steps=1", "--num_steps=5"]
    options += ["--evaluate.every_steps=1", "--checkpoint.every_steps=1", "--checkpoint.keep_last=1"]
    done = oncurve("train", folder / "train.toml", *options, "--checkpoint.keep_best=eval/mean_iou")
    assert (done.status, done.err) == (0, "")
    rows = [row for row in RunReader(tmp_path / "small").metrics() if "eval/mean_iou/mean" in row][1:]
    best = max(rows, key=lambda row: row["eval/mean_iou/mean"])["step"]
    kept = sorted(path.name for path in (tmp_path / "small" / "checkpoints").iterdir())
    assert kept == sorted({f"step-{best:06d}", "step-000005"})
