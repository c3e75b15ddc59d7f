"""A reward function that breaks in mid-run: the canaries see it, in the metrics and as events."""

from oncurve.record.reader import RunReader

FUNCTION = """
import re
from pathlib import Path

CALLS = Path(__file__).with_name("calls")

def score(task, answer):
    with CALLS.open("a") as file:
        file.write(".")
    box = re.fullmatch(r"<box>(.*),(.*),(.*),(.*)</box>", answer)
    right = bool(box) and max(abs(float(a) - b) for a, b in zip(box.groups(), task["truth"]["box"])) < 0.02
    return float(right) if CALLS.stat().st_size < 60 else 0.0
"""


def test_a_function_that_breaks_in_mid_run(oncurve, folder, warmed, tmp_path):
    (tmp_path / "own.py").write_text(FUNCTION)
    reward = f'--reward={{ type = "python", function = "{tmp_path}/own.py:score" }}'
    arguments = (f"--runs_folder={tmp_path}", f"--model.path={warmed}", "--no-audit", reward, "--num_steps=6")
    done = oncurve("train", folder / "train.toml", *arguments)
    assert done.status == 0, done.err
    reader = RunReader(tmp_path / "small")
    flips = {row["step"]: row["verifier/canary/flips"] for row in reader.metrics() if "verifier/canary/flips" in row}
    onset = min(step for step, count in flips.items() if count)
    assert 1 < onset <= 6
    assert [flips[step] for step in sorted(flips)] == [0] * (onset - 1) + [1] * (7 - onset)
    events = [event for event in reader.events() if event["kind"] == "canary_flip"]
    assert [event["step"] for event in events] == list(range(onset, 7))
    assert {(event["then"], event["verdict"], event["value"]) for event in events} == {("right", "wrong", 0.0)}
    (first,) = [event["first"] for event in reader.events() if event["kind"] == "canaries"]
    assert {event["answer"] for event in events} == {first[0]["answer"]}
