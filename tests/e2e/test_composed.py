"""Training on a composed reward: its breakdown in record and metrics, and parts normalised before they are added."""

import json

import numpy as np
import pytest

from oncurve.advantage import advantages
from oncurve.record.reader import RunReader

REWARD = """
[reward]
type = "compose"
normalise = "NORMALISE"
[[reward.parts]]
name = "iou"
rules = { type = "grounding", power = 1.0 }
invalid = "zero"
[[reward.parts]]
name = "format"
rules = { type = "grounding" }
take = "format"
weight = 0.2
invalid = "zero"
"""


@pytest.mark.parametrize("normalise", ["after", "before"])
def test_a_run_on_a_composed_reward(oncurve, folder, warmed, normalise):
    config = folder / f"composed_{normalise}.toml"
    plain = (folder / "train.toml").read_text().replace('"small"', f'"composed_{normalise}"')
    config.write_text(plain + REWARD.replace("NORMALISE", normalise))
    done = oncurve("train", config, f"--runs_folder={folder}", f"--model.path={warmed}")
    assert done.status == 0, done.err
    reader = RunReader(folder / f"composed_{normalise}")
    rows = [row for step in (1, 2) for row in reader.step(step)]
    parts = np.array([[json.loads(row.parts)[name] for name in ("iou", "format")] for row in rows])
    assert parts.sum(1) == pytest.approx([row.value for row in rows])
    step = next(row for row in reader.metrics() if row["step"] == 1 and "reward/total/mean" in row)
    assert step["reward/part/format/mean"] == pytest.approx(parts[:8, 1].mean())
    groups = [parts[i : i + 4] for i in range(0, len(rows), 4)]
    if normalise == "after":
        expected = np.concatenate([advantages(group.sum(1)) for group in groups])
    else:
        sums = [advantages(group[:, 0]) + 0.2 * advantages(group[:, 1]) for group in groups]
        expected = advantages(np.concatenate(sums))
    assert [row.advantage for row in rows] == pytest.approx(expected.tolist())
    assert oncurve("rescore", reader.folder, "--json").out.count('"num_changed": 0')
