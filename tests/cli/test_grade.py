"""`oncurve grade`: one Score a line, rows that are refused with their place, and a table for people."""

import json

import pytest

from oncurve.cli.main import main

RIGHT = {"kind": "grounding", "truth": {"box": [0.25, 0.25, 0.75, 0.75]}, "answer": "<box>0.25,0.25,0.50,0.75</box>"}


@pytest.fixture
def graded(tmp_path, capsys):
    def run(*rows, json_lines=True):
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        status = main(["grade", str(path), *(["--json"] if json_lines else [])])
        return status, *capsys.readouterr()

    return run


def test_one_score_a_line_in_the_files_order(graded):
    rows = [
        {**RIGHT, "id": 7, "prompt": "box [the] cat"},
        {**RIGHT, "answer": "cat"},
        {**RIGHT, "options": {"power": 1.0}},
    ]
    status, out, _ = graded(*rows)
    first, second, third = map(json.loads, out.splitlines())
    assert status == 0
    assert first == {
        "id": 7, "prompt": "box [the] cat", "status": "scored", "value": 0.25, "correct": True,
        "parts": {"format": 1.0, "iou": 0.5, "similarity": 0.25}, "extracted": [0.25, 0.25, 0.5, 0.75],
        "evidence": "IoU 0.50 with the truth", "reason": "", "verifier": "grounding/1",
    }  # fmt: skip
    assert (second["status"], second["value"], second["reason"]) == ("invalid", 0.0, "syntax")
    assert third["value"] == 0.5


def test_the_answer_may_be_called_text(graded):
    row = {key: value for key, value in RIGHT.items() if key != "answer"}
    assert json.loads(graded({**row, "text": RIGHT["answer"]})[1])["value"] == 0.25


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            '{"kind": "counting", "truth": {"count": 3, "count": 4}, "answer": "3"}',
            "the key 'count' stands in an object",
        ),
        ('{"kind": "counting", "truth": {"count": 3}, "answer": "3", "answer": "4"}', "the key 'answer' stands in an"),
        ('{"kind": "math", "truth": {"answer": "3"}, "answer": "3", "options": {"timeout_s": 1e999}}', "1e999 is too"),
        ('{"kind": "code", "truth": {"entry_point": "f", "tests": [{"result": NaN}]}, "answer": "x"}', "NaN is no"),
        ('{"kind": "counting", "truth": {"count": 3}, "answer": "3", "options": {"floor": null}}', "options.floor: "),
    ],
)
def test_json_that_means_two_things_or_none_is_an_error_of_the_row(tmp_path, capsys, line, words):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"\n{line}\n")
    assert main(["grade", str(path), "--json"]) == 2
    out, err = capsys.readouterr()
    assert (out, "rows.jsonl:2: " in err, words in err) == ("", True, True)


def test_a_verifier_that_fails_on_a_truth_leaves_no_traceback(graded, monkeypatch):
    monkeypatch.setattr("oncurve.rewards.grounding.check_model_size", lambda task, rules: 1 / 0)
    status, out, err = graded(RIGHT)
    assert (status, out) == (2, "")
    assert "rows.jsonl:1: the verifier fails on it: ZeroDivisionError" in err


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({**RIGHT, "kind": "boxing"}, "rows.jsonl:2: kind: 'boxing' is unknown"),
        (
            {**RIGHT, "anwser": ""},
            "rows.jsonl:2: anwser: unknown key; allowed are kind, truth, id, prompt, images, options, category, answer",
        ),
        ({**RIGHT, "options": {"dialect": "yaml"}}, "rows.jsonl:2: options.dialect: "),
        ({**RIGHT, "options": {"powr": 1}}, "rows.jsonl:2: options.powr: no such option; allowed are"),
        ({**RIGHT, "truth": {"box": [0, 0, 0, 1]}}, "rows.jsonl:2: truth.box: "),
        ({"kind": "grounding", "truth": RIGHT["truth"]}, "rows.jsonl:2: answer: the text of one answer is needed"),
        ({**RIGHT, "answer": 3}, "rows.jsonl:2: answer: the text of one answer is needed"),
    ],
)
def test_a_row_that_cant_be_graded_is_an_error_of_the_row(graded, row, words):
    status, out, err = graded(RIGHT, row)
    assert (status, out) == (2, "")
    assert words in err


def test_all_broken_rows_are_named(graded):
    _, _, err = graded(*[{**RIGHT, "kind": "boxing"}] * 30)
    assert err.count("is unknown") == 20
    assert "… and 10 more" in err


def test_the_table(graded):
    status, out, _ = graded(RIGHT, {**RIGHT, "answer": "[red]cat"}, json_lines=False)
    assert status == 0
    assert "0.25" in out
    assert "[red]cat" in out
