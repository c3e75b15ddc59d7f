"""`oncurve rescore`: a recorded run graded again, by its own rules and by others."""

import json
import math
from dataclasses import replace

import pytest

from oncurve.cli.rescore import Change, summary
from oncurve.record.reader import RunReader
from oncurve.types import Score


def test_the_runs_own_rules_change_nothing(run_folder, oncurve):
    done = oncurve("rescore", run_folder, "--json")
    report = json.loads(done.out)
    rows = [row for step in RunReader(run_folder).steps() for row in RunReader(run_folder).step(step)]
    assert done.status == 0
    assert (report["num_answers"], report["num_changed"], report["examples"]) == (len(rows), 0, [])
    assert report["mean_reward_then"] == pytest.approx(report["mean_reward_now"])
    assert report["rules_then"] == report["rules_now"]


def test_other_rules_are_shown_and_the_record_stays(run_folder, oncurve, tmp_path):
    before = {path: path.read_bytes() for path in run_folder.rglob("*") if path.is_file()}
    config = tmp_path / "other.toml"
    config.write_text("[reward]\nformat_bonus = 0.5\n")
    done = oncurve(
        "rescore", run_folder, "--config", config, "--reward.power=1.0", "--json", "--from", "2", "--to", "3"
    )
    report = json.loads(done.out)
    rows = [row for step in (2, 3) for row in RunReader(run_folder).step(step)]
    expected = [json.loads(row.parts).get("iou", 0.0) + 0.5 * (row.status == "scored") for row in rows]
    assert report["mean_reward_now"] == pytest.approx(sum(expected) / len(rows))
    assert report["num_changed"] == sum(row.status == "scored" for row in rows)
    assert {path: path.read_bytes() for path in run_folder.rglob("*") if path.is_file()} == before


def test_for_people(run_folder, oncurve):
    done = oncurve("rescore", run_folder)
    assert done.status == 0
    assert "0 of 32 answers would be scored otherwise" in done.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--from", "99"), "has no recorded step from 99 to its end"),
        (("--reward.power=1.0",), "name one with --config CONFIG"),
    ],
)
def test_what_cant_be_done(run_folder, oncurve, options, words):
    done = oncurve("rescore", run_folder, *options)
    assert done.status == 2
    assert words in done.err


def test_what_is_counted(run_folder):
    row = RunReader(run_folder).step(1)[0]
    one, nan = replace(row, status="scored", value=1.0, correct=True), float("nan")
    failed = replace(row, answer=1, status="error", value=nan, correct=None)
    report = summary([Change(one, Score("scored", 1.0, True)), Change(failed, Score("scored", 0.5, True))])
    assert (report["num_changed"], report["status_changes"]) == (1, {"error -> scored": 1})
    assert (report["mean_reward_then"], report["mean_reward_now"]) == (1.0, 0.75)
    assert (report["num_correct_then"], report["num_correct_now"]) == (1, 2)
    assert (report["groups_that_gain_a_signal"], report["groups_that_lose_theirs"]) == (1, 0)
    lost = summary([Change(one, Score("error", nan)), Change(replace(one, value=0.0), Score("error", nan))])
    assert (lost["groups_that_lose_theirs"], lost["mean_reward_now"]) == (1, None)
    assert Change(failed, Score("error", nan)).differs is False
    assert math.isinf(Change(failed, Score("scored", 0.5, True)).size)
