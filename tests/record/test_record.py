"""The run folder: what is written is read back bit for bit, also after kills and full disks."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from oncurve.config.schema import TrainConfig
from oncurve.errors import RunError
from oncurve.record import checkpoint
from oncurve.record.reader import RunReader
from oncurve.record.schema import ARROW_SCHEMA, AnswerRecord
from oncurve.record.writer import RunWriter
from oncurve.types import TaskImage

ROW = AnswerRecord(
    step=12,
    group=3,
    answer=1,
    index=9,
    task_id="scenes:train/17",
    kind="grounding",
    prompt="box the cat",
    images=["ab" * 32],
    model_image_sizes=[[64, 48]],
    truth='{"box": [0.2, 0.3, 0.6, 0.7]}',
    text="<box>é\n</box>",
    tokens=[5, 31, 7, 1],
    token_texts=["<box>", "é", "</box>", "<end>"],
    mask=[True, True, False, True],
    stop="end",
    temperature=1.0,
    seed=2**53 + 1,
    policy_version=11,
    fingerprint="f00d",
    status="scored",
    value=0.1 + 0.2,
    correct=None,
    parts='{"iou": 0.5}',
    extracted="[0.2, 0.3, 0.6, 0.7]",
    evidence="IoU 0.50",
    reason="",
    verifier="grounding/1",
    advantage=-5e-324,
    weight=1 / 3,
    sampler_logps=[-0.1, -2.3, 0.0, -math.inf],
    old_logps=[-0.1, -1e-17, 0.0, -7.0],
    reference_logps=None,
    pass_logps=[[-0.1, -2.3, -0.0, -7.0], [-0.2, math.pi, 1e300, -7.1]],
    trained=True,
)


@pytest.fixture
def writer(tmp_path: Path) -> RunWriter:
    return RunWriter.create(tmp_path / "run", TrainConfig(num_steps=7), "oncurve train a.toml")


def _bits(rows: list[AnswerRecord]) -> list[str]:
    return [repr(row) for row in rows]  # tells -0.0 from 0.0, and NaN equals itself


def test_every_field_has_its_column_in_order():
    assert ARROW_SCHEMA.names == [field.name for field in fields(AnswerRecord)]


def test_config_json_says_what_ran(writer: RunWriter):
    reader = RunReader(writer.folder)
    assert TrainConfig.model_validate_json(json.dumps(reader.config)) == TrainConfig(num_steps=7)
    assert reader.info["schema_version"] == 1
    assert reader.info["command"] == "oncurve train a.toml"
    assert reader.info["versions"]["torch"].startswith("2.")
    assert reader.info["started"].endswith("+00:00")


def test_answers_come_back_bit_for_bit(writer: RunWriter):
    left_out = replace(ROW, status="error", value=math.nan, old_logps=[], pass_logps=[], trained=False, images=[])
    rows = [ROW, replace(ROW, reference_logps=[-1.0, -2.0, 0.0, -3.0], correct=True), left_out]
    writer.step(12, rows)
    reader = RunReader(writer.folder)
    assert reader.steps() == [12]
    assert _bits(reader.step(12)) == _bits(rows)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 2**31), st.floats(), st.text(st.characters(exclude_categories=["Cs"])))))
def test_any_answer_comes_back(tmp_path_factory: pytest.TempPathFactory, tokens: list[tuple[int, float, str]]):
    writer = RunWriter.create(tmp_path_factory.mktemp("run"), TrainConfig(), "")
    ids, logps, texts = ([token[part] for token in tokens] for part in range(3))
    masks = {"mask": [True] * len(ids), "token_texts": texts, "text": "".join(texts)}
    row = replace(ROW, tokens=ids, sampler_logps=logps, old_logps=logps, pass_logps=[logps], **masks)
    writer.step(0, [row])
    assert _bits(RunReader(writer.folder).step(0)) == _bits([row])


def test_an_answer_with_lists_of_different_lengths_is_no_record():
    with pytest.raises(AssertionError):
        replace(ROW, pass_logps=[[-0.1, -2.3, 0.0]])


def test_metrics_stay_strict_json(writer: RunWriter):
    values = {"policy/loss": math.nan, "policy/grad_norm/before_clip": math.inf, "reward/total/mean": 0.1}
    writer.metrics(1, values)
    writer.metrics(2, {"prompts/num": 3, "policy/loss": np.float64(0.25)})
    nonfinite = {"policy/loss": "nan", "policy/grad_norm/before_clip": "inf"}
    first = {"step": 1, "reward/total/mean": 0.1, "nonfinite": nonfinite}
    assert RunReader(writer.folder).metrics() == [first, {"step": 2, "prompts/num": 3, "policy/loss": 0.25}]
    assert "NaN" not in (writer.folder / "metrics.jsonl").read_text()


def test_events_and_probes(writer: RunWriter):
    writer.event(3, "skipped_update", loss=math.nan, tasks=["a"])
    writer.probes(3, [{"text": "<box>", "iou": -math.inf}])
    (event,) = RunReader(writer.folder).events()
    assert event.pop("time").endswith("+00:00")
    assert event == {"step": 3, "kind": "skipped_update", "loss": "nan", "tasks": ["a"]}
    assert RunReader(writer.folder).probes() == {3: [{"text": "<box>", "iou": "-inf"}]}


def test_an_image_is_kept_once_without_loss(writer: RunWriter):
    pixels = Image.fromarray(np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8))
    image = TaskImage.of(pixels, "here")
    writer.image(image)
    (path,) = (writer.folder / "images").iterdir()
    before = path.stat()
    writer.image(image)
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert TaskImage.of(RunReader(writer.folder).image(image.sha256), "here").sha256 == image.sha256


def test_a_step_waits_for_its_images(writer: RunWriter):
    images = [TaskImage.of(Image.new("RGB", (400, 300), (i, 0, 0)), "here") for i in (1, 2, 2, 3)]
    writer.images(images)
    writer.step(1, [])
    assert {path.stem for path in (writer.folder / "images").iterdir()} == {image.sha256 for image in images}


def test_an_image_that_can_not_be_written_stops_the_step(writer: RunWriter):
    (writer.folder / "images").rmdir()
    writer.images([TaskImage.of(Image.new("RGB", (9, 9)), "here")])
    with pytest.raises(RunError, match="can't write"):
        writer.step(1, [])
    assert not list((writer.folder / "steps").glob("*.parquet"))


@pytest.mark.parametrize("sha256", ["0" * 64, "../config"])
def test_an_image_that_is_not_there(writer: RunWriter, sha256: str):
    with pytest.raises(RunError, match="has no image"):
        RunReader(writer.folder).image(sha256)


def test_a_torn_last_line_is_left_out_and_damage_elsewhere_is_named(writer: RunWriter):
    for step in (1, 2):
        writer.metrics(step, {"a": step})
    path = writer.folder / "metrics.jsonl"
    whole = path.read_bytes()
    for cut in range(len(whole) - 1, len(whole) - 12, -1):
        path.write_bytes(whole[:cut])
        assert RunReader(writer.folder).metrics() == [{"step": 1, "a": 1}], cut
    path.write_bytes(b'{"step": 1\n' + whole)
    with pytest.raises(RunError, match=r"metrics\.jsonl:1 is damaged"):
        RunReader(writer.folder).metrics()


def test_a_missing_step_names_those_that_exist(writer: RunWriter):
    reader = RunReader(writer.folder)
    with pytest.raises(RunError, match="has no step 4; no step was recorded yet"):
        reader.step(4)
    for step in (1, 2, 3, 9):
        writer.step(step, [ROW])
        expected = {1: "it has step 1$", 2: "it has steps 1, 2$", 3: "steps 1 to 3$", 9: "steps 1, 2, 3, 9$"}[step]
        with pytest.raises(RunError, match=expected):
            reader.step(4)


def test_a_damaged_step_is_named(writer: RunWriter):
    writer.step(1, [ROW])
    path = writer.folder / "steps" / "step-000001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RunError, match=r"step-000001\.parquet is damaged"):
        RunReader(writer.folder).step(1)


def test_folders_that_are_no_run(tmp_path: Path):
    with pytest.raises(RunError, match=r"is no run folder: it has no config\.json"):
        RunReader(tmp_path)
    for text in ('{"architectures": ["Idefics3"]}', "[]", "{"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(RunError, match="not one that Oncurve wrote"):
            RunReader(tmp_path)
    (tmp_path / "config.json").write_text('{"schema_version": 2, "config": {}}')
    with pytest.raises(RunError, match="schema version 2; this Oncurve reads 1; update"):
        RunReader(tmp_path)


def test_a_taken_folder_names_the_three_choices_and_stays_as_it_is(writer: RunWriter):
    writer.metrics(1, {"a": 1})
    with pytest.raises(RunError) as caught:
        RunWriter.create(writer.folder, TrainConfig(), "")
    for choice in (f"--resume {writer.folder}", "--name=NEW", "--replace"):
        assert choice in str(caught.value)
    assert RunReader(writer.folder).metrics() == [{"step": 1, "a": 1}]


def test_replace_deletes_a_run_and_nothing_but_a_run(writer: RunWriter, tmp_path: Path):
    writer.step(1, [ROW])
    replaced = RunWriter.create(writer.folder, TrainConfig(num_steps=9), "", replace=True)
    assert RunReader(replaced.folder).steps() == []
    assert RunReader(replaced.folder).config["num_steps"] == 9

    thesis = tmp_path / "papers" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("years of work")
    with pytest.raises(RunError, match="--replace deletes nothing but runs"):
        RunWriter.create(thesis.parent, TrainConfig(), "", replace=True)
    assert thesis.read_text() == "years of work"


def test_an_empty_folder_is_free(tmp_path: Path):
    (tmp_path / ".DS_Store").touch()
    RunWriter.create(tmp_path, TrainConfig(), "")
    assert RunReader(tmp_path).steps() == []


def test_resume_cuts_the_record_back(writer: RunWriter):
    for step in (1, 2, 3, 4):
        writer.metrics(step, {"a": step / 3})
        writer.metrics(step, {"eval/mean_iou/mean": 0.5})
        writer.event(step, "checkpoint")
        writer.step(step, [replace(ROW, step=step)])
        writer.probes(step, [{"step": step}])
        (writer.folder / "checkpoints" / f"step-{step:06d}").mkdir(parents=True)
    kept = (writer.folder / "metrics.jsonl").read_bytes()[: -len(b'{"step": 4, "eval/mean_iou/mean": 0.5}\n')]
    with (writer.folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 5, "a"')
    (writer.folder / "steps" / ".step-000005.parquet.tmp").write_bytes(b"PAR1")

    resumed = RunWriter.resume(writer.folder, 2)
    reader = RunReader(writer.folder)
    assert kept.startswith((writer.folder / "metrics.jsonl").read_bytes())
    assert [row["step"] for row in reader.metrics()] == [1, 1, 2, 2]
    assert [row["step"] for row in reader.events()] == [1, 2]
    assert reader.steps() == [1, 2]
    assert list(reader.probes()) == [1, 2]
    assert sorted(path.name for path in (writer.folder / "checkpoints").iterdir()) == ["step-000001", "step-000002"]
    assert not list(writer.folder.rglob(".*.tmp"))
    resumed.metrics(3, {"a": 1})
    assert reader.metrics()[-1] == {"step": 3, "a": 1}


def test_resume_of_what_is_no_run(tmp_path: Path):
    with pytest.raises(RunError, match="is no run folder"):
        RunWriter.resume(tmp_path, 1)


ENDLESS = """
import itertools, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_record import ROW
from oncurve.config.schema import TrainConfig
from oncurve.record import checkpoint
from oncurve.record.writer import RunWriter
run = RunWriter.create(Path(sys.argv[1]), TrainConfig(), "")
for step in itertools.count(1):
    run.step(step, [ROW] * 50)
    run.metrics(step, {f"metric/{n}": n / 3 for n in range(200)} | {"last": step})
    run.event(step, "long", words="x" * 20_000)
    run.probes(step, [{"step": step, "words": "x" * 20_000}])
    checkpoint.save(run.folder, step, lambda folder: (folder / "w").write_bytes(bytes(200_000)), {"step": step}, 2)
    print("saved", flush=True)
