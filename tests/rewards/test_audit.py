"""The audit's own judgement: what it must find in broken rewards, what it must not find in sound ones, and its reports."""

import json
import runpy
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from oncurve.cli.main import main
from oncurve.config.rewards import GroundingRules, PythonRules
from oncurve.config.schema import ScenesData
from oncurve.errors import BrokenReward
from oncurve.geometry.boxes import iou
from oncurve.rewards.audit.attack import Yardstick, exploits, no_gain, not_correct, part_zero, refused, worth
from oncurve.rewards.audit.boxes import grid
from oncurve.rewards.audit.checks import summed
from oncurve.rewards.audit.finding import words
from oncurve.rewards.audit.numbers import numbers_of, respelled, with_numbers
from oncurve.rewards.audit.page import page
from oncurve.rewards.audit.run import audit, by_kind, refuse_broken
from oncurve.rewards.audit.words import tags_of
from oncurve.rewards.audit.written import series_of
from oncurve.rewards.grader import LocalGrader
from oncurve.tasks.sets import load_tasks
from oncurve.truths import BoxTruth, CountTruth, MathTruth
from oncurve.types import Message, Score, Task

ROOT = Path(__file__).parents[2]
RULES = GroundingRules()
ROW = {"exploit", "kind", "applies", "verdict", "right", "ok", "example"}
BOX_FUNCTION = """
import re

def read(text):
    found = re.fullmatch(r"<box>([0-9.]+),([0-9.]+),([0-9.]+),([0-9.]+)</box>", text)
    return tuple(map(float, found.groups())) if found else None

def iou(a, b):
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(0, width) * max(0, height)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)
"""


@pytest.fixture(scope="module")
def scenes():
    return load_tasks(ScenesData(num_scenes=40))


@pytest.fixture(scope="module")
def sound(scenes):
    return audit(LocalGrader(RULES), RULES, scenes)


def audited(tmp_path, source: str, tasks) -> dict:
    (tmp_path / "own.py").write_text(source)
    rules = PythonRules(type="python", function=f"{tmp_path}/own.py:score", timeout_s=5.0)
    return {finding.exploit: finding for finding in audit(LocalGrader(rules), rules, tasks, quick=True)}


def broken(findings: dict) -> set[str]:
    return {name for name, finding in findings.items() if not finding.ok}


def test_the_default_reward_passes_and_every_exploit_has_its_row(sound):
    assert [finding.exploit for finding in sound if not finding.ok] == []
    applied = {finding.exploit for finding in sound if finding.applies}
    assert applied >= {"giant_box", "many_boxes", "not_a_number", "json_traps", "constant", "do_nothing", "known_right"}
    assert not applied & {"exit_zero", "sql_bomb", "negation", "duplicate_boxes"}
    assert len(sound) == len(exploits()) + 5  # the list, and the checks


def test_what_the_worst_answers_got(sound):
    found = {finding.exploit: finding for finding in sound}
    giant = found["giant_box"].example
    assert giant.text == "<box>0.00,0.00,1.00,1.00</box>"
    assert found["giant_box"].verdict == words(giant.score)
    assert giant.score.value == pytest.approx(giant.score.parts["iou"] ** 2)
    assert found["many_boxes"].verdict == "invalid (repeated_tags)"
    assert found["known_right"].example.score.correct
    assert found["sensitivity"].num_attacks == 8 * 3


def test_a_function_that_reads_strictly_passes(tmp_path, scenes):
    source = BOX_FUNCTION + (
        "def score(task, text):\n    box = read(text)\n"
        "    if not box or not (0 <= box[0] < box[2] <= 1 and 0 <= box[1] < box[3] <= 1):\n        return 0.0\n"
        "    return iou(box, task['truth']['box'])\n"
    )
    assert broken(audited(tmp_path, source, scenes)) == set()


def test_a_sum_with_a_big_part_for_the_format_is_found(tmp_path, scenes):
    source = BOX_FUNCTION + (
        "def score(task, text):\n    box = read(text)\n"
        "    if not box or not (0 <= box[0] < box[2] <= 1 and 0 <= box[1] < box[3] <= 1):\n        return 0.0\n"
        "    right = iou(box, task['truth']['box'])\n"
        "    return {'value': 2 + right, 'correct': right >= 0.5, 'parts': {'format': 2.0, 'iou': right}}\n"
    )
    found = audited(tmp_path, source, scenes)
    assert broken(found) == {"correctness_pays_most"}
    assert found["correctness_pays_most"].verdict.startswith("well formed +2, right +0.9")


