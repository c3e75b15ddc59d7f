"""Where a run's metrics go besides its record."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from oncurve.config.base import Section


class TensorBoardTracker(Section):
    type: Literal["tensorboard"] = "tensorboard"
    folder: str | None = None  # the event files stand in FOLDER/NAME; None: in `tensorboard` in the run's folder


class TrackioTracker(Section):
    type: Literal["trackio"]
    project: str = "oncurve"
    address: str | None = None  # of a trackio server; None: a file on this machine, in TRACKIO_DIR


class WandbTracker(Section):
    type: Literal["wandb"]
    project: str = "oncurve"
    folder: str | None = None  # of its files on this machine; None: the run's
    address: str | None = None  # of a server of one's own; None: what `wandb login` has noted


class MlflowTracker(Section):
    type: Literal["mlflow"]
    project: str = "oncurve"  # MLflow's experiment
    address: str | None = None  # http://…, sqlite:///…; None: MLFLOW_TRACKING_URI, else MLflow's own default


TrackerConfig = Annotated[
    TensorBoardTracker | TrackioTracker | WandbTracker | MlflowTracker, Field(discriminator="type")
]


def _listed(value: Any) -> Any:
    """`trackers = ["tensorboard"]` is short for `[[trackers]]` with a `type` alone."""
    if not isinstance(value, list):
        return value
    return tuple({"type": entry} if isinstance(entry, str) else entry for entry in value)


Trackers = Annotated[tuple[TrackerConfig, ...], BeforeValidator(_listed)]
