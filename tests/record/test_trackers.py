"""Trackers: that none can harm a run, and what each tool has of a run, read back with its own reader."""

import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from oncurve.config import loader
from oncurve.config.schema import TrainConfig
from oncurve.config.trackers import MlflowTracker, TensorBoardTracker, WandbTracker
from oncurve.errors import ConfigError
from oncurve.record import trackers
from oncurve.record.trackers import ADAPTERS, TrackedRun, Trackers, flat, open_trackers

BEGAN = "2026-11-30T12:00:00.000+00:00"
CONFIG = {"seed": 3, "sampling": {"temperature": 0.5}, "reward": {"type": "grounding"}}
ROWS = [(0, {"eval/heldout/acc@0.75": 0.25}), (1, {"policy/loss": 1.5}), (2, {"policy/loss": -0.5, "prompts/num": 4})]


class Fake:
    """Keeps its calls; raises at those that are named."""

    def __init__(self, *failing: str, error: type[BaseException] = RuntimeError):
        self.calls, self.failing, self.error = [], failing, error

    def _called(self, name: str, *rest):
        self.calls.append((name, *rest))
        if name in self.failing:
            raise self.error(f"no {name}\nhere")

    def start(self, run):
        self._called("start", run.name)

    def metrics(self, step, values):
        self._called("metrics", step, values)

    def finish(self):
        self._called("finish")


def tracked(folder: Path, step: int | None = None) -> TrackedRun:
    return TrackedRun("cat", folder, BEGAN, CONFIG, step)


def follow(*fakes: Fake, rows=ROWS) -> Trackers:
    found = Trackers([(f"fake{i}", fake) for i, fake in enumerate(fakes)])
    found.start(tracked(Path("runs/cat")))
    for step, values in rows:
        found.metrics(step, values)
    found.finish()
    return found


def test_a_tracker_gets_every_row_in_order_and_the_end():
    fake = Fake()
    assert follow(fake).faults() == []
    assert fake.calls == [("start", "cat"), *(("metrics", step, values) for step, values in ROWS), ("finish",)]


def test_what_is_not_finite_is_left_out_as_in_the_record():
    fake = Fake()
    follow(fake, rows=[(1, {"a": math.nan, "b": math.inf, "c": 1})])
    assert fake.calls[1] == ("metrics", 1, {"c": 1.0})


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_a_fault_is_told_once_and_the_next_row_is_sent_all_the_same(error):
    bad, good = Fake("metrics", error=error), Fake()
    found = follow(bad, good)
    assert found.faults() == [("fake0", f"{error.__name__}: no metrics here")]
    assert found.faults() == []
    assert [name for name, *_ in bad.calls] == ["start", "metrics", "metrics", "metrics", "finish"]
    assert len(good.calls) == 5


def test_a_tracker_that_can_not_start_gets_nothing_more():
    bad = Fake("start")
    assert follow(bad).faults() == [("fake0", "RuntimeError: no start here")]
    assert bad.calls == [("start", "cat")]


def test_a_tracker_that_hangs_holds_nobody_up():
    release = Event()
    hanging, good = Fake(), Fake()
    hanging.metrics = lambda step, values: release.wait()
    found = Trackers([("hanging", hanging), ("good", good)])
    found.start(tracked(Path("runs/cat")))
    found.metrics(1, {"a": 1.0})
    found.finish(timeout_s=0.2)
    assert found.faults() == [("hanging", "it did not take everything within 0.2 s of the run's end")]
    release.set()


def test_an_id_stays_with_its_run():
    assert tracked(Path("a")).id == tracked(Path("b"), step=7).id
    assert tracked(Path("a")).id != TrackedRun("cat", Path("a"), BEGAN.replace("12", "13"), CONFIG).id


def test_nested_settings_become_flat():
    assert flat(CONFIG) == {"seed": 3, "sampling.temperature": 0.5, "reward.type": "grounding"}


def configured(tmp_path, text: str) -> TrainConfig:
    path = tmp_path / "train.toml"
    path.write_text(text)
    return loader.load(path, [], TrainConfig)


def test_a_name_is_short_for_a_table(tmp_path):
    assert configured(tmp_path, "").trackers == ()
    assert configured(tmp_path, 'trackers = ["tensorboard"]').trackers == (TensorBoardTracker(),)
    tables = '[[trackers]]\ntype = "wandb"\nproject = "cats"\n[[trackers]]\ntype = "mlflow"\naddress = "sqlite:///a.db"'
    found = configured(tmp_path, tables).trackers
    assert found == (WandbTracker(type="wandb", project="cats"), MlflowTracker(type="mlflow", address="sqlite:///a.db"))
    assert TrainConfig.model_validate_json(TrainConfig(trackers=found).model_dump_json()).trackers == found


@pytest.mark.parametrize("text", ['trackers = ["tensorbord"]', '[[trackers]]\ntype = "tensorbord"'])
def test_an_unknown_tracker_is_refused_with_those_there_are(tmp_path, text):
    with pytest.raises(ConfigError) as error:
        configured(tmp_path, text)
    assert all(name in str(error.value) for name in ("tensorbord", *ADAPTERS))


def test_a_missing_package_is_named_with_what_brings_it(monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"trackers\[0\]: mlflow is not installed; `pip install 'oncurve\[mlflow\]'`"):
        open_trackers([MlflowTracker(type="mlflow")])


