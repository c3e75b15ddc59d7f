"""A run's metrics in other people's tools, beside the record and never in its way."""

import hashlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from oncurve.config.trackers import MlflowTracker, TensorBoardTracker, TrackerConfig, TrackioTracker, WandbTracker
from oncurve.errors import ConfigError
from oncurve.record.files import to_json

FINISH_S = 60.0  # how long a run's end waits for what is not sent yet
MLFLOW_PARAMETERS = 100  # that a server takes at once
MLFLOW_CHARACTERS = 6000  # of one parameter
FAULT_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """What a tracker is told at the start. Example: `TrackedRun("cat_and_dog", Path("runs/cat_and_dog"), began, config)`."""

    name: str
    folder: Path
    began: str  # when the run began, in UTC; a resume keeps it
    config: Mapping[str, Any]  # plain JSON
    step: int | None = None  # the last step that is kept, where the run goes on; None: it begins

    @property
    def id(self) -> str:
        """The same for a run and what goes on with it; another for every other run."""
        return hashlib.sha256(f"{self.name} {self.began}".encode()).hexdigest()[:16]


class Tracker(Protocol):
    """What a tool does with a run. All calls come from one thread; whatever they raise is noted, and training goes on."""

    def start(self, run: TrackedRun) -> None: ...

    def metrics(self, step: int, values: Mapping[str, float]) -> None: ...

    def finish(self) -> None: ...


class TensorBoard:
    """Event files. What was written after the step that a run goes on from is hidden."""

    def __init__(self, config: TensorBoardTracker):
        self._config = config

    def start(self, run: TrackedRun) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.plugins.text.metadata import create_summary_metadata
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = Path(self._config.folder) / run.name if self._config.folder else run.folder / "tensorboard"
        self._writer, self._event, self._summary = EventFileWriter(str(folder)), Event, Summary
        if run.step is not None:
            self._add(run.step + 1, session_log=SessionLog(status=SessionLog.START))
        text = f"```json\n{to_json(run.config, indent=2)}\n```".encode()
        tensor = TensorProto(dtype="DT_STRING", string_val=[text])
        described = create_summary_metadata(display_name="", description="")
        value = Summary.Value(tag="config", metadata=described, tensor=tensor)
        self._add(0, summary=Summary(value=[value]))

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        row = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(step, summary=self._summary(value=row))

    def finish(self) -> None:
        self._writer.close()

    def _add(self, step: int, **what: Any) -> None:
        self._writer.add_event(self._event(wall_time=time.time(), step=step, **what))
        self._writer.flush()