"""


def test_a_kill_at_any_moment_leaves_a_readable_run(tmp_path: Path):
    folders = [tmp_path / str(number) for number in range(3)]
    command = [sys.executable, "-c", ENDLESS]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen([*command, folder, Path(__file__).parent], stdout=subprocess.PIPE, env=environment)
        for folder in folders
    ]
    rng = random.Random(0)
    for process, folder in zip(processes, folders, strict=True):
        assert [process.stdout.readline() for _ in range(2)] == [b"saved\n"] * 2
        time.sleep(rng.random() / 20)
        process.send_signal(signal.SIGKILL)
        process.communicate()

        reader = RunReader(folder)
        num_steps = len(reader.metrics())
        assert [row["last"] for row in reader.metrics()] == list(range(1, num_steps + 1))
        assert reader.steps() in (list(range(1, num_steps + 1)), list(range(1, num_steps + 2)))
        assert all(_bits(reader.step(step)) == _bits([ROW] * 50) for step in reader.steps()[-2:])
        assert [event["step"] for event in reader.events()] == list(range(1, len(reader.events()) + 1))
        assert all(rows[0]["step"] == step for step, rows in reader.probes().items())
        saved = checkpoint.latest(folder)
        assert saved.passed_over == []
        RunWriter.resume(folder, saved.step)
        assert reader.steps()[-1] == len(reader.metrics()) == saved.state["step"] == saved.step >= 2


def test_a_full_disk_is_named_and_damages_nothing(small_disk: Path):
    writer = RunWriter.create(small_disk / "run", TrainConfig(), "")
    writer.step(1, [ROW] * 50)
    writer.metrics(1, {"a": 1})
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "filler").write_bytes(bytes(1 << 20))
    writes = {
        "step-000002.parquet": lambda: writer.step(2, [ROW]),
        "metrics.jsonl": lambda: [writer.metrics(2, {f"metric/{n}": n / 3 for n in range(200)}) for _ in range(9)],
        "step-000002.json": lambda: writer.probes(2, [{}]),
        "events.jsonl": lambda: writer.event(2, "full"),
        ".png": lambda: writer.image(TaskImage.of(Image.new("RGB", (9, 9)), "here")),
    }
    for name, write in writes.items():
        with pytest.raises(RunError) as caught:
            write()
        assert name in str(caught.value)
        assert "no space left on device; free some space, or write runs to another disk" in str(caught.value)
    reader = RunReader(writer.folder)
    assert reader.steps() == [1]
    assert len(reader.step(1)) == 50
    assert reader.metrics()[0] == {"step": 1, "a": 1}
    assert (writer.folder / "metrics.jsonl").read_bytes().endswith(b"}\n")
    assert not list(writer.folder.rglob(".*.tmp"))

    (small_disk / "filler").unlink()
    writer.step(2, [ROW])
    assert reader.steps() == [1, 2]


def test_a_disk_that_can_only_be_read(small_disk: Path):
    writer = RunWriter.create(small_disk / "run", TrainConfig(), "")
    writer.metrics(1, {"a": 1})
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for write in (
        lambda: writer.metrics(2, {"a": 2}),
        lambda: writer.step(2, [ROW]),
        lambda: RunWriter.resume(writer.folder, 0),
        lambda: RunWriter.create(small_disk / "new", TrainConfig(), ""),
    ):
        with pytest.raises(
            RunError, match=r"can't write .*: read-only file system; choose a folder on a writable disk"
        ):
            write()
    assert RunReader(writer.folder).metrics() == [{"step": 1, "a": 1}]


def test_a_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)  # root may write anywhere, so that modes prove nothing
    with pytest.raises(RunError, match=r"can't write .*/run: permission denied; choose a folder that you may write to"):
        RunWriter.create(tmp_path / "run", TrainConfig(), "")


def test_a_file_where_the_folder_should_be(tmp_path: Path):
    (tmp_path / "run").touch()
    with pytest.raises(RunError, match="a file stands where a folder is needed"):
        RunWriter.create(tmp_path / "run", TrainConfig(), "")
