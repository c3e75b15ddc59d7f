import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.advantage import advantages, decoupled_advantages, deviation, update_advantages

WORKED = json.loads((Path(__file__).parent / "reference" / "worked_example.json").read_text())["advantages"]
REWARDS = st.lists(st.integers(0, 100).map(lambda n: n / 100), min_size=2, max_size=12)
OPTIONS = st.fixed_dictionaries(
    {
        "std": st.sampled_from(["sample", "population", "none"]),
        "baseline": st.sampled_from(["mean", "leave_one_out"]),
    }
)
quick = settings(deadline=None, max_examples=50)


@pytest.mark.parametrize("group", WORKED.values(), ids=WORKED)
@pytest.mark.parametrize(("std", "eps"), [("sample", "1e-4"), ("population", "1e-4"), ("population", "1e-6")])
def test_worked_example(group, std, eps):
    expected = group[f"{std}_std_eps_{eps}"]
    assert deviation(group["rewards"], std) == pytest.approx(expected["std"], abs=1e-12)
    result = advantages(group["rewards"], std=std, eps=float(eps))
    np.testing.assert_allclose(result, expected["advantages"], rtol=0, atol=1e-12)


def test_no_division():
    np.testing.assert_allclose(advantages([1, 0, 0.5, 0.1], std="none"), [0.6, -0.4, 0.1, -0.3], atol=1e-15)


def test_leave_one_out_by_hand():
    # The others' means are 0.2, 1.6 / 3, 1.1 / 3 and 0.5.
    expected = [1 - 0.2, -1.6 / 3, 0.5 - 1.1 / 3, 0.1 - 0.5]
    np.testing.assert_allclose(advantages([1, 0, 0.5, 0.1], std="none", baseline="leave_one_out"), expected, atol=1e-15)


def test_leave_one_out_divided_by_the_deviation():
    np.testing.assert_allclose(advantages([1, 0, 0.5], baseline="leave_one_out"), np.array([0.75, -0.75, 0]) / 0.5001)


@given(REWARDS, OPTIONS, st.integers(-5, 5))
@quick
def test_a_shift_of_all_rewards_changes_nothing(rewards, options, shift):
    shifted = advantages(np.array(rewards) + shift, **options)
    np.testing.assert_allclose(shifted, advantages(rewards, **options), atol=1e-9)


@given(st.data(), REWARDS, OPTIONS)
@quick
def test_advantages_follow_their_answers(data, rewards, options):
    order = data.draw(st.permutations(range(len(rewards))))
    permuted = advantages([rewards[i] for i in order], **options)
    np.testing.assert_allclose(permuted, advantages(rewards, **options)[order], atol=1e-12)


@given(REWARDS, OPTIONS)
@quick
def test_they_sum_to_zero_and_keep_the_order(rewards, options):
    result = advantages(rewards, **options)
    assert abs(result.sum()) < 1e-9
    assert list(np.argsort(result, kind="stable")) == list(np.argsort(rewards, kind="stable"))


@given(st.floats(-1e6, 1e6), st.integers(0, 9), OPTIONS)
@quick
def test_equal_rewards_give_exactly_zero(reward, count, options):
    result = advantages([reward] * count, **options)
    assert result.tolist() == [0.0] * count


@given(REWARDS, st.data(), OPTIONS)
@quick
def test_a_failed_verifier_is_as_if_its_answer_were_absent(rewards, data, options):
    scored = np.array(data.draw(st.lists(st.booleans(), min_size=len(rewards), max_size=len(rewards))))
    result = advantages(np.where(scored, rewards, np.nan), scored, **options)
    assert not result[~scored].any()
    np.testing.assert_allclose(result[scored], advantages(np.array(rewards)[scored], **options), atol=1e-12)


def test_one_scored_answer_teaches_nothing():
    assert advantages([0.9, np.nan, np.nan], [True, False, False]).tolist() == [0, 0, 0]


def test_the_mask_keeps_the_places():
    np.testing.assert_allclose(advantages([1, np.nan, 0], [True, False, True], std="none"), [0.5, 0, -0.5])


def test_deviation_of_the_two_kinds():
    assert deviation([0, 1]) == pytest.approx(0.5**0.5)
    assert deviation([0, 1], "population") == 0.5
    assert deviation([0.1] * 3) == deviation([0.7]) == 0


