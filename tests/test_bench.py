"""The benches run: a step of each side on the recipe's shape, and Oncurve's side of the comparison with a peer."""

import json
import math
import subprocess
import sys

import pytest

from oncurve.config.rewards import KIND_RULES
from oncurve.types import Group, Score


def test_a_step_with_and_without_a_shared_prefix():
    command = [sys.executable, "bench/step.py", "--steps", "1", "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    shared, plain = (found["sides"][side]["tokens"] for side in ("shared", "plain"))
    assert shared["decoded"] == plain["decoded"]
    assert 2 < plain["update_forward"] / shared["update_forward"] < 8  # 8 answers of about 10 tokens to prompts of 75


@pytest.mark.parametrize("beta", [0.0, 0.04])
def test_our_side_of_the_peers(beta):
    shape = {"image_tokens": [4, 3], "answers": 3, "beta": beta, "new_tokens": 4, "threads": 1}
    shape |= {"micro_batch_tokens": 4096}
    does = ("step", "sample", "update", "plain_update", "arithmetic", "generate")
    lines = [{"shape": shape}, *({"do": do, "number": 1} for do in does)]
    command = [sys.executable, "bench/side_oncurve.py"]
    given = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run(command, input=given, check=True, capture_output=True, text=True)
    _, step, sample, update, plain, arithmetic, generate = map(json.loads, done.stdout.splitlines())
    assert step["seconds"] == pytest.approx(sum(step["stages"].values()))
    assert update["tokens_plain"] - update["tokens"] == 2 * (update["tokens"] - 12)  # three prompts for one
    assert arithmetic["linear"] > 0
    assert min(sample["seconds"], plain["seconds"], generate["seconds"]) > 0


def test_the_study_of_groups_goes_on_where_it_was_stopped(tmp_path):
    """Skipping groups without signal changes no number, and a run that is finished is not made again."""
    command = [sys.executable, "bench/groups.py", "--json", "--seeds", "1", "--steps", "2", "--runs-folder", tmp_path]
    command += ["--out", tmp_path / "groups.json", "--figure", tmp_path / "groups.png"]
    run = {"check": True, "capture_output": True, "text": True}
    one = json.loads(subprocess.run([*command, "--arms", "fixed"], **run).stdout)
    assert one["arms"]["fixed"]["budget_answers"] == 2 * 16 * 8
    done = subprocess.run([*command, "--arms", "fixed,skip"], **run)
    assert [line.split()[1] for line in done.stderr.splitlines()] == ["skip,"]
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "groups.json").read_text())
    assert found["arms"]["fixed"] == one["arms"]["fixed"]
    assert found["arms"]["skip"]["mean_iou over fixed"]["mean"] == pytest.approx(0, abs=1e-3)
    assert found["arms"]["skip"]["trained_groups"] < 1
    assert (tmp_path / "groups.png").stat().st_size > 1000


def test_intervals_and_budgets_by_hand():
    sys.path.insert(0, "bench")
    from arms import along, at_budget, interval

    assert interval([1.0, 2.0, 3.0]) == {"mean": 2.0, "plus_minus": pytest.approx(4.3027 / 3**0.5, rel=1e-4)}
    assert interval([1.0]) == {"mean": 1.0}
    curve = [{"answers": 0, "v": 0.5}, {"answers": 100, "v": 0.7}, {"answers": 300, "v": 0.9}]
    assert at_budget(curve, 200, "v") == pytest.approx(0.8)
    assert along(curve, 200, "v") == pytest.approx((0.6 * 100 + 0.75 * 100) / 200)


def test_the_conformal_rule_by_hand(text_task, rollout):
    """Of 4 tasks one is never solved: delta = 1/4 + 0.05, so the ceil(5 x 0.7) = 4th smallest of the four scores."""
    sys.path.insert(0, "bench")
    from conformal import first_success, quantiles

    def group(first: int | None) -> Group:
        scores = tuple(Score("scored", float(first is not None and i + 1 == first)) for i in range(16))
        return Group(text_task(), tuple(rollout("t", i) for i in range(16)), scores, "")

    assert [first_success(group(3), size) for size in (2, 4, 8)] == [math.inf, 3 / 4, 3 / 8]
    found = quantiles([group(1), group(2), group(4), group(None)])
    assert found == {2: 1.0, 4: 1.0, 8: 1.0, 16: 1.0}
    easier = quantiles([group(1), group(1), group(2), group(4)])  # delta 0.05: the 5th of four, so the largest
    assert easier == {2: 1.0, 4: 1.0, 8: 0.5, 16: 0.25}


def test_verdicts_a_second_of_every_kind():
    command = [sys.executable, "bench/rewards.py", "--rounds", "1", "--scale", "0", "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["verdicts_per_s"]
    assert {name.partition(",")[0] for name in found} == set(KIND_RULES)
    assert all(one["verdicts_per_s"] > 0 for one in found.values())
    assert found["code"]["test_executions_per_s"] == pytest.approx(5 * found["code"]["verdicts_per_s"])
