"""Writing files so that a kill at any moment leaves whole ones, and a full disk a clear error."""

import errno
import fcntl
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oncurve.errors import RunError

LOCK = ".lock"
MEND = {
    errno.ENOSPC: "free some space, or write runs to another disk with --runs_folder=FOLDER",
    errno.EDQUOT: "free some of your quota, or write runs to another disk with --runs_folder=FOLDER",
    errno.EACCES: "choose a folder that you may write to with --runs_folder=FOLDER, or change its permissions",
    errno.EPERM: "choose a folder that you may write to with --runs_folder=FOLDER, or change its permissions",
    errno.EROFS: "choose a folder on a writable disk with --runs_folder=FOLDER",
    errno.ENOTDIR: "a file stands where a folder is needed; choose another --runs_folder=FOLDER or --name=NEW",
    errno.EEXIST: "a file stands where a folder is needed; choose another --runs_folder=FOLDER or --name=NEW",
}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise `RunError` in place of an OSError: what could not be written, where, why, and how to mend it."""
    try:
        yield
    except RunError:
        raise
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        mend = MEND.get(error.errno, "check the disk, or write runs elsewhere with --runs_folder=FOLDER")
        raise RunError(f"can't write {path}: {why}; {mend}; what was written before it is intact") from error


@contextmanager
def locked(run_folder: Path) -> Iterator[None]:
    """Hold the run folder, made where it is missing, so that no other process writes there at the same time.

    The lock goes with this process, however it ends. A file system that knows no locks holds nobody back. Raises
    `RunError` that names the process that holds the folder.
    """
    with writing(run_folder):
        run_folder.mkdir(parents=True, exist_ok=True)
        file = (run_folder / LOCK).open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise RunError(
                f"{run_folder} is being written by another process ({file.read() or 'just started'}); wait until it "
                "ends, or stop it first"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP):
                raise
        with writing(run_folder / LOCK):
            file.truncate(0)
            file.write(f"process {os.getpid()}")
            file.flush()
        yield


def put(path: Path, data: bytes) -> None:
    """Write `data` aside, then rename it to `path`: readers see the old file or the new one. Raises `RunError`."""
    aside = path.with_name(f".{path.name}.tmp")
    with writing(path):
        try:
            aside.write_bytes(data)
            aside.replace(path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise


def append(path: Path, line: str) -> None:
    """Append `line` and a newline; where that fails, nothing of the line stays. Raises `RunError`."""
    with writing(path):
        size = path.stat().st_size if path.exists() else 0
        try:
            with path.open("ab") as file:
                file.write(line.encode() + b"\n")
        except OSError:
            if path.exists():
                os.truncate(path, size)
            raise


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file with one JSON object a line; [] where there is no file.

    A last line without its newline was cut off by a kill and is left out. Raises `RunError` for any other damage.
    """
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    rows = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise RunError(
                f"{path}:{number} is damaged: no JSON object; restore the file or delete this line"
            ) from error
    return rows


def numbered(folder: Path, suffix: str = "") -> dict[int, Path]:
    """The entries of `folder` that are named `step-<number><suffix>`, by number, in order."""
    found = ((re.fullmatch(r"step-([0-9]+)" + re.escape(suffix), path.name), path) for path in folder.glob("step-*"))
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def to_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON: a number that is not finite becomes its name, "nan", "inf" or "-inf"."""
    return json.dumps(_finite(value), allow_nan=False, indent=indent)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