def test_a_part_that_pulls_the_other_way_is_found(tmp_path, scenes):
    source = BOX_FUNCTION + (
        "def score(task, text):\n    box = read(text)\n"
        "    if not box or not (0 <= box[0] < box[2] <= 1 and 0 <= box[1] < box[3] <= 1):\n        return 0.0\n"
        "    right = iou(box, task['truth']['box'])\n"
        "    return {'value': right, 'correct': right >= 0.5, 'parts': {'far': 1 - right, 'iou': right}}\n"
    )
    found = audited(tmp_path, source, scenes)
    assert broken(found) == {"parts_agree"}
    assert found["parts_agree"].verdict == "lowest -1.00: far and iou"


def test_a_reward_that_grows_away_from_the_truth_is_found(tmp_path, scenes):
    source = BOX_FUNCTION + (
        "def score(task, text):\n    box = read(text)\n"
        "    if not box or not (0 <= box[0] < box[2] <= 1 and 0 <= box[1] < box[3] <= 1):\n        return 0.0\n"
        "    return 1 - abs(iou(box, task['truth']['box']) - 0.7)\n"
    )
    found = audited(tmp_path, source, scenes)
    assert "sensitivity" in broken(found)
    assert found["sensitivity"].example.score.value > 0.9


def test_a_reward_for_doing_nothing_is_found(tmp_path, scenes):
    source = BOX_FUNCTION + (
        "def score(task, text):\n    box = read(text)\n"
        "    if not box or not (0 <= box[0] < box[2] <= 1 and 0 <= box[1] < box[3] <= 1):\n        return 0.5\n"
        "    return iou(box, task['truth']['box'])\n"
    )
    found = audited(tmp_path, source, scenes)
    assert "do_nothing" in broken(found)
    assert found["do_nothing"].verdict == "a broken answer pays 0.5, the least of a scored one is 0"


def test_an_answer_that_makes_the_function_fail_is_found(tmp_path, scenes):
    found = audited(tmp_path, "def score(task, text):\n    return float(text.split(',')[1])\n", scenes)
    assert not found["empty_answer"].ok
    assert found["empty_answer"].verdict == "error (raised)"
    assert found["empty_answer"].row()["example"]["score"]["value"] is None


def test_a_function_that_evaluates_answers_is_found(tmp_path):
    tasks = [Task(f"t/{n}", "counting", (Message("user", "how many?"),), CountTruth(n)) for n in (3, 4)]
    source = (
        "def score(task, text):\n    try:\n        return float(eval(text) == task['truth']['count'])\n"
        "    except BaseException:\n        return 0.0\n"
    )
    found = audited(tmp_path, source, tasks)
    assert "grader_eval" in broken(found)


def test_tasks_that_one_answer_solves_are_found(text_task):
    tasks = [text_task(f"t/{i}", box=(0.2, 0.3, 0.6, 0.7 + i / 1000)) for i in range(2)]
    [same] = [f for f in audit(LocalGrader(RULES), RULES, [tasks[0]] * 2, quick=True) if f.exploit == "constant"]
    assert same.verdict == "best constant answer 1, honest ones 1: lift +0"
    assert same.ok  # there is but one truth
    tasks += [text_task("t/2", box=(0.2, 0.3, 0.6, 0.71))]
    [constant] = [f for f in audit(LocalGrader(RULES), RULES, tasks, quick=True) if f.exploit == "constant"]
    assert not constant.ok
    assert constant.verdict.startswith("best constant answer 0.9")


def test_the_quick_audit_leaves_out_the_bombs(tmp_path):
    tasks = [
        Task("t/0", "math", (Message("user", "?"),), MathTruth("4")),
        Task("t/1", "math", (Message("user", "?"),), MathTruth("9")),
    ]
    found = audited(tmp_path, "def score(task, text):\n    return float(task['truth']['answer'] in text)\n", tasks)
    assert found["expression_bomb"].verdict == "left out of a quick audit"
    assert {"multi_answer", "equation_chain", "negation"} <= broken(found)


