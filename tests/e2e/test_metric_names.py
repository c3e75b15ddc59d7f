"""Every name of docs/metrics.md: a real run writes it, or the page says when it is absent; most are computed again here
from the answers that the run recorded.
"""

import itertools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev, variance

import numpy as np
import pytest

from oncurve.record.reader import RunReader

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
BETA, CLIP = 0.05, 0.2
PPO = """
name = "with_critic"
num_steps = 2
data = { type = "scenes", num_scenes = 2, max_things = 1 }
heldout = { type = "scenes", split = "heldout", num_scenes = 4 }
sampling = { prompts_per_step = 2, answers_per_prompt = 4 }
objective = { type = "ppo", passes = 2, importance_cap = 2.0, sft_weight = 0.1 }
evaluate = { every_steps = 0, num_tasks = 4 }
"""


def documented() -> Iterator[tuple[str, str]]:
    """Name and meaning. `/p50` is short for the name before it with another end."""
    section = ""
    for line in PAGE.read_text("utf-8").splitlines():
        section = line if line.startswith("## ") else section
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and section != "## Events":
            full = ""
            for name in re.findall("`([^`]+)`", cells[0]):
                full = full.rpartition("/")[0] + name if name.startswith("/") else name
                yield full, f"{section} {' '.join(cells[1:])}"


def pattern(name: str) -> str:
    return "".join("[^/]+" if part.startswith("<") else re.escape(part) for part in re.split("(<[^>]+>)", name))


@pytest.fixture(scope="module")
def with_critic(oncurve, folder, warmed):
    (folder / "ppo.toml").write_text(PPO)
    done = oncurve("train", folder / "ppo.toml", f"--runs_folder={folder}", f"--model.path={warmed}", "--no-audit")
    assert done.status == 0, done.err
    return folder / "with_critic"


@pytest.fixture(scope="module")
def written(run_folder, with_critic):
    rows = [row for path in (run_folder, with_critic) for row in RunReader(path).metrics()]
    return {name for row in rows for name in row} - {"step"}


def test_a_run_writes_every_documented_name_or_the_page_says_when_it_is_absent(written):
    names = dict(documented())
    assert len(names) > 60
    unwritten = [name for name in names if not any(re.fullmatch(pattern(name), found) for found in written)]
    assert [name for name in unwritten if "absent" not in names[name].lower()] == []


def test_every_written_name_is_documented(written):
    patterns = [pattern(name) for name, _ in documented()]
    assert [name for name in sorted(written) if not any(re.fullmatch(p, name) for p in patterns)] == []


def rows_by_group(rows):
    return [list(group) for _, group in itertools.groupby(rows, key=lambda row: row.group)]


def tokens_of(rows, column: str) -> np.ndarray:
    return np.array([value for row in rows for value in getattr(row, column)])


def passes_of(rows) -> list[np.ndarray]:
    return [np.array([v for row in rows for v in row.pass_logps[i]]) for i in range(2)]


def k3(d):
    return np.exp(d) - d - 1


def ratios(rows) -> list[np.ndarray]:
    return [np.exp(logps - tokens_of(rows, "old_logps")) for logps in passes_of(rows)]


def per_token(rows, value) -> np.ndarray:
    return np.array([value(row) for row in rows for _ in row.tokens])


def losses(rows) -> list[float]:
    """By docs/objectives.md: the sum over tokens of weight x (-min(r A, clip(r) A) + beta k3)."""
    weights, advantages = (per_token(rows, lambda row, n=name: getattr(row, n)) for name in ("weight", "advantage"))
    found = []
    for logps, r in zip(passes_of(rows), ratios(rows), strict=True):
        policy = -np.minimum(r * advantages, np.clip(r, 1 - CLIP, 1 + CLIP) * advantages)
        found.append(float((weights * (policy + BETA * k3(tokens_of(rows, "reference_logps") - logps))).sum()))
    return found


def clip_share(rows, binds) -> float:
    advantages = per_token(rows, lambda row: row.advantage)
    return float(np.mean([binds(r, advantages) for r in ratios(rows)]))


