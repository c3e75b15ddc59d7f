"""`oncurve doctor` on bare metrics files: what it prints, its JSON, its exit status, and how it refuses what is none."""

import json

import pytest

from oncurve.cli.main import main
from oncurve.monitor.synthetic import healthy, planted


@pytest.fixture
def write(tmp_path):
    def write(rows) -> str:
        path = tmp_path / "metrics.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


def test_json_is_one_list_of_verdicts(write, capsys):
    rows, onset = planted("cap_hit", 0)
    status = main(["doctor", "--metrics", write(rows), "--json"])
    found = {verdict["verdict"]: verdict for verdict in json.loads(capsys.readouterr().out)}
    assert {"verdict", "severity", "onset_step", "detected_step", "evidence", "cleared_step"} == {*found["cap_hit"]}
    assert abs(found["cap_hit"]["onset_step"] - onset) <= 20
    assert status == {"warning": 1, "critical": 3}[found["cap_hit"]["severity"]]


def test_text_says_what_to_do(write, capsys):
    rows, _ = planted("cap_hit", 0)
    main(["doctor", "--metrics", write(rows)])
    out = capsys.readouterr().out
    assert "cap_hit" in out
    assert "to do: raise sampling.max_new_tokens" in out


def test_a_healthy_run_is_said_to_be_so(write, capsys):
    assert main(["doctor", "--metrics", write(healthy(0))]) == 0
    assert "nothing to warn of" in capsys.readouterr().out


def test_rows_in_any_order_and_a_last_line_without_newline(tmp_path, capsys):
    rows, _ = planted("cap_hit", 0)
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in reversed(rows)))
    assert main(["doctor", "--metrics", str(path), "--json"]) in (1, 3)
    assert "cap_hit" in capsys.readouterr().out


def test_nan_in_the_file_is_a_value_that_is_not_finite(tmp_path, capsys):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 7, "policy/grad_norm/before_clip": NaN}\n')
    assert main(["doctor", "--metrics", str(path), "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found[0]["verdict"], found[0]["onset_step"]) == ("gradient_spike", 7)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"step": 1}\nnonsense\n', "metrics.jsonl:2 is no JSON object"),
        ("[1, 2]\n", "metrics.jsonl:1 is no JSON object"),
        ('{"reward/total/mean": 0.4}\n', 'metrics.jsonl:1 has no whole number "step"'),
        ('{"step": 1.5}\n', 'metrics.jsonl:1 has no whole number "step"'),
        ('{"step": NaN}\n', 'metrics.jsonl:1 has no whole number "step"'),
    ],
)
def test_what_is_no_metrics_file_is_refused(tmp_path, capsys, content, words):
    (tmp_path / "metrics.jsonl").write_text(content)
    assert main(["doctor", "--metrics", str(tmp_path / "metrics.jsonl")]) == 2
    assert words in capsys.readouterr().err


def test_one_thing_is_looked_at(tmp_path, capsys):
    assert main(["doctor"]) == 2
    assert main(["doctor", str(tmp_path), "--metrics", "x.jsonl"]) == 2
    assert main(["doctor", "--metrics", str(tmp_path / "none.jsonl")]) == 2
    assert main(["doctor", str(tmp_path)]) == 2
    assert "is no run folder" in capsys.readouterr().err