def test_training_refuses_what_the_quick_audit_breaks(tmp_path, scenes):
    refuse_broken(LocalGrader(RULES), RULES, scenes)
    (tmp_path / "own.py").write_text("def score(task, text):\n    return float('<box>' in text)\n")
    rules = PythonRules(type="python", function=f"{tmp_path}/own.py:score")
    with pytest.raises(BrokenReward, match=r"(?s)known_wrong \(grounding\): scored 1; .*--no-audit"):
        refuse_broken(LocalGrader(rules), rules, scenes)


def test_by_kind_looks_over_the_whole_set(text_task):
    counting = Task("c", "counting", (Message("user", "?"),), CountTruth(1))
    tasks = [text_task(f"t/{i}") for i in range(600)] + [replace(counting, id=f"c/{i}") for i in range(300)]
    found = by_kind(tasks, 4)
    assert [task.id for task in found["grounding"]] == ["t/0", "t/4", "t/8", "t/12"]
    assert [task.id for task in found["counting"]] == ["c/0", "c/4", "c/8", "c/12"]
    assert by_kind(tasks, 4, "grounding").keys() == {"grounding"}


YARD = Yardstick(right=1.0, wrong=0.1, nothing=0.0, own=False)


@pytest.mark.parametrize(
    ("judge", "score", "right"),
    [
        (refused, Score("invalid", 0.0, False), True),
        (refused, Score("scored", 0.0, False), False),
        (not_correct, Score("scored", 0.9, False), True),
        (not_correct, Score("scored", 1.0, False), False),
        (not_correct, Score("scored", 0.2, True), False),
        (not_correct, Score("scored", 0.54), True),
        (not_correct, Score("scored", 0.56), False),
        (no_gain, Score("scored", 1.0, True), True),
        (no_gain, Score("scored", 1.1, True), False),
        (worth(0.25), Score("scored", 0.25, False), True),
        (worth(0.25), Score("scored", 0.3, False), False),
        (part_zero("format"), Score("scored", 1.0, True, {"format": 0.0}), True),
        (part_zero("format"), Score("scored", 1.0, True, {"choice/format": 1.0}), False),
        (part_zero("format"), Score("invalid", 0.0, False), True),
    ],
)
def test_judges(judge, score, right):
    assert judge(score, YARD) is right


def test_a_function_without_statuses_is_held_to_what_it_pays():
    own = replace(YARD, own=True)
    assert refused(Score("scored", 0.1), own)
    assert not refused(Score("scored", 0.2), own)
    assert not refused(Score("scored", 0.0, True), own)


def test_the_worst_stands_for_all(text_task):
    case = type("Case", (), {"task": text_task("t")})()
    found = [
        (case, "a", Score("scored", 0.2, False), True),
        (case, "long and won", Score("scored", 0.9, True), False),
        (case, "won", Score("scored", 0.9, True), False),
        (case, "b", Score("scored", 1.0, False), True),
    ]
    finding = summed("x", "grounding", "", "", found)
    assert (finding.example.text, finding.verdict, finding.ok) == ("won", "scored 0.9, correct", False)
    assert (finding.num_attacks, finding.num_wrong) == (4, 2)
    assert summed("x", "grounding", "", "", []).applies is False


def test_numbers_of_an_answer_and_not_of_its_keys():
    text = '[{"bbox_2d": [100, 200.5, -3, 4], "label": "cat"}]'
    assert numbers_of(text) == ["100", "200.5", "-3", "4"]
    assert with_numbers(text, {0: "7", 3: "nan"}) == '[{"bbox_2d": [7, 200.5, -3, nan], "label": "cat"}]'
    assert numbers_of("<loc0123><loc0456> cat") == ["0123", "0456"]
    assert numbers_of("cat<loc_12><loc_34>") == ["12", "34"]
    assert respelled("<box>0.2,0.3</box>", lambda number: number + "!", 1) == "<box>0.2,0.3!</box>"


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("<box>1,2</box>", ("<box>", "</box>")),
        ("\\boxed{3}", ("\\boxed{", "}")),
        ("```sql\nSELECT 1\n```", ("```sql\n", "\n```")),
        ("[{}]", ("[", "]")),
        ("plain", ("", "")),
    ],
)
def test_tags(text, tags):
    assert tags_of(text) == tags


def test_series_move_away_from_the_truth_step_by_step():
    for box in ((0.2, 0.3, 0.6, 0.7), (0.0, 0.0, 0.3, 1.0), (0.5, 0.1, 0.98, 0.6)):
        for series in series_of(box):
            overlaps = [iou(box, moved) for moved in series]
            assert overlaps[0] == pytest.approx(1.0)
            assert all(a > b or a == b == 0 for a, b in pairwise(overlaps))


