"""Checkpoints: folders that appear whole or not at all, and are checked before anything is resumed from them."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncurve.errors import RunError
from oncurve.record.files import numbered, writing

FULL_DISK_BYTES = 1 << 20  # with less than this left, a failed write is put down to the disk


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An intact checkpoint. Example: `Checkpoint(Path("runs/a/checkpoints/step-000100"), 100, {"updates": 50}, [])`."""

    folder: Path
    step: int
    state: dict[str, Any]
    passed_over: list[str]  # what is wrong with each later checkpoint


def save(run_folder: Path, step: int, write: Callable[[Path], None], state: dict[str, Any], keep_last: int) -> Path:
    """Save a checkpoint of `step` and delete all but the last `keep_last`; returns its folder.

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
            (aside / "state.json").write_text(json.dumps(state, allow_nan=False))
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
        for old in list(numbered(checkpoints).values())[:-keep_last]:
            shutil.rmtree(old)
    return folder


def latest(run_folder: Path) -> Checkpoint | None:
    """The last intact checkpoint, or None where none was saved. Raises `RunError` where every one is damaged."""
    passed_over: list[str] = []
    for step, folder in reversed(numbered(run_folder / "checkpoints").items()):
        damage = _damage(folder)
        if damage is None:
            state = json.loads((folder / "state.json").read_bytes())
            return Checkpoint(folder, step, state, passed_over)
        passed_over.append(damage)
    if passed_over:
        raise RunError(f"no checkpoint of {run_folder} is intact: {'; '.join(passed_over)}; restore one of them")
    return None


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
