"""The metrics of a step: two groups by hand, then each cause of a group without signal."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncurve.monitor.metrics import repetition, step_metrics, why_no_signal
from oncurve.types import Batch, Group, Score


def scored(value: float) -> Score:
    return Score("scored", value, value >= 0.5, {"format": 1.0, "iou": value})


INVALID = Score("invalid", 0.0, False, {"format": 0.0}, reason="syntax")
EMPTY = Score("invalid", 0.0, False, {"format": 0.0}, reason="empty")


@pytest.fixture
def group(text_task, rollout):
    """`group(scores, texts, tokens)`: one group of a task of its own."""

    def make(scores, texts=None, tokens=None, task_id="t", stops=None):
        texts = texts or [f"answer {i}" for i in range(len(scores))]
        tokens = tokens or [(1, 2)] * len(scores)
        stops = stops or ["end"] * len(scores)
        rollouts = tuple(
            rollout(task_id, i, tokens=t, text=text, stop=stop)
            for i, (text, t, stop) in enumerate(zip(texts, tokens, stops, strict=True))
        )
        return Group(text_task(task_id), rollouts, tuple(scores), "")

    return make


def test_two_groups_by_hand(group, failed):
    first = group(
        [scored(0.9), scored(0.3), INVALID],
        tokens=[(1, 2, 3, 4), (1, 2), (5, 5, 5, 5, 5, 5)],
        texts=["a", "b", "b"],
        stops=["end", "end", "length"],
    )
    second = group([scored(0.6), scored(0.6), failed], tokens=[(1,), (2,), (3, 4)], task_id="u")
    metrics = step_metrics(Batch(1, (first, second), ((0.0,) * 3, (0.0,) * 3)))
    deviation = math.sqrt((0.5**2 + 0.1**2 + 0.4**2) / 2)
    assert metrics == pytest.approx(
        {
            "verifier/error/share": 1 / 6,
            "reward/total/mean": 2.4 / 5,
            "reward/part/format/mean": 4 / 5,
            "reward/part/iou/mean": 2.4 / 5,
            "reward/total/std_in_group": deviation / 2,
            "reward/total/variance_in_group": deviation**2 / 2,
            "reward/total/std_of_distinct": math.sqrt(2 * 0.3**2) / 2,  # 0.9 and 0.3; the second "b" is left out
            "groups/trained/share": 1,
            "groups/size/max": 3,
            "groups/distinct_answers/mean": 5 / 2,
            "groups/no_signal/share": 1 / 2,
            "groups/no_signal/all_right/share": 1 / 2,
            "groups/size/mean": 3,
            "groups/duplicate_answers/share": 1 / 6,
            "answers/length_tokens/mean": 16 / 6,
            "answers/length_tokens/p50": 2,
            "answers/length_tokens/p90": 5,
            "answers/length_tokens_correct/mean": 2,
            "answers/length_tokens_correct/p50": 1,
            "answers/length_tokens_correct/p90": 3.4,
            "answers/length_tokens_wrong/mean": 4,
            "answers/length_tokens_wrong/p50": 4,
            "answers/length_tokens_wrong/p90": 5.6,
            "answers/truncated/share": 1 / 6,
            "answers/invalid/share": 1 / 6,
            "answers/invalid/syntax/share": 1 / 6,
            "answers/repetition/share": 0.75 / 6,
            "prompts/num": 2,
            "groups/num": 2,
            "answers/num": 6,
        }
    )


def test_groups_that_do_not_train_and_a_tolerance(group):
    groups = (group([scored(0.9), scored(0.1)]), group([scored(0.9), scored(0.85)], task_id="u"))
    batch = Batch(1, groups, ((0.0, 0.0),) * 2, ("train", "leave_out"))
    assert batch.of_role("leave_out") == groups[1:]
    assert step_metrics(batch)["groups/no_signal/share"] == 0
    metrics = step_metrics(batch, tolerance=0.1)
    assert metrics["groups/no_signal/all_right/share"] == metrics["groups/trained/share"] == 1 / 2
    assert metrics["reward/total/mean"] == pytest.approx(2.75 / 4)  # over all that was sampled


def test_groups_of_one_prompt_are_one_prompt(group):
    groups = tuple(group([scored(0.9), scored(0.1)]) for _ in range(3))
    metrics = step_metrics(Batch(1, groups, ((0.0, 0.0),) * 3))
    assert (metrics["prompts/num"], metrics["groups/num"], metrics["answers/num"]) == (1, 3, 6)
    assert metrics["groups/no_signal/share"] == 0


def test_what_was_not_measured_is_absent(group, failed):
    metrics = step_metrics(Batch(1, (group([failed, failed]),), ((0.0, 0.0),)))
    assert metrics["verifier/error/share"] == 1
    assert metrics["groups/no_signal/too_few_scored/share"] == 1
    assert not [name for name in metrics if name.startswith("reward/")]
    assert not [
        name for name in metrics if name.startswith(("answers/length_tokens_correct", "answers/length_tokens_wrong"))
    ]
    assert all(math.isfinite(value) for value in metrics.values())


def test_reasons_are_counted_apart(group):
    metrics = step_metrics(Batch(1, (group([INVALID, INVALID, EMPTY, scored(0.2)]),), ((0.0,) * 4,)))
    assert metrics["answers/invalid/share"] == 0.75
    assert metrics["answers/invalid/syntax/share"] == 0.5
    assert metrics["answers/invalid/empty/share"] == 0.25


@pytest.mark.parametrize(
    ("scores", "texts", "cause"),
    [
        ([scored(0.9), scored(0.2)], None, None),
        ([INVALID, EMPTY], None, "all_invalid"),
        ([INVALID, INVALID], ["same", "same"], "all_invalid"),
        ([scored(0.9), scored(0.9)], ["same", "same"], "identical"),
        ([scored(0.9), scored(0.9)], None, "all_right"),
        ([scored(0.2), scored(0.2)], None, "all_wrong"),
        ([scored(0.0), INVALID], None, "all_wrong"),
        ([Score("scored", 0.5), Score("scored", 0.5)], None, "equal_rewards"),
        ([scored(0.9), scored(0.9), "failed"], ["a", "b", "c"], "all_right"),
        ([scored(0.9), scored(0.9), "failed"], ["a", "a", "c"], "identical"),
        ([INVALID, INVALID, "failed"], None, "all_invalid"),
        ([scored(0.9), scored(0.8), "failed"], None, None),
        ([scored(0.9), "failed", "failed"], None, "too_few_scored"),
        (["failed", "failed"], ["same", "same"], "too_few_scored"),
    ],
)
def test_why_no_signal(group, failed, scores, texts, cause):
    assert why_no_signal(group([failed if score == "failed" else score for score in scores], texts)) == cause


@pytest.mark.parametrize(
    ("tokens", "share"),
    [((), 0), ((1, 1), 0), ((1, 1, 1), 0), ((1, 1, 1, 1), 1 / 2), ((1, 2, 3, 1, 2, 3), 1 / 4), ((1, 2, 3, 4), 0)],
)
def test_repetition_by_hand(tokens, share):
    assert repetition(tokens) == pytest.approx(share)


@given(st.lists(st.integers(0, 3), max_size=12))
def test_repetition_is_a_share_and_0_without_repeats(tokens):
    assert 0 <= repetition(tokens) < 1
    assert repetition(range(len(tokens))) == 0