def test_rewards_within_the_tolerance_are_equal():
    assert advantages([0.5, 0.5 + 1e-12], std="none").any()
    np.testing.assert_array_equal(advantages([0.5, 0.5 + 1e-12], tolerance=1e-9), [0, 0])
    np.testing.assert_array_equal(advantages([0.5, math.nan, 0.6], [True, False, True], tolerance=0.125), [0, 0, 0])
    assert update_advantages([[0.5, 0.6], [0.1, 0.4]], [[True] * 2] * 2, std="none", tolerance=0.125) == [
        (0.0, 0.0),
        pytest.approx((-0.15, 0.15)),
    ]


def test_groups_of_unlike_sizes_by_hand():
    """Each by its own mean and deviation: of 1, 0: sqrt(1/2); of 1, 0, 0, 1: sqrt(1/3); of 0.2, 0.4, 0.6: 0.2."""
    found = update_advantages(
        [[1.0, 0.0], [1.0, 0.0, 0.0, 1.0], [0.2, 0.4, 0.6]], [[True] * 2, [True] * 4, [True] * 3], eps=1e-12
    )
    assert found[0] == pytest.approx((0.5**0.5, -(0.5**0.5)))
    assert found[1] == pytest.approx([sign * 0.75**0.5 for sign in (1, -1, -1, 1)])
    assert found[2] == pytest.approx((-1.0, 0.0, 1.0))


def test_over_the_batch_by_hand():
    """REINFORCE++: mean 0.5 and sample deviation over the three scored answers of both groups; the failed one stays out."""
    found = update_advantages(
        [[1.0, 0.0], [0.5, math.nan]], [[True, True], [True, False]], baseline="none", over="batch", eps=1e-12
    )
    assert [x for group in found for x in group] == pytest.approx([1.0, -1.0, 0.0, 0.0])


def test_over_the_batch_with_a_group_baseline_by_hand():
    """Distances 0.2, -0.2, 0.4, -0.4 have mean 0 and population deviation sqrt(0.1)."""
    found = update_advantages([[0.9, 0.5], [0.8, 0.0]], [[True] * 2] * 2, std="population", over="batch", eps=1e-12)
    assert [x for group in found for x in group] == pytest.approx([x / math.sqrt(0.1) for x in (0.2, -0.2, 0.4, -0.4)])


def test_over_groups_is_each_group_alone():
    rewards = [[1.0, 0.0, 0.2], [0.5, 0.1, 0.9]]
    expected = [tuple(advantages(r)) for r in rewards]
    assert update_advantages(rewards, [[True] * 3] * 2) == [pytest.approx(x) for x in expected]


def test_batch_advantages_do_not_depend_on_how_the_groups_are_ordered():
    rewards, scored = [[1.0, 0.0, 0.2], [0.5, 0.1, 0.9]], [[True] * 3] * 2
    forward = update_advantages(rewards, scored, baseline="leave_one_out", over="batch")
    backward = update_advantages(rewards[::-1], scored, baseline="leave_one_out", over="batch")
    assert forward == [pytest.approx(x) for x in backward[::-1]]


def test_gdpo_normalises_each_part_in_its_group_then_over_the_batch():
    """Two groups of two, two parts of unlike scale: by hand, with std none of eps small."""
    parts = [[[0.0, 1.0], [100.0, 0.0]], [[0.0, 0.0], [0.0, 10.0]]]
    found = decoupled_advantages(parts, [[1.0, 0.5]] * 2, [[True, True]] * 2, std="population", eps=1e-12)
    sums = np.array([-1 + 0.5, 1 - 0.5, -0.5, 0.5])  # each part's own advantages are -1 and 1, or 0 where it is equal
    assert np.concatenate(found) == pytest.approx(sums / sums.std())


def test_gdpo_keeps_apart_what_one_sum_makes_equal():
    """(1, 0) and (0, 1) have the same sum; with weights the parts still order them."""
    parts = [[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]
    a, b, c = decoupled_advantages(parts, [[2.0, 1.0]], [[True, True, True]])[0]
    assert a > b > c


def test_gdpo_leaves_out_what_was_not_scored():
    ((a, b, c),) = decoupled_advantages([[[0.0, math.nan, 1.0]]], [[1.0]], [[True, False, True]])
    assert (a, b) == (-c, 0.0)
    assert decoupled_advantages([[[0.5, 0.5]]], [[1.0]], [[True, True]]) == [(0.0, 0.0)]
