"""Bad input ends with exit status 2 and a text that says what, where and how to mend it; what was written stays."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import oncurve as package
from oncurve.record.reader import RunReader
from oncurve.tasks.scenes import draw_scene, make_scene


@pytest.fixture
def train(oncurve, folder, tmp_path):
    """`oncurve train` with the untrained model into a fresh folder, whose name comes back as well."""

    def run(*overrides):
        runs = tmp_path / "runs"
        model = "--model.path=builtin:untrained"
        return oncurve("train", folder / "train.toml", f"--runs_folder={runs}", model, *overrides), runs

    return run


@pytest.fixture
def photos(tmp_path):
    """Writes rows as JSONL beside one good picture, `a.png`."""

    def write(*rows: dict) -> Path:
        draw_scene(make_scene("train", 0)).save(tmp_path / "a.png")
        path = tmp_path / "photos.jsonl"
        path.write_text("".join(json.dumps({"box": [0.1, 0.1, 0.5, 0.5], **row}) + "\n" for row in rows))
        return path

    return write


def jsonl(path: Path) -> str:
    return f'--data={{ type = "jsonl", path = "{path}", space = "unit", order = "xyxy" }}'


def assert_refused(done, *texts):
    assert done.status == 2
    assert done.err.startswith("oncurve: ")
    assert "Traceback" not in done.err
    for text in texts:
        assert text in " ".join(done.err.split())


@contextmanager
def tmpfs(path: Path, options: str):
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", path], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted here: {mounted.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


@pytest.mark.parametrize(
    ("override", "texts"),
    [
        ("--num_stpes=3", ["did you mean 'num_steps'?"]),
        ("--sampling.answer_per_prompt=3", ["did you mean 'answers_per_prompt'?"]),
        ("--num_steps=many", ["--num_steps=many", "whole number"]),
        ("--sampling.group_size=3", ["group_size 3 does not divide answers_per_prompt 4", "2, 4"]),
        ("--num_steps=3", ["no multiple of accumulate_steps 2", "next multiple is 4"]),
    ],
)
def test_configuration(train, override, texts):
    done, runs = train(override)
    assert_refused(done, *texts)
    assert not runs.exists()


def test_more_prompts_than_tasks(train):
    done, runs = train("--sampling.prompts_per_step=3")
    assert_refused(done, "scenes:train", "2 tasks", "prompts_per_step 3")
    assert not runs.exists()


def test_a_missing_picture_is_left_out_and_named(train, photos):
    rows = [{"image": name, "phrase": "the cat"} for name in ("a.png", "gone.png", "a.png")]
    done, runs = train(jsonl(photos(*rows)), "--num_steps=2")
    assert (done.status, done.err) == (0, "")
    assert "photos.jsonl: 1 of 3 rows left out: 1 image missing (photos.jsonl:2)" in done.out
    assert {row.task_id for row in RunReader(runs / "small").step(1)} == {"photos.jsonl:1", "photos.jsonl:3"}


def test_no_picture_is_there(train, photos):
    done, runs = train(jsonl(photos({"image": "gone.png", "phrase": "the cat"})))
    assert_refused(done, "photos.jsonl: no usable task", "1 image missing", "gone.png")
    assert not runs.exists()


def test_an_empty_data_set(train, photos):
    done, runs = train(jsonl(photos()))
    assert_refused(done, "photos.jsonl: no usable task: it holds no row")
    assert not runs.exists()


def test_a_prompt_beyond_the_context(train, photos):
    """It is never cut: the task is left out, named, and counted in the events."""
    rows = [{"image": "a.png", "phrase": "the cat"}, {"image": "a.png", "phrase": "zebra " * 5000}]
    done, runs = train(jsonl(photos(*rows)), "--num_steps=2")
    assert (done.status, done.err) == (0, "")
    assert done.out.count("left out: task photos.jsonl:2: its prompt has 3") == 2
    reader = RunReader(runs / "small")
    events = [(event["step"], event["kind"], event["task_id"]) for event in reader.events() if "task_id" in event]
    assert events == [(step, "task_left_out", "photos.jsonl:2") for step in (1, 2)]
    assert {row.task_id for step in (1, 2) for row in reader.step(step)} == {"photos.jsonl:1"}


def test_no_prompt_within_the_context(train, photos):
    done, runs = train(jsonl(photos(*[{"image": "a.png", "phrase": "zebra " * 5000}] * 2)))
    assert_refused(done, "photos.jsonl:1", "context of 4,096", "a shorter prompt")
    assert not runs.exists()


def test_eval_of_a_prompt_beyond_the_context(oncurve, photos):
    path = photos({"image": "a.png", "phrase": "zebra " * 5000})
    done = oncurve("eval", "builtin:untrained", "--data", f"{path}?space=unit&order=xyxy", "--json")
    assert_refused(done, "photos.jsonl:1", "context of 4,096")
    assert done.out == ""


@pytest.mark.parametrize("size", ["2m", "6m"])
def test_no_space_for_a_checkpoint(oncurve, folder, tmp_path, size):
    """The weights, or the optimizer's state, do not fit: the record stays readable, and no torn checkpoint is left."""
    with tmpfs(tmp_path / "small_disk", f"size={size}") as disk:
        arguments = (f"--runs_folder={disk}", "--model.path=builtin:untrained")
        done = oncurve("train", folder / "train.toml", *arguments)
        assert_refused(done, str(disk / "small" / "checkpoints"), "no space left", "--runs_folder=")
        reader = RunReader(disk / "small")
        assert reader.steps() == [1, 2]
        assert len(reader.step(2)) == 8
        assert [row["step"] for row in reader.metrics()] == [0, 1, 2, 2]
        assert list((disk / "small" / "checkpoints").iterdir()) == []


