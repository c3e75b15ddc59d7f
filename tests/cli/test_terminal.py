"""What a run shows: columns that line up, fit a narrow terminal, and never make a number up."""

import re
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from oncurve.cli.terminal import Terminal, clock, heading, step_line
from oncurve.config.schema import ScenesData, TrainConfig
from oncurve.policy.check import PrefixCheck
from oncurve.tasks.sets import load_tasks

METRICS = {
    "reward/total/mean": 0.3456,
    "reward/total/std_in_group": 0.125,
    "groups/no_signal/share": 0.25,
    "answers/invalid/share": 0.125,
    "answers/length_tokens/mean": 10.25,
    "policy/grad_norm/before_clip": 1.5,
    "throughput/tokens_per_s": 12345.6,
    "time/sample_s": 0.5,
    "time/update_s": 1.25,
}


def test_a_line_under_its_heading():
    words = step_line(12, 600, METRICS | {"left_s": 754.0}).split()
    assert words == [
        "12/600",
        "0.346",
        "±",
        "0.125",
        "0.25",
        "0.88",
        "10.2",
        "-",
        "1.50",
        "12,346",
        "12:34",
        "0.50",
        "-",
        "1.25",
        "-",
    ]  # KL, grade, record
    top = heading(600)
    assert re.split("  +", top.strip()) == [
        *("step", "reward ± std", "no signal", "valid", "length", "KL", "|grad|", "tok/s", "left"),
        *("sample s", "grade s", "update s", "record s"),
    ]


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 999), st.integers(40, 200), st.sets(st.sampled_from(sorted(METRICS))))
def test_lines_and_heading_are_of_one_length_and_fit(num_steps, width, missing):
    metrics = {name: value for name, value in METRICS.items() if name not in missing - {"answers/invalid/share"}}
    for steps in (1, num_steps):
        line = step_line(steps, num_steps, metrics | {"left_s": 3.0}, width)
        assert len(line) == len(heading(num_steps, width)) <= width
    assert "left" in heading(num_steps, 80)


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (754, "12:34"), (3661, "1:01:01")])
def test_clock(seconds, text):
    assert clock(seconds) == text


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_nothing_wraps_and_the_bar_goes_away(width):
    file = StringIO()
    config = TrainConfig(num_steps=30, accumulate_steps=2)
    tasks = load_tasks(ScenesData(num_scenes=20))
    with Terminal(Console(file=file, force_terminal=True, width=width, color_system=None)) as terminal:
        terminal.started(config, Path("runs/a"), PrefixCheck(False, "some layers slide", None, None), tasks, tasks)
        for step in range(1, 31):
            terminal.stepped(step, METRICS)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    lines = [line.split("\r")[-1] for line in text.replace("\r\n", "\n").split("\n")]
    steps = [line for line in lines if re.match(r" ?\d+/30 ", line)]
    assert [int(line.split("/")[0]) for line in steps] == list(range(1, 31))
    assert sum(line.startswith(" step ") for line in lines) == 2  # the heading comes again after twenty lines
    assert max(map(len, steps)) <= width
    assert all("/30  plain rows  0.346" in line for line in steps)
    assert any("NOT shared" in line and "some layers slide" in line for line in lines)
    assert "an update takes 2 steps" in text
    assert not lines[-1].strip()


def test_rows_that_are_shared_need_no_mark():
    file = StringIO()
    tasks = load_tasks(ScenesData(num_scenes=2))
    with Terminal(Console(file=file, width=100)) as terminal:
        terminal.started(TrainConfig(), Path("runs/a"), PrefixCheck(True, None, 1e-6, 1e-6), tasks, tasks)
        terminal.stepped(1, METRICS)
    assert "plain rows  " not in file.getvalue()
    assert "1/200  0.346" in file.getvalue()
