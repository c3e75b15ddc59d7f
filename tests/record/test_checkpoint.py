"""Checkpoints appear whole or not at all, and a damaged one is never resumed from."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from oncurve.errors import RunError
from oncurve.record import checkpoint


def _weights(data: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "model").mkdir()
        (folder / "model" / "model.safetensors").write_bytes(data)

    return write


def _names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def test_what_is_saved_comes_back(tmp_path: Path):
    state = {"updates": 50, "cursor": [3, 17], "rate": 0.1 + 0.2, "seed": 2**70}
    data = random.Random(0).randbytes(10_000)
    folder = checkpoint.save(tmp_path, 100, _weights(data), state, keep_last=2)
    assert folder == tmp_path / "checkpoints" / "step-000100"
    assert checkpoint.latest(tmp_path) == checkpoint.Checkpoint(folder, 100, state, [])
    assert (folder / "model" / "model.safetensors").read_bytes() == data


def test_no_checkpoint(tmp_path: Path):
    assert checkpoint.latest(tmp_path) is None


def test_the_last_ones_are_kept_by_number_and_leftovers_go(tmp_path: Path):
    (tmp_path / "checkpoints" / ".step-000001.tmp" / "model").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-notes").mkdir()
    for step in (999_998, 999_999, 1_000_000):
        checkpoint.save(tmp_path, step, _weights(b"w"), {}, keep_last=2)
    assert _names(tmp_path) == ["step-1000000", "step-999999", "step-notes"]
    assert checkpoint.latest(tmp_path).step == 1_000_000


def test_an_intact_checkpoint_of_the_step_stays_and_a_damaged_one_is_written_anew(tmp_path: Path):
    folder = checkpoint.save(tmp_path, 5, _weights(b"first"), {"n": 1}, keep_last=1)
    checkpoint.save(tmp_path, 5, _weights(b"second"), {"n": 1}, keep_last=1)
    assert (folder / "model" / "model.safetensors").read_bytes() == b"first"
    (folder / "state.json").unlink()
    checkpoint.save(tmp_path, 5, _weights(b"third"), {"n": 1}, keep_last=1)
    assert (folder / "model" / "model.safetensors").read_bytes() == b"third"


def test_the_best_one_stays_the_first_of_equals(tmp_path: Path):
    scores = {10: 0.5, 20: 0.7, 30: 0.7, 40: 0.6, 45: 0.9}  # there is no checkpoint of step 45
    for step in (10, 20, 30, 40, 50):
        checkpoint.save(tmp_path, step, _weights(b"w"), {}, 1, {s: score for s, score in scores.items() if s <= step})
    assert _names(tmp_path) == ["step-000020", "step-000050"]
    checkpoint.prune(tmp_path, 1, {})
    assert _names(tmp_path) == ["step-000050"]


def test_a_kill_while_an_old_one_is_deleted_leaves_no_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for step in (1, 2):
        checkpoint.save(tmp_path, step, _weights(b"w"), {}, keep_last=2)

    def killed(folder: Path) -> None:
        (folder / "model" / "model.safetensors").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.prune(tmp_path, 1)
    assert _names(tmp_path) == [".step-000001.tmp", "step-000002"]
    monkeypatch.undo()
    checkpoint.save(tmp_path, 3, _weights(b"w"), {}, keep_last=2)
    assert _names(tmp_path) == ["step-000002", "step-000003"]


def test_one_of_a_certain_step(tmp_path: Path):
    for step in (1, 2):
        checkpoint.save(tmp_path, step, _weights(b"w"), {"n": step}, keep_last=2)
    assert checkpoint.latest(tmp_path, 1).state == {"n": 1}
    with pytest.raises(RunError, match=r"no checkpoint of step 3; there are: 1, 2"):
        checkpoint.latest(tmp_path, 3)


def _written_as(folder: Path, document: dict) -> None:
    """Put another `state.json` into a checkpoint, as another version of Oncurve would have written it."""
    path, manifest = folder / "state.json", json.loads((folder / "manifest.json").read_text())
    path.write_text(json.dumps(document))
    manifest["state.json"] = {"sha256": checkpoint._sha256(path), "bytes": path.stat().st_size}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_an_older_schema_is_read_and_another_is_refused_with_the_commands(tmp_path: Path):
    folder = checkpoint.save(tmp_path, 5, _weights(b"w"), {"step": 5}, keep_last=1)
    _written_as(folder, {"step": 5, "policy_version": 10})  # version 1 was the bare state
    assert checkpoint.latest(tmp_path).state == {"step": 5, "policy_version": 10}
    for version in (0, 3):
        _written_as(folder, {"schema_version": version, "oncurve": "9.8.7", "state": {}})
        with pytest.raises(RunError) as caught:
            checkpoint.latest(tmp_path)
        assert f"checkpoint schema version {version}; " in str(caught.value)
        assert "python -m pip install oncurve==9.8.7\n" in str(caught.value)
        assert f"oncurve train --resume {tmp_path}" in str(caught.value)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "has changed since": lambda folder: _flip(folder / "model" / "model.safetensors"),
    "has 3 bytes, not 5": lambda folder: (folder / "model" / "model.safetensors").write_bytes(b"abc"),
    "model.safetensors is missing": lambda folder: shutil.rmtree(folder / "model"),
    "manifest.json is damaged": lambda folder: (folder / "manifest.json").write_text('{"state.json": '),
    "manifest.json: no such file": lambda folder: (folder / "manifest.json").unlink(),
    "names no state.json": lambda folder: (folder / "manifest.json").write_text("{}"),
}


@pytest.mark.parametrize("words", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path: Path, words: str):
    checkpoint.save(tmp_path, 50, _weights(b"50505"), {"n": 50}, keep_last=2)
    DAMAGES[words](checkpoint.save(tmp_path, 100, _weights(b"10010"), {"n": 100}, keep_last=2))
    found = checkpoint.latest(tmp_path)
    assert (found.step, found.state) == (50, {"n": 50})
    (message,) = found.passed_over
    assert re.search(f"step-000100.*{words}", message), message

    shutil.rmtree(found.folder)
    with pytest.raises(RunError, match=f"no checkpoint of .* is intact: .*{words}"):
        checkpoint.latest(tmp_path)


def test_a_failure_while_writing_leaves_the_older_ones(tmp_path: Path):
    checkpoint.save(tmp_path, 50, _weights(b"w"), {}, keep_last=1)

    def broken(folder: Path) -> None:
        (folder / "half").write_bytes(b"h")
        raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        checkpoint.save(tmp_path, 100, broken, {}, keep_last=1)
    assert _names(tmp_path) == ["step-000050"]
    assert checkpoint.latest(tmp_path).step == 50


def test_a_full_disk_is_named_though_the_writer_hides_it(small_disk: Path):
    checkpoint.save(small_disk, 50, _weights(b"w"), {}, keep_last=1)

    def as_weights_are_written(folder: Path) -> None:
        try:
            _weights(bytes(1 << 20))(folder)
        except OSError:
            raise RuntimeError("PytorchStreamWriter failed writing file data/0") from None

    with pytest.raises(RunError, match=r"step-000100: no space left on device; free some space"):
        checkpoint.save(small_disk, 100, as_weights_are_written, {}, keep_last=1)
    assert _names(small_disk) == ["step-000050"]
    assert checkpoint.latest(small_disk).step == 50