def test_no_space_for_the_record(oncurve, folder, tmp_path):
    with tmpfs(tmp_path / "small_disk", "size=64k") as disk:
        arguments = (f"--runs_folder={disk}", "--model.path=builtin:untrained")
        done = oncurve("train", folder / "train.toml", *arguments)
        assert_refused(done, str(disk / "small"), "no space left", "--runs_folder=")
        reader = RunReader(disk / "small")
        assert all(len(reader.step(step)) == 8 for step in reader.steps())
        assert reader.metrics()[0]["step"] == 0


def test_a_disk_that_can_only_be_read(oncurve, folder, tmp_path):
    with tmpfs(tmp_path / "read_only", "ro") as disk:
        arguments = (f"--runs_folder={disk}", "--model.path=builtin:untrained")
        assert_refused(oncurve("train", folder / "train.toml", *arguments), str(disk / "small"), "--runs_folder=")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(oncurve, folder, tmp_path):
    tmp_path.chmod(0o500)
    arguments = (f"--runs_folder={tmp_path}", "--model.path=builtin:untrained")
    assert_refused(oncurve("train", folder / "train.toml", *arguments), str(tmp_path / "small"), "permission denied")


def test_a_file_where_the_runs_should_be(train, tmp_path):
    (tmp_path / "runs").write_text("mine")
    done, runs = train()
    assert_refused(done, str(runs / "small"), "a file stands where a folder is needed")
    assert runs.read_text() == "mine"


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("builtin:tyni", ["no such built-in model", "builtin:tiny"]),
        ("{here}", ["neither a model's folder", "nor a run with a checkpoint"]),
        ("{here}/a/b", ["no such folder"]),
    ],
)
def test_a_model_that_is_none(oncurve, tmp_path, path, texts):
    path = path.format(here=tmp_path)
    for arguments in (["eval", path, "--data", "scenes:heldout"], ["predict", tmp_path / "a.png", "the cat"]):
        draw_scene(make_scene("train", 0)).save(tmp_path / "a.png")
        done = oncurve(*arguments, *(["--model", path] if arguments[0] == "predict" else []))
        assert_refused(done, path, *texts)
        assert done.out == ""


@pytest.mark.parametrize(
    "data",
    ["nonsense", "scenes:test", "photos.jsonl?space=unit", "photos.jsonl?space=inch&order=xyxy", ""],
)
def test_data_that_is_none(oncurve, data):
    done = oncurve("eval", "builtin:untrained", "--data", data)
    assert_refused(done, data, "scenes:heldout", "FILE.jsonl?space=")


def test_a_file_of_data_that_is_gone(oncurve, tmp_path):
    for form in ("?space=unit&order=xyxy", ""):
        done = oncurve("eval", "builtin:untrained", "--data", f"{tmp_path}/gone.jsonl{form}")
        assert_refused(done, f"{tmp_path}/gone.jsonl", "can't be read")


@pytest.mark.parametrize("limit", ["0", "-1", "many", "1.5"])
def test_a_limit_that_is_no_whole_number(oncurve, limit):
    done = oncurve("eval", "builtin:untrained", "--data", "scenes:heldout", f"--limit={limit}")
    assert done.status == 2
    assert f"argument --limit: a whole number from 1 is needed, got '{limit}'" in done.err


@pytest.mark.parametrize(
    ("image", "prompt", "out", "texts"),
    [
        ("gone.png", "box {phrase}", "b.png", ["gone.png", "there is no such file"]),
        ("photos.jsonl", "box {phrase}", "b.png", ["photos.jsonl", "not a picture"]),
        ("a.png", "box it", "b.png", ["{phrase}"]),
        ("a.png", "box {phrase}", "b.nonsense", ["b.nonsense", "can't be written"]),
        ("a.png", "box {phrase}", "nowhere/b.png", ["nowhere/b.png", "can't be written"]),
    ],
)
def test_predict(oncurve, photos, warmed, image, prompt, out, texts):
    here = photos().parent
    phrase = make_scene("train", 0, max_things=1).phrase
    draw_scene(make_scene("train", 0, max_things=1)).save(here / "a.png")
    arguments = (here / image, phrase, "--model", warmed, "--prompt", prompt, "--out", here / out)
    assert_refused(oncurve("predict", *arguments), *texts)


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "bad.toml"],
        ["sft", "bad.toml"],
        ["plan", "bad.toml"],
        ["eval", "builtin:tiny", "--data", "nonsense"],
        ["predict", "gone.png", "the cat"],
    ],
)
def test_in_a_process_of_its_own_before_torch(tmp_path, arguments):
    (tmp_path / "bad.toml").write_text("num_stpes = 3\n")
    environment = os.environ | {"PYTHONPATH": str(Path(package.__file__).parents[1])}
    command = [sys.executable, "-X", "importtime", "-m", "oncurve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert (done.returncode, done.stdout) == (2, "")
    assert "oncurve: " in done.stderr
    assert "Traceback" not in done.stderr
    assert "argparse" in imported
    assert not imported & {"torch", "transformers"}