def test_the_grid_covers_the_image_with_144_boxes():
    boxes = grid()
    assert len(set(boxes)) == 144
    assert (min(b[0] for b in boxes), max(b[2] for b in boxes)) == (0.0, 1.0)
    assert max(iou(box, (0.3, 0.3, 0.55, 0.55)) for box in boxes) > 0.6


def test_the_command_prints_rows(capsys, recipe):
    assert main(["audit", recipe, "--json", "--quick", "--fail-on", "exploit"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(row.keys() == ROW for row in rows)
    giant = next(row for row in rows if row["exploit"] == "giant_box")
    assert (giant["kind"], giant["applies"], giant["ok"]) == ("grounding", True, True)
    assert giant["example"]["score"]["status"] == "scored"
    assert next(row for row in rows if row["exploit"] == "sql_bomb")["applies"] is False


def test_the_command_fails_on_an_exploit_only_when_asked(capsys, recipe, tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text("def score(task, text):\n    return float('box' in text)\n")
    monkeypatch.chdir(tmp_path)
    few = ["--data.num_scenes=6", "--data.type=scenes", "--limit=2"]
    broken = ["audit", recipe, "--quick", *few, '--reward={ type = "python", function = "own.py:score" }']
    assert main(broken) == 0
    out = capsys.readouterr().out
    assert "BROKEN" in out
    assert "a model will find them" in out
    assert main([*broken, "--fail-on", "exploit", "--html", "audit.html"]) == 1
    assert (tmp_path / "audit.html").read_text().count("BROKEN") > 3
    assert main([*broken, "--html", "nowhere/audit.html"]) == 2
    assert "--html nowhere/audit.html" in capsys.readouterr().err


@pytest.fixture
def recipe() -> str:
    return str(ROOT / "recipes/dapo.toml")


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.sources = [], []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_escapes_answers(sound):
    hostile = replace(sound[0], ok=False, example=replace(sound[0].example, text="<script>alert(1)</script>"))
    text = page("a & b", [hostile, *sound[1:]])
    reader = Tags()
    reader.feed(text)
    assert (reader.open, reader.sources) == ([], [])
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "a &amp; b" in text
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_a_dialect_in_pixels_is_written_for_the_model_size(text_task):
    rules = GroundingRules(dialect="qwen2_5_vl", model_size=(640, 480))
    tasks = [replace(text_task(f"t/{i}"), truth=BoxTruth((0.1 * i, 0.2, 0.1 * i + 0.3, 0.6))) for i in range(3)]
    found = {f.exploit: f for f in audit(LocalGrader(rules), rules, tasks, quick=True)}
    assert [name for name, finding in found.items() if not finding.ok] == []
    assert found["known_right"].example.score.value == pytest.approx(1.0)
    assert found["giant_box"].example.text == '```json\n[{"bbox_2d": [0, 0, 640, 480], "label": "object"}]\n```'


@pytest.mark.parametrize(
    ("rules", "right"),
    [
        (GroundingRules(floor=-5.0), True),  # a fine
        (GroundingRules(format_bonus=1.0), True),
        (GroundingRules(format_bonus=1.3), False),
        (GroundingRules(format_bonus=1.3, floor=1.3), True),
    ],
)
def test_what_the_format_may_pay(rules, right, scenes):
    found = {f.exploit: f for f in audit(LocalGrader(rules), rules, scenes, quick=True)}
    assert found["correctness_pays_most"].ok is right
    assert broken(found) <= {"correctness_pays_most"}


@pytest.mark.parametrize(
    ("name", "wins"),
    [
        ("iou_by_search", {"multi_answer", "unicode_digits", "giant_box", "repeated_tags", "length_padding"}),
        ("substring", {"multi_answer", "negation", "retract", "equation_chain", "echo_expression", "unit_swap"}),
        ("row_sets", {"known_wrong", "sql_cheat"}),
        ("exit_code", {"exit_zero", "always_equal", "harness_patch", "write_reward", "grader_eval"}),
    ],
)
def test_what_it_finds_in_common_rewards(name, wins):
    """As docs/audit.md says."""
    example = runpy.run_path(str(ROOT / "examples/audit_common_rewards.py"))
    found = {finding.exploit: finding for finding in example["findings_of"](name, quick=True, limit=1)}
    assert broken(found) >= wins
    assert found["known_right"].ok
