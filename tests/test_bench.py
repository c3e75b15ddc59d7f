"""The benches run: a step of each side on the recipe's shape, and Oncurve's side of the comparison with a peer."""

import json
import subprocess
import sys

import pytest

from oncurve.config.rewards import KIND_RULES


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


def test_verdicts_a_second_of_every_kind():
    command = [sys.executable, "bench/rewards.py", "--rounds", "1", "--scale", "0", "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["verdicts_per_s"]
    assert {name.partition(",")[0] for name in found} == set(KIND_RULES)
    assert all(one["verdicts_per_s"] > 0 for one in found.values())
    assert found["code"]["test_executions_per_s"] == pytest.approx(5 * found["code"]["verdicts_per_s"])
