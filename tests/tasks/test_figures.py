"""Drawn figures: regions that hold what they name, splits that don't meet, and reports that the verifier finds right."""

from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.config.rewards import EvidenceRules
from oncurve.config.schema import FiguresData
from oncurve.errors import DataError
from oncurve.rewards.evidence import grade
from oncurve.tasks.figures import draw_figure, make_figure, report
from oncurve.tasks.labels import written
from oncurve.tasks.sets import load_tasks, parse_data
from oncurve.truths import TextTruth, parse_truth, truth_json
from oncurve.types import Message, Task

HELDOUT_0 = {
    "regions": (
        {"region": (0.38, 0.23, 0.53, 0.38), "type": "face_region", "attributes": ("level",)},
        {"region": (0.26, 0.18, 0.65, 0.45), "type": "arms_region", "attributes": ("raised",)},
        {"region": (0.26, 0.18, 0.72, 0.93), "type": "body_posture", "attributes": ("sitting",)},
    )
}
HELDOUT_0_SHA256 = "944d13e82327a840fed88129a98e97838e6bc88c39865bb5670cd58ffaa59ce9"

indices = st.integers(0, 1_000_000)


def test_the_first_held_out_figure_is_pinned():
    figure = make_figure("heldout", 0)
    assert truth_json(figure.truth) == HELDOUT_0
    assert sha256(draw_figure(figure, 64).tobytes()).hexdigest() == HELDOUT_0_SHA256


@given(indices)
@settings(deadline=None, max_examples=50)
def test_the_same_arguments_give_the_same_picture_and_whole_regions(index):
    first, again = (make_figure("train", index) for _ in range(2))
    assert first == again
    assert draw_figure(first, 32).tobytes() == draw_figure(again, 32).tobytes()
    assert all(0 < at < 1 for region in first.truth.regions for at in region.region)
    assert parse_truth("evidence", truth_json(first.truth)) == first.truth


def test_two_splits_share_no_figure():
    train, heldout = ({make_figure(split, index) for index in range(500)} for split in ("train", "heldout"))
    assert len(train) == len(heldout) == 500
    assert not train & heldout


def test_the_body_is_where_the_picture_differs_from_one_without_it():
    for index in range(10):
        figure = make_figure("train", index)
        if not figure.posture:
            continue
        nobody = replace(figure, posture="")
        changed = (np.asarray(draw_figure(figure, 256)) != np.asarray(draw_figure(nobody, 256))).any(-1)
        rows, columns = np.nonzero(changed)
        bounds = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]) / 256
        body = figure.truth.regions[-1]
        assert body.type == "body_posture"
        assert np.abs(bounds - body.region).max() < 0.03


@pytest.mark.parametrize(("field", "index"), [("head", 0), ("arms", 1)])
def test_a_changed_attribute_changes_the_picture_in_its_region(field, index):
    figure = replace(make_figure("train", 3), posture="standing", head="level", arms="hanging")
    other = replace(figure, **{field: {"head": "up", "arms": "crossed"}[field]})
    changed = (np.asarray(draw_figure(figure, 256)) != np.asarray(draw_figure(other, 256))).any(-1)
    rows, columns = np.nonzero(changed)
    boxes = [np.array(each.truth.regions[index].region) for each in (figure, other)]
    low, high = np.minimum(*boxes) - 0.03, np.maximum(*boxes) + 0.03
    assert low[0] <= columns.min() / 256 <= columns.max() / 256 <= high[2]
    assert low[1] <= rows.min() / 256 <= rows.max() / 256 <= high[3]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_report_of_every_figure_is_right(language):
    rules, empty = EvidenceRules(type="evidence", language=language), 0
    for truth in (make_figure("train", index).truth for index in range(150)):
        score = grade(truth, report(truth, language), rules)
        assert score.correct, score.evidence
        assert {name for name, part in score.parts.items() if part < 1} <= {"calibration"}
        empty += not truth.regions
    assert 1 <= empty <= 20  # about one in twenty


def test_the_written_answer_of_a_task_is_its_report_in_its_language():
    for language in ("en", "zh"):
        task = load_tasks(FiguresData(type="figures", language=language, size_px=32))[3]
        assert written(task) == report(make_figure("train", 3).truth, language)


def test_a_loose_report_has_larger_regions():
    task = load_tasks(FiguresData(type="figures"))[1]
    exact, loose = (
        grade(task.truth, written(task, looseness), EvidenceRules(type="evidence")) for looseness in (0.0, 0.3)
    )
    assert exact.parts["grounding"] == 1.0
    assert 0.5 < loose.parts["grounding"] < 0.95


def test_a_task_of_another_kind_has_no_written_answer():
    with pytest.raises(DataError, match="kind ocr has no written answer"):
        written(Task("t", "ocr", (Message("user", "read"),), TextTruth("STOP")))


def test_the_short_form_names_language_and_size():
    tasks = load_tasks(parse_data("figures:heldout?language=zh&size_px=64&num_figures=7"))
    assert (tasks.name, len(tasks)) == ("figures:heldout", 7)
    assert tasks[0].options == {"language": "zh"}
    assert tasks[0].images[0].pixels.size == (64, 64)
    assert "无法" in tasks[0].messages[0].text
    with pytest.raises(IndexError):
        tasks[7]


def test_an_empty_picture_asks_for_an_empty_report():
    nobody = replace(make_figure("train", 0), posture="")
    assert report(nobody.truth, "en").startswith('{"observable_evidence":[],')