class Trackio:
    def __init__(self, config: TrackioTracker):
        self._config = config

    def start(self, run: TrackedRun) -> None:
        import trackio

        self._run = trackio.init(
            self._config.project,
            name=run.name,
            server_url=self._config.address,
            config=dict(run.config),
            resume="never" if run.step is None else "allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def finish(self) -> None:
        self._run.finish()


class Wandb:
    """Weights & Biases. Steps that it has already are left out by it, so that a replay does not double them."""

    def __init__(self, config: WandbTracker):
        self._config = config

    def start(self, run: TrackedRun) -> None:
        import wandb

        address = self._config.address
        online = os.environ.get("WANDB_MODE", "online") == "online"
        if online and not wandb.login(host=address, prompt=False):
            raise RuntimeError("no API key; run `wandb login`, or set WANDB_API_KEY, or WANDB_MODE=offline")
        self._run = wandb.init(
            project=self._config.project,
            name=run.name,
            id=run.id,
            dir=self._config.folder or run.folder,
            config=dict(run.config),
            resume="allow",
            settings=wandb.Settings(silent=True, console="off", **({"base_url": address} if address else {})),
        )

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def finish(self) -> None:
        self._run.finish()


class Mlflow:
    """MLflow's names have no `@`: `acc@0.75` is `acc_at_0.75` there."""

    def __init__(self, config: MlflowTracker):
        self._config = config

    def start(self, run: TrackedRun) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = MlflowClient(self._config.address)
        experiment = self._client.get_experiment_by_name(self._config.project)
        number = experiment.experiment_id if experiment else self._client.create_experiment(self._config.project)
        found = self._client.search_runs([number], f"tags.`oncurve.run` = '{run.id}'", max_results=1)
        if found:
            self._id = found[0].info.run_id
            self._client.update_run(self._id, "RUNNING")
            return
        self._id = self._client.create_run(number, run_name=run.name, tags={"oncurve.run": run.id}).info.run_id
        parameters = [Param(key, str(value)[:MLFLOW_CHARACTERS]) for key, value in flat(run.config).items()]
        for begin in range(0, len(parameters), MLFLOW_PARAMETERS):
            self._client.log_batch(self._id, params=parameters[begin : begin + MLFLOW_PARAMETERS])

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now_ms = time.time_ns() // 1_000_000
        rows = [Metric(name.replace("@", "_at_"), value, now_ms, step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=rows)

    def finish(self) -> None:
        self._client.set_terminated(self._id)


ADAPTERS = {"tensorboard": TensorBoard, "trackio": Trackio, "wandb": Wandb, "mlflow": Mlflow}


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as `a.b.c`. Example: `flat({"a": {"b": 1}, "c": 2})` is `{"a.b": 1, "c": 2}`."""
    found = {}
    for key, value in config.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def open_trackers(configs: Sequence[TrackerConfig]) -> "Trackers":
    """The trackers that a configuration names. Raises `ConfigError` where the package of one is not installed."""
    for i, config in enumerate(configs):
        if not (spec := find_spec(config.type)) or not spec.origin:  # a folder of that name is no package
            raise ConfigError(
                f"trackers[{i}]: {config.type} is not installed; `pip install 'oncurve[{config.type}]'` brings it, or "
                "leave it out: the run's folder has all metrics anyway"
            )
    return Trackers([(config.type, ADAPTERS[config.type](config)) for config in configs])


class Trackers:
    """Hands a run to every tracker, each in a thread of its own, so that none can hold training up or end it.

    What a tracker raises is kept for `faults`. One that can't start gets nothing more; one that fails later gets the next
    row all the same.
    """

    def __init__(self, trackers: Sequence[tuple[str, Tracker]]):
        self._lines = [_Line(name, tracker) for name, tracker in trackers]

    def start(self, run: TrackedRun) -> None:
        for line in self._lines:
            line.queue.put(lambda tracker: tracker.start(run))
            line.start()

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """A row of the record. As there, values that are not finite are left out."""
        finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        for line in self._lines:
            line.queue.put(lambda tracker: tracker.metrics(step, finite))

    def faults(self) -> list[tuple[str, str]]:
        """Tracker and why, of those that failed for the first time since the last call."""
        new = [line for line in self._lines if line.fault and not line.told]
        for line in new:
            line.told = True
        return [(line.name, line.fault) for line in new]

    def finish(self, timeout_s: float = FINISH_S) -> None:
        """Wait for what is not sent yet, all together `timeout_s` at most."""
        until = time.monotonic() + timeout_s
        for line in self._lines:
            line.queue.put(None)
        for line in self._lines:
            line.join(max(0.0, until - time.monotonic()))
            if line.is_alive() and not line.fault:
                line.fault = f"it did not take everything within {timeout_s:g} s of the run's end"


class _Line(Thread):
    """The thread and the queue of one tracker; None in it is the end."""

    def __init__(self, name: str, tracker: Tracker):
        super().__init__(name=name, daemon=True)
        self.tracker, self.queue, self.fault, self.told = tracker, SimpleQueue(), "", False

    def run(self) -> None:
        started = self._try(self.queue.get())
        while call := self.queue.get():
            if started:
                self._try(call)
        if started:
            self._try(lambda tracker: tracker.finish())

    def _try(self, call) -> bool:
        try:
            call(self.tracker)
        except BaseException as error:  # SystemExit, too: a tool's wish to leave is no reason to
            self.fault = self.fault or f"{type(error).__name__}: {' '.join(str(error).split())}"[:FAULT_CHARACTERS]
            return False
        return True
