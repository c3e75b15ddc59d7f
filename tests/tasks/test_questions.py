"""Tasks of any kind from JSONL: rows, spaces of truths, messages, and the faults that are refused with their line."""

import json
from pathlib import Path

import pytest
from PIL import Image

from oncurve.config.schema import TasksData
from oncurve.errors import DataError
from oncurve.tasks.questions import parse_question, task_of
from oncurve.tasks.sets import load_tasks
from oncurve.truths import BoxesTruth, BoxTruth, CountTruth, DiscTruth, EvidenceTruth, Region, parse_truth, truth_json


def task(row):
    return task_of(parse_question(row), "a.jsonl:1")


def load(tmp_path, *rows):
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return load_tasks(TasksData(type="tasks", path=str(path)))


COUNT = {"kind": "counting", "prompt": "how many cats?", "truth": {"count": 3}}


def test_a_row_becomes_a_task(tmp_path):
    Image.new("RGB", (16, 12), "red").save(tmp_path / "cat.png")
    tasks = load(tmp_path, {**COUNT, "images": "cat.png", "options": {"band": 1}}, "", {**COUNT, "id": 7})
    first, second = tasks[0], tasks[1]
    assert (first.kind, first.truth, first.options) == ("counting", CountTruth(3), {"band": 1})
    assert (first.id, second.id) == (f"{tmp_path / 'tasks.jsonl'}:1", "7")
    assert first.messages[0].text == "how many cats?"
    assert first.images[0].pixels.size == (16, 12)
    assert len(tasks) == 2


def test_messages_with_a_system_prompt():
    turns = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "how many?"}]
    assert [(m.role, m.text) for m in task({**COUNT, "prompt": turns}).messages] == [
        ("system", "be brief"),
        ("user", "how many?"),
    ]
    with pytest.raises(DataError, match="the last message must be the user's"):
        task({**COUNT, "prompt": turns[:1]})


@pytest.mark.parametrize(
    ("kind", "truth", "options", "made"),
    [
        ("grounding", {"box": [250, 500, 750, 1000]}, {"truth_space": "thousand"}, BoxTruth((0.25, 0.5, 0.75, 1.0))),
        ("pointing", {"point": [50, 25]}, {"truth_space": "percent"}, DiscTruth((0.5, 0.25), 0.05)),
        (
            "evidence",
            {"regions": [{"region": [0, 25, 50, 100], "type": "posture"}]},
            {"truth_space": "percent"},
            EvidenceTruth((Region((0.0, 0.25, 0.5, 1.0), "posture"),)),
        ),
        (
            "detection",
            {"boxes": [[0, 0, 32, 64]], "labels": ["cat"]},
            {"truth_space": "pixel_original", "image_size": [64, 128]},
            BoxesTruth(((0.0, 0.0, 0.5, 0.5),), ("cat",)),
        ),
    ],
)
def test_truths_in_other_spaces(kind, truth, options, made):
    assert task({"kind": kind, "truth": truth, "options": options}).truth == made


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{", "tasks.jsonl:2: not JSON"),
        ("[1]", "tasks.jsonl:2: an object is needed, not [1]"),
        ({**COUNT, "kind": "count"}, "tasks.jsonl:2: kind: 'count' is unknown; allowed are grounding, detection"),
        ({**COUNT, "turth": 1}, "turth: unknown key; allowed are kind, truth, id, prompt"),
        ({**COUNT, "truth": {"count": -1}}, "truth.count: Input should be greater than or equal to 0"),
        ({**COUNT, "truth": {"count": "3"}}, "truth.count: Input should be a valid integer"),
        ({**COUNT, "truth": {"number": 3}}, "truth.count: "),
        ({**COUNT, "prompt": ""}, "prompt: it is missing"),
        ({**COUNT, "images": ["no.png"]}, "no.png: there is no such file"),
        ({"kind": "grounding", "prompt": "p", "truth": {"box": [0.5, 0, 0.5, 1]}}, "is no box x1, y1, x2, y2 in 0..1"),
        ({"kind": "grounding", "prompt": "p", "truth": {"box": [0, 0, 1]}}, "truth.box"),
        ({"kind": "ocr", "prompt": "p", "truth": {"text": " "}}, "truth.text: it is empty"),
        ({"kind": "detection", "prompt": "p", "truth": {"boxes": [], "labels": ["a"]}}, "0 boxes and 1 labels"),
        ({**COUNT, "options": {"truth_space": "inch"}}, "options.truth_space: 'inch' is unknown; allowed are unit"),
        ({**COUNT, "id": "a"}, "id a is taken by"),
        (
            {
                "kind": "grounding",
                "prompt": "p",
                "truth": {"box": [0, 0, 10**400, 1]},
                "options": {"truth_space": "percent"},
            },
            "truth: a coordinate is too large",
        ),
    ],
)
def test_a_broken_row_is_refused_with_its_line(tmp_path, row, words):
    with pytest.raises(DataError) as caught:
        load(tmp_path, {**COUNT, "id": "a"}, row)
    assert words in str(caught.value)
    assert "tasks.jsonl:2" in str(caught.value)


def test_no_rows_and_no_file(tmp_path):
    with pytest.raises(DataError, match="no task"):
        load(tmp_path, "")
    with pytest.raises(DataError, match="can't be read: No such file"):
        load_tasks(TasksData(type="tasks", path=str(Path(tmp_path) / "none.jsonl")))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("grounding", {"box": [0.25, 0.5, 0.75, 1.0]}),
        ("pointing", {"point": [0.5, 0.25], "radius": 0.1}),
        ("evidence", {"regions": [{"region": [0.1, 0.2, 0.3, 0.4], "type": "face_region", "attributes": ["down"]}]}),
        ("sql", {"sql": "SELECT 1"}),
        ("text", {}),
    ],
)
def test_a_truth_goes_to_json_and_back(kind, value):
    assert json.loads(json.dumps(truth_json(parse_truth(kind, value)))) == value