def test_a_folder_of_the_packages_name_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "nothing_here").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    found = trackers.find_spec("nothing_here")
    monkeypatch.setattr(trackers, "find_spec", lambda name: found)
    with pytest.raises(ConfigError, match="wandb is not installed"):
        open_trackers([WandbTracker(type="wandb")])


def written(config, folder: Path, rows=ROWS, step: int | None = None) -> None:
    found = open_trackers([config])
    found.start(tracked(folder, step))
    for row in rows:
        found.metrics(*row)
    found.finish()
    assert found.faults() == []


def events_of(folder: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = events_of(folder)
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


@pytest.mark.parametrize("folder", [None, "elsewhere"])
def test_tensorboard(tmp_path, folder):
    pytest.importorskip("tensorboard")
    written(TensorBoardTracker(folder=folder and str(tmp_path / folder)), tmp_path / "run")
    assert scalars(tmp_path / folder / "cat" if folder else tmp_path / "run" / "tensorboard") == {
        "eval/heldout/acc@0.75": [(0, 0.25)],
        "policy/loss": [(1, 1.5), (2, -0.5)],
        "prompts/num": [(2, 4.0)],
    }


def test_tensorboard_has_the_configuration_as_text(tmp_path):
    pytest.importorskip("tensorboard")
    written(TensorBoardTracker(), tmp_path)
    events = events_of(tmp_path / "tensorboard")
    assert events.PluginTagToContent("text").keys() == {"config"}
    ((text,),) = [event.tensor_proto.string_val for event in events.Tensors("config")]
    assert json.loads(text.decode().removeprefix("```json\n").removesuffix("\n```")) == CONFIG


def test_tensorboard_shows_a_replayed_step_once(tmp_path):
    pytest.importorskip("tensorboard")
    written(TensorBoardTracker(), tmp_path)
    written(TensorBoardTracker(), tmp_path, [(2, {"policy/loss": 7.0})], step=1)
    assert scalars(tmp_path / "tensorboard")["policy/loss"] == [(1, 1.5), (2, 7.0)]


def test_mlflow_and_that_a_run_goes_on_as_itself(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    config = MlflowTracker(type="mlflow", project="cats", address=f"sqlite:///{tmp_path}/mlflow.db")
    written(config, tmp_path)
    written(config, tmp_path, [(3, {"policy/loss": 7.0})], step=2)
    client = mlflow.MlflowClient(config.address)
    (run,) = client.search_runs([client.get_experiment_by_name("cats").experiment_id])
    assert (run.info.run_name, run.info.status) == ("cat", "FINISHED")
    assert run.data.params == {"seed": "3", "sampling.temperature": "0.5", "reward.type": "grounding"}
    assert run.data.metrics == {"eval/heldout/acc_at_0.75": 0.25, "policy/loss": 7.0, "prompts/num": 4.0}
    history = client.get_metric_history(run.info.run_id, "policy/loss")
    assert [(metric.step, metric.value) for metric in history] == [(1, 1.5), (2, -0.5), (3, 7.0)]


def test_trackio(tmp_path):
    """In a process of its own: it reads where its files are when it is imported."""
    pytest.importorskip("trackio")
    program = f"""
import json, sys
from pathlib import Path
from oncurve.config.trackers import TrackioTracker
from oncurve.record.trackers import TrackedRun, open_trackers
from trackio.sqlite_storage import SQLiteStorage
for step, rows in ((None, {ROWS[:2]}), (1, {ROWS[2:]})):
    found = open_trackers([TrackioTracker(type="trackio", project="cats")])
    found.start(TrackedRun("cat", Path("."), {BEGAN!r}, {CONFIG}, step))
    for row in rows:
        found.metrics(*row)
    found.finish()
    assert found.faults() == [], found.faults()
print(json.dumps([SQLiteStorage.get_runs("cats"), SQLiteStorage.get_logs("cats", "cat")]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TRACKIO_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    runs, rows = json.loads(done.stdout.splitlines()[-1])
    assert runs == ["cat"]
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert [{name: row[name] for name in ROWS[i][1]} for i, row in enumerate(rows)] == [values for _, values in ROWS]


def records(path: Path) -> list:
    """The records of a `.wandb` file: LevelDB's log format behind seven bytes, one message of protobuf a record."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, found, open_ = path.read_bytes(), 7, [], b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, form = struct.unpack_from("<HB", data, at + 4)
        open_ += data[at + 7 : at + 7 + length]
        at += 7 + length
        if form in (1, 4):  # whole, or the last part
            found.append(Record.FromString(open_))
            open_ = b""
    return found


def test_wandb_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    written(WandbTracker(type="wandb", project="cats"), tmp_path)
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    found = records(path)
    (run,) = [record.run for record in found if record.HasField("run")]
    assert (run.project, run.display_name, run.run_id) == ("cats", "cat", tracked(tmp_path).id)
    config = {entry.key: json.loads(entry.value_json) for entry in run.config.update}
    assert {key: config[key] for key in CONFIG} == CONFIG
    rows = []
    for record in found:
        if record.HasField("history"):
            row = {"/".join(e.nested_key) or e.key: json.loads(e.value_json) for e in record.history.item}
            rows.append((row.pop("_step"), {name: v for name, v in row.items() if not name.startswith("_")}))
    assert rows == ROWS


def test_wandb_without_a_key_is_a_fault_and_asks_nobody(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    found = open_trackers([WandbTracker(type="wandb", address="http://127.0.0.1:9")])
    found.start(tracked(tmp_path))
    found.finish()
    ((name, why),) = found.faults()
    assert name == "wandb"
    assert "no API key" in why
