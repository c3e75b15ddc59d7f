"""Checkpoints: folders that appear whole or not at all, and are checked before anything is resumed from them."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncurve import __version__
from oncurve.errors import RunError
from oncurve.record.files import numbered, writing

SCHEMA_VERSION = 2  # of `state.json`; 1 was the bare state, without the versions around it
FULL_DISK_BYTES = 1 << 20  # with less than this left, a failed write is put down to the disk


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An intact checkpoint. Example: `Checkpoint(Path("runs/a/checkpoints/step-000100"), 100, {"updates": 50}, [])`."""

    folder: Path
    step: int
    state: dict[str, Any]
    passed_over: list[str]  # what is wrong with each later checkpoint


def save(
    run_folder: Path,
    step: int,
    write: Callable[[Path], None],
    state: dict[str, Any],
    keep_last: int,
    scores: Mapping[int, float] | None = None,
) -> Path:
    """Save a checkpoint of `step`, then `prune` to the last `keep_last` and the best by `scores`; returns its folder.

    `write` fills the folder that it is given; `state` is plain JSON. The checkpoint is on the disk before it gets its
    name. An intact one of the same step stays as it is. Raises `RunError` where the disk does not take it; the older
    checkpoints are then untouched.
    """
    checkpoints = run_folder / "checkpoints"
    folder, aside = checkpoints / f"step-{step:06d}", checkpoints / f".step-{step:06d}.tmp"
    with writing(folder):
        checkpoints.mkdir(parents=True, exist_ok=True)
        for leftover in checkpoints.glob(".step-*.tmp"):
            shutil.rmtree(leftover)
        if folder.exists():
            if _damage(folder) is None:
                return folder
            shutil.rmtree(folder)
        aside.mkdir()
        try:
            write(aside)
            document = {"schema_version": SCHEMA_VERSION, "oncurve": __version__, "state": state}
            (aside / "state.json").write_text(json.dumps(document, allow_nan=False))
            files = {path.relative_to(aside).as_posix(): path for path in sorted(aside.rglob("*")) if path.is_file()}
            manifest = {name: {"sha256": _sha256(path), "bytes": path.stat().st_size} for name, path in files.items()}
            (aside / "manifest.json").write_text(json.dumps(manifest, indent=1))
            for path in (*aside.rglob("*"), aside):
                _sync(path)
            aside.rename(folder)
            _sync(checkpoints)
        except Exception as error:
            full = "No space left" in str(error) or shutil.disk_usage(checkpoints).free < FULL_DISK_BYTES
            shutil.rmtree(aside, ignore_errors=True)
            if full:  # writers of weights hide the error number in errors of their own
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise
    prune(run_folder, keep_last, scores)
    return folder


def prune(run_folder: Path, keep_last: int, scores: Mapping[int, float] | None = None) -> None:
    """Delete all checkpoints but the last `keep_last` and the one whose step has the highest score, the first of equals.

    One that goes loses its name first, so that a kill never leaves half of it behind.
    """
    found, scores = numbered(run_folder / "checkpoints"), scores or {}
    best = max((step for step in found if step in scores), key=lambda step: scores[step], default=None)
    with writing(run_folder / "checkpoints"):
        for step in list(found)[:-keep_last]:
            if step != best:
                shutil.rmtree(found[step].rename(found[step].with_name(f".{found[step].name}.tmp")))


def latest(run_folder: Path, step: int | None = None) -> Checkpoint | None:
    """The last intact checkpoint, or that of `step`; None where none was saved.

    Raises `RunError` where every one is damaged, where there is none of `step`, and for one that only another version of
    Oncurve understands.
    """
    passed_over: list[str] = []
    found = numbered(run_folder / "checkpoints")
    if step is not None and step not in found:
        there = ", ".join(map(str, found)) or "none"
        raise RunError(f"{run_folder} has no checkpoint of step {step}; there are: {there}")
    for number, folder in reversed(found.items() if step is None else [(step, found[step])]):
        damage = _damage(folder)
        if damage is None:
            return Checkpoint(folder, number, _state(run_folder, folder), passed_over)
        passed_over.append(damage)
    if passed_over:
        raise RunError(f"no checkpoint of {run_folder} is intact: {'; '.join(passed_over)}; restore one of them")
    return None


def _state(run_folder: Path, folder: Path) -> dict[str, Any]:
    """What was given to `save`, from a document of any version that this Oncurve understands."""
    document = json.loads((folder / "state.json").read_bytes())
    version = document.get("schema_version", 1)
    if version == 1:
        return document
    if version == SCHEMA_VERSION:
        return document["state"]
    wrote = document.get("oncurve")
    raise RunError(
        f"{folder} has checkpoint schema version {version}; Oncurve {__version__} goes on from versions 1 to "
        f"{SCHEMA_VERSION}. Go on with the Oncurve that wrote it:\n"
        f"    python -m pip install oncurve{f'=={wrote}' if wrote else ' --upgrade'}\n"
        f"    oncurve train --resume {run_folder}"
    )


def _damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint, in words, or None."""
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        for name, entry in manifest.items():
            path = folder / name
            if not path.is_file():
                return f"{path} is missing"
            if path.stat().st_size != entry["bytes"]:
                return f"{path} has {path.stat().st_size} bytes, not {entry['bytes']}"
            if _sha256(path) != entry["sha256"]:
                return f"{path} has changed since it was written"
    except OSError as error:
        return f"can't read {error.filename}: {(error.strerror or str(error)).lower()}"
    except (ValueError, AttributeError, KeyError, TypeError):
        return f"{folder / 'manifest.json'} is damaged"
    return None if "state.json" in manifest else f"{folder / 'manifest.json'} names no state.json"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
