"""Writing a run folder: what is there stays readable, whatever moment the process is killed at."""

import math
import platform
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from oncurve.errors import RunError
from oncurve.record.checkpoint import Checkpoint
from oncurve.record.files import LOCK, append, numbered, put, to_json, writing
from oncurve.record.reader import RunReader, image_file, probes_file, step_file
from oncurve.record.schema import ARROW_SCHEMA, SCHEMA_VERSION, AnswerRecord
from oncurve.types import TaskImage


@dataclass(frozen=True, slots=True)
class RunWriter:
    """Writes the record of one run. Every method raises `RunError` where the disk does not take what it is given.

    Example: `RunWriter.create(Path("runs/cat_and_dog"), config, "oncurve train recipes/cat_and_dog.toml")`.
    """

    folder: Path
    _background: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1), repr=False, compare=False)
    _coming: list[Future] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def create(
        cls,
        folder: Path,
        config: BaseModel,
        command: str,
        *,
        replace: bool = False,
        reward_rules: str | None = None,
        forked_from: Mapping[str, Any] | None = None,
    ) -> "RunWriter":
        """Start a run in a new or empty folder; `replace` deletes the run that was there, and nothing but a run.

        `reward_rules` are the grader's, with the hash of a reward function's file, so that a resume can tell a change.
        `forked_from` is noted where the run goes on from another.
        """
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if any(not path.name.startswith(".") for path in folder.iterdir()):
                if not replace:
                    raise RunError(
                        f"{folder} is taken, and a run is never overwritten; go on with that run (--resume {folder}), "
                        f"give the new one another name (--name=NEW), or delete the old one first (--replace)"
                    )
                _delete_run(folder)
        info = {
            "schema_version": SCHEMA_VERSION,
            "command": command,
            "versions": {"python": platform.python_version()}
            | {name: _version(name) for name in ("oncurve", "torch", "transformers")},
            "started": _now(),
            "reward_rules": reward_rules,
            **({"forked_from": dict(forked_from)} if forked_from else {}),
            "config": config.model_dump(mode="json"),
        }
        put(folder / "config.json", to_json(info, indent=2).encode() + b"\n")  # first: from here on it is a run
        _make_folders(folder)
        return cls(folder)

    @classmethod
    def resume(cls, folder: Path, step: int) -> "RunWriter":
        """Go on from `step`: rows, answers, probes and checkpoints of later steps are deleted, and so are torn ones.

        From step -1 on nothing is left of the record but its configuration.
        """
        reader = RunReader(folder)
        for name, rows in (("metrics.jsonl", reader.metrics()), ("events.jsonl", reader.events())):
            if (folder / name).exists():
                put(folder / name, "".join(to_json(row) + "\n" for row in rows if row["step"] <= step).encode())
        with writing(folder):
            for name, suffix in (("steps", ".parquet"), ("probes", ".json"), ("checkpoints", "")):
                for number, path in numbered(folder / name, suffix).items():
                    if number > step:
                        _delete(path)
            for leftover in list(folder.rglob(".*.tmp")):
                _delete(leftover)
        _make_folders(folder)
        return cls(folder)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Append a row to `metrics.jsonl`. Values that are not finite are left out of it and named in `nonfinite`."""
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        nonfinite = {name: value for name, value in values.items() if name not in finite}
        row = {"step": step, **finite} | ({"nonfinite": nonfinite} if nonfinite else {})
        append(self.folder / "metrics.jsonl", to_json(row))

    def event(self, step: int, kind: str, **data: Any) -> None:
        """Append something that happened, with its time in UTC, to `events.jsonl`."""
        append(self.folder / "events.jsonl", to_json({"time": _now(), "step": step, "kind": kind, **data}))

    def image(self, image: TaskImage) -> None:
        """Keep a task's image, once, without loss."""
        path = image_file(self.folder, image.sha256)
        if not path.exists():
            png = BytesIO()
            image.pixels.save(png, "PNG", compress_level=1)
            put(path, png.getvalue())

    def images(self, images: Iterable[TaskImage]) -> None:
        """Keep several images, each once, in the background; the next `step` or `probes` waits for them.

        So a step's file is never there without its images, and their encoding, which would take most of a step's record,
        runs beside the update.
        """
        distinct = {image.sha256: image for image in images}.values()
        self._coming.extend(self._background.submit(self.image, image) for image in distinct)

    def step(self, step: int, rows: Sequence[AnswerRecord]) -> None:
        """Write the answers of one step."""
        self._settle()
        columns = {name: [getattr(row, name) for row in rows] for name in ARROW_SCHEMA.names}
        parquet = BytesIO()
        pq.write_table(pa.table(columns, ARROW_SCHEMA), parquet)
        put(step_file(self.folder, step), parquet.getvalue())

    def probes(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the probes of one evaluation."""
        self._settle()
        put(probes_file(self.folder, step), to_json(rows, indent=1).encode() + b"\n")

    def _settle(self) -> None:
        coming = [*self._coming]
        self._coming.clear()
        for image in coming:
            image.result()


def fork_run(
    folder: Path, found: Checkpoint | None, config: BaseModel, command: str, rules: str, *, num_rollbacks: int = 0
) -> Path:
    """A run of its own that goes on from a checkpoint of `folder`, or begins anew: `FOLDER-fork-1`, `-2` and so on.

    It appears whole or not at all; its `config.json` names the run, the step and the rules that it comes from. Raises
    `RunError` where the disk does not take it.
    """
    number = 1
    while (fork := folder.with_name(f"{folder.name}-fork-{number}")).exists():
        number += 1
    then = RunReader(folder).info["reward_rules"]
    origin = {
        "run": str(folder),
        "step": found.step if found else 0,
        "reward_rules": then,
        "num_rollbacks": num_rollbacks,
    }
    config = config.model_copy(update={"name": fork.name, "runs_folder": str(fork.parent)})
    aside = fork.with_name(f".{fork.name}.tmp")
    with writing(fork):
        shutil.rmtree(aside, ignore_errors=True)
        RunWriter.create(aside, config, command, reward_rules=rules, forked_from=origin)
        if found:
            shutil.copytree(found.folder, aside / "checkpoints" / found.folder.name)
        aside.rename(fork)
    return fork


def _make_folders(run_folder: Path) -> None:
    with writing(run_folder):
        for name in ("steps", "images", "probes"):
            (run_folder / name).mkdir(exist_ok=True)


def _delete_run(folder: Path) -> None:
    try:
        RunReader(folder)
    except RunError as error:
        raise RunError(f"--replace deletes nothing but runs: {error}; choose another name (--name=NEW)") from error
    for path in sorted(folder.iterdir(), key=lambda path: path.name == "config.json"):  # last, so that it stays a run
        if path.name != LOCK:
            _delete(path)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
