"""Reading a run folder, also while it is being written or after its process was killed."""

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from oncurve.errors import RunError
from oncurve.record.files import numbered, read_lines
from oncurve.record.schema import SCHEMA_VERSION, AnswerRecord


class RunReader:
    """The record of one run. `info` is all of `config.json`: schema version, command, versions, start, config.

    Raises `RunError` for a folder that is no run, or a run of a newer Oncurve.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        path = folder / "config.json"
        try:
            self.info: dict[str, Any] = json.loads(path.read_bytes())
            version, _ = self.info["schema_version"], self.info["config"]
        except FileNotFoundError:
            raise RunError(
                f"{folder} is no run folder: it has no config.json; give the folder that a run wrote"
            ) from None
        except OSError as error:
            raise RunError(f"can't read {path}: {(error.strerror or str(error)).lower()}") from error
        except (ValueError, KeyError, TypeError):
            raise RunError(f"{folder} is no run folder: its config.json is not one that Oncurve wrote") from None
        if version != SCHEMA_VERSION:
            raise RunError(
                f"{folder} has schema version {version}; this Oncurve reads {SCHEMA_VERSION}; update Oncurve"
            )

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return self.info["config"]

    def metrics(self) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl`, each with its `step`; names of values that are not finite are in `nonfinite`."""
        return read_lines(self.folder / "metrics.jsonl")

    def events(self) -> list[dict[str, Any]]:
        """The rows of `events.jsonl`: `time`, `step`, `kind` and what the kind adds."""
        return read_lines(self.folder / "events.jsonl")

    def steps(self) -> list[int]:
        """The steps whose answers are recorded, in order."""
        return list(numbered(self.folder / "steps", ".parquet"))

    def step(self, step: int) -> list[AnswerRecord]:
        """The answers of one step, as they were written. Raises `RunError` where the step is missing or damaged."""
        path = step_file(self.folder, step)
        try:
            table = pq.read_table(BytesIO(path.read_bytes()))
            return [AnswerRecord(**row) for row in table.to_pylist()]
        except FileNotFoundError:
            raise RunError(f"{self.folder} has no step {step}; {_listed(self.steps())}") from None
        except (OSError, TypeError, pa.ArrowException) as error:
            raise RunError(f"{path} is damaged: {error}") from error

    def probes(self) -> dict[int, list[dict[str, Any]]]:
        """The probes of each evaluation, by step."""
        files = numbered(self.folder / "probes", ".json")
        return {step: json.loads(path.read_bytes()) for step, path in files.items()}

    def image(self, sha256: str) -> Image.Image:
        """A task's image, RGB. Raises `RunError` where the record has none of that hash, or it can't be read."""
        path = image_file(self.folder, sha256)
        if not re.fullmatch("[0-9a-f]{64}", sha256) or not path.exists():
            raise RunError(f"{self.folder} has no image {sha256}")
        try:
            return Image.open(BytesIO(path.read_bytes())).convert("RGB")
        except OSError as error:
            raise RunError(f"{path} is damaged: {error}") from error


def step_file(run_folder: Path, step: int) -> Path:
    return run_folder / "steps" / f"step-{step:06d}.parquet"


def probes_file(run_folder: Path, step: int) -> Path:
    return run_folder / "probes" / f"step-{step:06d}.json"


def image_file(run_folder: Path, sha256: str) -> Path:
    return run_folder / "images" / f"{sha256}.png"


def _listed(steps: list[int]) -> str:
    if not steps:
        return "no step was recorded yet"
    if steps == list(range(steps[0], steps[-1] + 1)) and len(steps) > 2:
        return f"it has steps {steps[0]} to {steps[-1]}"
    shown = steps if len(steps) <= 12 else [*steps[:6], "…", *steps[-6:]]
    return f"it has {'step' if len(steps) == 1 else 'steps'} {', '.join(map(str, shown))}"