def repeated(tokens) -> float:
    grams = [tuple(tokens[i : i + 3]) for i in range(len(tokens) - 2)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def weights(rows) -> np.ndarray:
    return np.exp(tokens_of(rows, "old_logps") - tokens_of(rows, "sampler_logps"))


def silent_share(rows) -> float:
    return fmean(len({row.value for row in group}) == 1 for group in rows_by_group(rows))


def quantile(name: str, share: float):
    correct = {"": None, "_correct": True, "_wrong": False}[name]
    return lambda rows: np.quantile([len(r.tokens) for r in rows if correct is None or r.correct is correct], share)


def mean_length(correct: bool | None):
    return lambda rows: fmean(len(row.tokens) for row in rows if correct is None or row.correct is correct)


BY_HAND = {
    "reward/total/mean": lambda rows: fmean(row.value for row in rows),
    "reward/total/std_in_group": lambda rows: fmean(stdev(r.value for r in g) for g in rows_by_group(rows)),
    "reward/total/variance_in_group": lambda rows: fmean(variance(r.value for r in g) for g in rows_by_group(rows)),
    "reward/part/format/mean": lambda rows: fmean(json.loads(row.parts)["format"] for row in rows),
    "reward/part/iou/mean": lambda rows: fmean(json.loads(row.parts).get("iou", 0) for row in rows),
    "reward/part/similarity/mean": lambda rows: fmean(json.loads(row.parts).get("similarity", 0) for row in rows),
    "verifier/error/share": lambda rows: fmean(row.status == "error" for row in rows),
    "verifier/canary/flips": lambda rows: 0,
    "prompts/num": lambda rows: len({row.task_id for row in rows}),
    "groups/num": lambda rows: len(rows_by_group(rows)),
    "answers/num": len,
    "groups/size/mean": lambda rows: len(rows) / len(rows_by_group(rows)),
    "groups/no_signal/share": silent_share,
    "groups/duplicate_answers/share": lambda rows: (
        1 - sum(len({r.text for r in g}) for g in rows_by_group(rows)) / len(rows)
    ),
    "answers/length_tokens/mean": mean_length(None),
    "answers/length_tokens_correct/mean": mean_length(True),
    "answers/length_tokens_wrong/mean": mean_length(False),
    **{
        f"answers/length_tokens{name}/p{p}": quantile(name, p / 100)
        for name in ("", "_correct", "_wrong")
        for p in (50, 90)
    },
    "answers/truncated/share": lambda rows: fmean(row.stop == "length" for row in rows),
    "answers/invalid/share": lambda rows: fmean(row.status == "invalid" for row in rows),
    "answers/repetition/share": lambda rows: fmean(repeated(row.tokens) for row in rows),
    "policy/loss": lambda rows: fmean(losses(rows)),
    "policy/loss/pass/0": lambda rows: losses(rows)[0],
    "policy/loss/pass/1": lambda rows: losses(rows)[1],
    "policy/ratio/mean": lambda rows: np.mean(ratios(rows)),
    "policy/clip_low/share": lambda rows: clip_share(rows, lambda r, a: (r < 1 - CLIP) & (a < 0)),
    "policy/clip_high/share": lambda rows: clip_share(rows, lambda r, a: (r > 1 + CLIP) & (a > 0)),
    "policy/kl_reference/mean": lambda rows: np.mean(
        [k3(tokens_of(rows, "reference_logps") - logps) for logps in passes_of(rows)]
    ),
    "policy/learning_rate": lambda rows: 1e-3,
    "policy/skipped_updates/count": lambda rows: 0,
    "sampler/mismatch_kl/mean": lambda rows: np.mean(
        k3(tokens_of(rows, "old_logps") - tokens_of(rows, "sampler_logps"))
    ),
    "sampler/importance/mean": lambda rows: weights(rows).mean(),
    "sampler/effective_sample/share": lambda rows: (
        weights(rows).sum() ** 2 / (len(weights(rows)) * (weights(rows) ** 2).sum())
    ),
    "policy/ratio/first_pass_max_deviation": lambda rows: np.abs(weights(rows) - 1).max(),
    "sampler/policy_lag/max": lambda rows: 0,
}


def test_the_metrics_of_a_run_from_its_answers(run_folder):
    reader, compared = RunReader(run_folder), set()
    for metrics in reader.metrics():
        if "answers/num" in metrics:
            rows = reader.step(metrics["step"])
            for name in BY_HAND.keys() & metrics.keys():
                abs_error = 1e-7 if name.startswith("policy/loss") else 1e-12  # losses are summed in float32
                expected = pytest.approx(BY_HAND[name](rows), rel=1e-4, abs=abs_error)
                assert metrics[name] == expected, (metrics["step"], name)
                compared.add(name)
    assert compared == BY_HAND.keys()


def test_what_the_answers_do_not_say(run_folder):
    reader = RunReader(run_folder)
    for metrics in reader.metrics():
        if "answers/num" in metrics:
            seconds = sum(value for name, value in metrics.items() if name.startswith("time/"))
            tokens = metrics["answers/num"] * metrics["answers/length_tokens/mean"]
            assert metrics["throughput/tokens_per_s"] == pytest.approx(tokens / seconds)
            assert 0 < metrics["policy/entropy/mean"] < math.log(1000)
            assert 0 < metrics["tokens/distinct_share"] < 1
            assert metrics["verifier/latency_ms/p95"] > 0
            assert metrics["memory/peak_bytes"] > 1e8
        if "policy/grad_norm/before_clip" in metrics:
            before, after = (metrics[f"policy/grad_norm/{when}_clip"] for when in ("before", "after"))
            assert after == min(before, 1.0) > 0
