"""Two runs side by side: whether they are the same bit for bit, and where they first differ."""

import filecmp
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from oncurve.record.files import numbered
from oncurve.record.reader import RunReader, step_file

CLOCKS = ("time/", "throughput/", "memory/", "verifier/latency_ms/")
"""Metrics of these names measure the machine, and differ between any two runs."""

OUTSIDE = "tracker_failed"  # the event of what goes wrong outside the run

NAMES = ("name", "runs_folder")  # of the configuration: where a run stands, not what it does
MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two runs first differ. Example: `Difference(3, "metrics[0].policy/loss", 0.125, 0.25, 0.125)`."""

    step: int
    field: str
    a: Any  # what each has there; of a tensor that differs in values, the first value that does
    b: Any
    by: float | None  # the largest absolute difference, where it is one of numbers


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two runs have in common. `config` and `evaluations` do not decide whether they are identical."""

    first_difference: Difference | None
    num_steps: tuple[int, int]
    checkpoints: tuple[int, ...]  # the steps of those that were compared
    config: dict[str, tuple[Any, Any]]  # the keys that differ
    evaluations: tuple[dict[str, float], dict[str, float]]  # the last of each

    @property
    def identical(self) -> bool:
        return self.first_difference is None


def compare(a: Path, b: Path) -> Comparison:
    """Weights, optimizer, answers, probes, events and every metric but clock times, throughput and memory.

    Of the checkpoints, the last of each and those that both still have. Raises `RunError` for what is no run.
    """
    readers = RunReader(a), RunReader(b)
    saved = [numbered(folder / "checkpoints") for folder in (a, b)]
    checkpoints = sorted(saved[0].keys() & saved[1].keys() | {max(steps) for steps in saved if steps})
    records = [_records(reader) for reader in readers]
    steps = sorted({*records[0], *records[1], *checkpoints})
    found = (difference for step in steps for difference in _at(step, records, saved, step in checkpoints))
    return Comparison(
        next(found, None),
        tuple(len(reader.steps()) for reader in readers),
        tuple(checkpoints),
        _config_differences(*(reader.config for reader in readers)),
        tuple(_last_evaluation(reader) for reader in readers),
    )


@dataclass(frozen=True, slots=True)
class _Record:
    reader: RunReader
    rows: dict[str, list | None]  # of one step


def _records(reader: RunReader) -> dict[int, _Record]:
    """What the record has of each step, its answers aside."""
    found: dict[int, dict[str, list]] = {step: {} for step in reader.steps()}
    for row in reader.metrics():
        kept = {name: value for name, value in row.items() if not name.startswith(CLOCKS)}
        found.setdefault(row["step"], {}).setdefault("metrics", []).append(kept)
    for event in (event for event in reader.events() if event["kind"] != OUTSIDE):
        kept = {name: value for name, value in event.items() if name != "time"}
        found.setdefault(event["step"], {}).setdefault("events", []).append(kept)
    for step, rows in reader.probes().items():
        found.setdefault(step, {})["probes"] = rows
    return {step: _Record(reader, rows) for step, rows in found.items()}


def _at(step: int, records, saved, with_checkpoint: bool) -> Iterator[Difference]:
    """The differences of one step, in the order in which they arise."""
    a, b = (record.get(step) for record in records)
    readers = [next(iter(record.values())).reader if record else None for record in records]
    if all(readers):
        files = [step_file(reader.folder, step) for reader in readers]
        if not (all(file.exists() for file in files) and filecmp.cmp(*files, shallow=False)):
            answers = [
                [asdict(row) for row in reader.step(step)] if file.exists() else None
                for reader, file in zip(readers, files, strict=True)
            ]
            yield from _differences(step, "answers", *answers)
    for part in ("metrics", "probes", "events"):
        yield from _differences(step, part, *(record and record.rows.get(part) for record in (a, b)))
    if with_checkpoint:
        yield from _of_checkpoints(step, *(folders.get(step) for folders in saved))


def _of_checkpoints(step: int, a: Path | None, b: Path | None) -> Iterator[Difference]:
    if a is None or b is None:
        yield from _differences(step, "checkpoint", *(None if folder is None else "saved" for folder in (a, b)))
        return
    files = [
        {path.relative_to(folder) for suffix in ("safetensors", "pt") for path in folder.rglob(f"*.{suffix}")}
        for folder in (a, b)
    ]
    for file in sorted(files[0] | files[1] | {Path("state.json")}):
        one, other = a / file, b / file
        if one.exists() and other.exists() and filecmp.cmp(one, other, shallow=False):
            continue
        yield from _differences(step, f"checkpoint/{file.as_posix()}", _content(one), _content(other))


def _content(path: Path) -> Any:
    if not path.exists():
        return None
    if path.suffix == ".safetensors":
        return load_file(path)
    if path.suffix == ".pt":
        return torch.load(path, weights_only=True, map_location="cpu")
    return path.read_text("utf-8")


def _differences(step: int, field: str, a: Any, b: Any) -> Iterator[Difference]:
    """Depth first. Numbers are the same if they are written the same: NaN is, 0.0 and -0.0 are not."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in [*a, *(key for key in b if key not in a)]:
            yield from _differences(step, f"{field}.{key}", a.get(key, MISSING), b.get(key, MISSING))
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
        for i in range(max(len(a), len(b))):
            pair = (items[i] if i < len(items) else MISSING for items in (a, b))
            yield from _differences(step, f"{field}[{i}]", *pair)
    elif isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        yield from _of_tensors(step, field, a, b)
    elif type(a) is not type(b) or repr(a) != repr(b):
        numbers = all(isinstance(value, int | float) for value in (a, b))
        yield Difference(step, field, _shown(a), _shown(b), float(abs(a - b)) if numbers else None)


def _of_tensors(step: int, field: str, a: torch.Tensor, b: torch.Tensor) -> Iterator[Difference]:
    kinds = [f"{tensor.dtype} {list(tensor.shape)}" for tensor in (a, b)]
    if kinds[0] != kinds[1]:
        yield Difference(step, field, *kinds, None)
        return
    flat = [tensor.reshape(-1, 1).contiguous() for tensor in (a, b)]
    differ = (flat[0].view(torch.uint8) != flat[1].view(torch.uint8)).any(-1)
    if differ.any():
        values = [tensor[differ][:, 0].double() for tensor in flat]
        by = (values[0] - values[1]).abs().max().item()
        yield Difference(step, field, values[0][0].item(), values[1][0].item(), by)


def _shown(value: Any) -> Any:
    """A value that was found in one run only may be large."""
    if value is None:
        return MISSING
    return value if isinstance(value, str | int | float | bool) else "there"


def _config_differences(a: Mapping[str, Any], b: Mapping[str, Any], *path: str) -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    for key in [*a, *(key for key in b if key not in a)]:
        one, other = a.get(key), b.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            found |= _config_differences(one, other, *path, key)
        elif one != other and (path or key not in NAMES):
            found[".".join((*path, key))] = one, other
    return found


def _last_evaluation(reader: RunReader) -> dict[str, float]:
    rows = [row for row in reader.metrics() if "eval/accuracy/num_tasks" in row]
    return {name: value for name, value in rows[-1].items() if not name.startswith(CLOCKS)} if rows else {}
