"""A tracked run: what the tracker has, and that neither it nor its faults touch the run."""

import pytest

from oncurve.compare import compare
from oncurve.record import trackers
from oncurve.record.reader import RunReader


class Broken:
    def __init__(self, config):
        pass

    def start(self, run):
        raise OSError("the server is down")


@pytest.fixture
def tracked(oncurve, folder, warmed, tmp_path):
    def train(*arguments):
        name = f"--runs_folder={tmp_path}"
        return oncurve("train", folder / "train.toml", name, f"--model.path={warmed}", *arguments), tmp_path / "small"

    return train


def test_tensorboard_has_what_the_record_has(tracked, run_folder):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done, tracked_folder = tracked('--trackers=["tensorboard"]')
    assert (done.status, done.err) == (0, "")
    events = EventAccumulator(str(tracked_folder / "tensorboard"))
    events.Reload()
    found = {(e.step, name): e.value for name in events.Tags()["scalars"] for e in events.Scalars(name)}
    rows = RunReader(tracked_folder).metrics()
    recorded = {(row["step"], name): value for row in rows for name, value in row.items() if name != "step"}
    assert found == pytest.approx(recorded, rel=1e-6)
    assert compare(run_folder, tracked_folder).identical


def test_a_broken_tracker_is_named_and_the_run_is_the_same(tracked, run_folder, monkeypatch):
    monkeypatch.setitem(trackers.ADAPTERS, "mlflow", Broken)
    monkeypatch.setattr(trackers, "find_spec", lambda name: type(trackers.__spec__)(name, None, origin="here"))
    done, tracked_folder = tracked('--trackers=["mlflow"]')
    assert (done.status, done.err) == (0, "")
    assert done.out.count("mlflow failed, and training goes on without it") == 1
    events = [event for event in RunReader(tracked_folder).events() if event["kind"] == "tracker_failed"]
    assert [(event["tracker"], event["why"]) for event in events] == [("mlflow", "OSError: the server is down")]
    assert compare(run_folder, tracked_folder).identical


def test_a_missing_package_is_said_before_anything_runs(tracked, monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    done, tracked_folder = tracked('--trackers=["wandb"]')
    assert done.status == 2
    assert "pip install 'oncurve[wandb]'" in done.err
    assert not tracked_folder.exists()
