"""Sizes, groups without signal and the curriculum in whole runs: what is recorded, and the same bits after a stop."""

import json
from collections import Counter
from shutil import copytree

import pytest

from oncurve.compare import compare
from oncurve.record.reader import RunReader

SETTINGS = {
    "adaptive": ["--groups.size={ type = 'adaptive', min = 2, max = 8 }", "--objective.reduction=group_mean"],
    "resample": ["--groups.no_signal={ type = 'resample', max_rounds = 2 }", "--advantage.tolerance=0.02"],
    "reassign": [
        "--groups.no_signal={ type = 'reassign', rest_steps = 1, band = [0.0, 1.0] }",
        "--advantage.tolerance=0.1",
    ],
    "hotter": ["--groups.no_signal={ type = 'hotter', num_answers = 2 }", "--advantage.tolerance=0.1"],
    "supervise": ["--groups.no_signal={ type = 'supervise' }", "--advantage.tolerance=0.1"],
    "ladder": ["--sampling.temperatures=[0.7, 1.0, 1.3]"],
    "easy_first": ["--curriculum={ order = 'easy_first' }"],
}


@pytest.fixture(scope="module")
def run(oncurve, folder, warmed, tmp_path_factory):
    """`run("adaptive")`: the run with these settings, made once; four steps over eight scenes."""
    made = {}

    def make(name: str):
        if name not in made:
            place = tmp_path_factory.mktemp(name)
            options = [
                f"--runs_folder={place}",
                f"--model.path={warmed}",
                "--data.num_scenes=8",
                "--objective.passes=1",
            ]
            options += ["--evaluate.every_steps=0", "--evaluate.num_tasks=2", "--objective.kl.beta=0.0"]
            done = oncurve("train", folder / "train.toml", *options, *SETTINGS[name])
            assert (done.status, done.err) == (0, "")
            made[name] = place / "small"
        return made[name]

    return make


def sizes(run, step: int) -> Counter:
    return Counter(row.group for row in RunReader(run).step(step))


@pytest.mark.parametrize("name", SETTINGS)
def test_going_on_from_a_checkpoint_gives_the_same_bits(name, run, oncurve, tmp_path):
    folder = copytree(run(name), tmp_path / "small")
    manifest = folder / "checkpoints" / "step-000004" / "manifest.json"
    manifest.write_text("damaged")
    done = oncurve("train", "--resume", folder)
    assert (done.status, done.err) == (0, "")
    assert "goes on after step 2" in done.out
    found = compare(folder, run(name))
    assert found.identical, found.first_difference
    assert found.checkpoints == (2, 4)


def test_adaptive_sizes_spend_the_steps_budget(run):
    reader = RunReader(run("adaptive"))
    for step in reader.steps():
        found = sizes(reader.folder, step)
        assert sum(found.values()) == 2 * 4
        assert min(found.values()) >= 2
        for group in found:
            rows = [row for row in reader.step(step) if row.group == group]
            assert [row.index for row in rows] == list(range(len(rows)))
            weights = sum(row.weight * sum(row.mask) for row in rows)
            assert weights == pytest.approx(1 / 4)  # two groups a step, two steps an update
    assert [row["groups/rounds/num"] for row in reader.metrics() if "groups/rounds/num" in row] == [2] * 4


def test_resample_records_what_it_did_not_train_on(run):
    reader = RunReader(run("resample"))
    rows = [row for step in reader.steps() for row in reader.step(step)]
    silent = {(row.step, row.group) for row in rows if row.advantage == 0}
    for row in rows:
        spread = [r.value for r in rows if (r.step, r.group) == (row.step, row.group)]
        assert row.trained == (max(spread) - min(spread) > 0.02)
        assert bool(row.pass_logps) == row.trained
    assert silent
    metrics = {row["step"]: row for row in reader.metrics() if "groups/num" in row}
    events = {event["step"]: event["missing"] for event in reader.events() if event["kind"] == "groups_missing"}
    for step, row in metrics.items():
        trained = round(row["groups/trained/share"] * row["groups/num"])
        assert trained == 2 - events.get(step, 0)
        assert row["groups/num"] == len(sizes(reader.folder, step))


def test_where_everything_is_too_hard_it_trains_on_what_exists_and_says_so(oncurve, folder, tmp_path):
    options = [f"--runs_folder={tmp_path}", "--model.path=builtin:untrained", "--data.num_scenes=7"]
    options += ["--evaluate.every_steps=0", "--evaluate.num_tasks=2", "--objective.kl.beta=0.0"]
    done = oncurve("train", folder / "train.toml", *options, "--groups.no_signal={ type = 'resample', max_rounds = 2 }")
    assert (done.status, done.err) == (0, "")
    said = [line for line in done.out.splitlines() if "are missing after" in line]
    assert len(said) == 1
    assert (
        "step 1: 2 of 2 groups with a signal are missing after 3 rounds; it trains on the 0 that there are" in said[0]
    )
    reader = RunReader(tmp_path / "small")
    events = [event for event in reader.events() if event["kind"] == "groups_missing"]
    assert [(e["step"], e["missing"], e["rounds"]) for e in events] == [(n, 2, 3) for n in (1, 2, 3, 4)]
    assert len(sizes(reader.folder, 1)) == 6
    assert not any(row.trained for row in reader.step(1))


def test_hotter_answers_join_their_group_at_their_own_temperature(run):
    reader = RunReader(run("hotter"))
    more = [row for step in reader.steps() for row in reader.step(step) if row.index >= 4]
    assert more
    assert {round(row.temperature, 6) for row in more} <= {1.3, 1.69}
    for row in more:
        assert row.sampler_logps == pytest.approx(row.old_logps, abs=1e-4)  # both at the answer's own temperature


def test_a_ladder_in_the_record(run):
    for row in RunReader(run("ladder")).step(1):
        assert row.temperature == (0.7, 1.0, 1.3)[row.index % 3]
        assert row.sampler_logps == pytest.approx(row.old_logps, abs=1e-4)


def test_supervise_has_a_loss_where_a_group_is_silent(run):
    reader = RunReader(run("supervise"))
    rows = [row for row in reader.metrics() if "groups/num" in row]
    for update in (rows[:2], rows[2:]):
        assert ("policy/sft_loss" in update[-1]) == any(row["groups/no_signal/share"] for row in update)
    assert any("policy/sft_loss" in row for row in rows)


def test_oncurve_trace_follows_a_run_with_groups_that_did_not_train(run, oncurve):
    for name in ("resample", "adaptive", "hotter"):
        done = oncurve("trace", run(name), "--step", "2", "--json")
        assert done.status == 0, done.err
        assert json.loads(done.out)["step"] == 2
