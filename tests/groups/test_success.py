"""What is known of a task's success, by hand: the Beta's moments, the gain of an answer, forgetting, and the spread."""

import json
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.config.rewards import ComposeRules, GroundingRules, KindsRules, PythonRules, RewardPart
from oncurve.groups.signal import distinct
from oncurve.groups.success import Belief, Evidence, Success, gain, moment, reward_bounds, signal, spread
from oncurve.types import Group, Score

quick = settings(deadline=None, max_examples=50)
ends = st.floats(0.1, 20)


def test_moments_by_hand():
    """Of the uniform distribution: E[p^2] = 1/3, E[p(1-p)] = 1/6; of Beta(2, 1): E[p] = 2/3, E[p^3] = 2/5."""
    assert moment(1, 1, 2, 0) == pytest.approx(1 / 3)
    assert moment(1, 1, 1, 1) == pytest.approx(1 / 6)
    assert moment(2, 1, 1, 0) == pytest.approx(2 / 3)
    assert moment(2, 1, 3, 0) == pytest.approx(2 / 5)


def test_signal_by_hand():
    """Every count of right answers is as likely under the uniform distribution: 1 - 2 / (G + 1) of them are mixed."""
    assert [signal(1, 1, size) for size in (1, 2, 4, 8)] == pytest.approx([0, 1 / 3, 3 / 5, 7 / 9])


def test_signal_is_the_sum_over_outcomes():
    """Of three answers under Beta(2, 3): the probability of every outcome that holds a right one and a wrong one."""
    outcomes = [bits for bits in product((0, 1), repeat=3) if 0 < sum(bits) < 3]
    assert signal(2, 3, 3) == pytest.approx(sum(moment(2, 3, sum(bits), 3 - sum(bits)) for bits in outcomes))


@given(a=ends, b=ends, size=st.integers(1, 30))
@quick
def test_a_gain_is_a_difference_of_signals_and_falls(a, b, size):
    assert gain(a, b, size) == pytest.approx(signal(a, b, size + 1) - signal(a, b, size), abs=1e-12)
    assert 0 < gain(a, b, size + 1) < gain(a, b, size)
    assert gain(a, b, size) == pytest.approx(gain(b, a, size))


def test_the_spread_by_hand():
    """From two answers on, the gains under Beta(1, 1) are 2 / (G + 1)(G + 2) = 1/6, 1/10, 1/15, 1/21, 1/28, 1/36.

    Under Beta(30, 1) the first is (30 x 31 x 1 + 1 x 2 x 30) / (31 x 32 x 33) = 1/33.07.
    """
    beliefs = [Belief(1, 1, 10.0), Belief(30, 1, 10.0)]
    assert [gain(1, 1, size) for size in range(2, 8)] == pytest.approx([1 / n for n in (6, 10, 15, 21, 28, 36)])
    assert gain(30, 1, 2) == pytest.approx(990 / (31 * 32 * 33))
    assert spread(beliefs, [2, 2], 5, 8) == [5, 0]
    assert spread(beliefs, [2, 2], 6, 8) == [5, 1]
    assert spread(beliefs, [2, 2], 4, 4) == [2, 2]
    assert spread([Belief(1, 1, 10.0), Belief(1, 1, 30.0)], [2, 2], 3, 8) == [3, 0]  # the same gain for more tokens
    assert spread([Belief(1, 1, 10.0)] * 3, [2, 2, 2], 2, 8) == [1, 1, 0]


@given(
    tasks=st.lists(st.tuples(ends, ends, st.floats(1, 50)), min_size=1, max_size=4),
    budget=st.integers(0, 6),
    most=st.integers(2, 6),
)
@quick
def test_no_other_spread_carries_more_signal(tasks, budget, most):
    """Where answers cost the same: against every way to hand out the budget."""
    beliefs, num = [Belief(a, b, 1.0) for a, b, _ in tasks], len(tasks)

    def worth(more) -> float:
        return sum(signal(b.a, b.b, 2 + n) for b, n in zip(beliefs, more, strict=True))

    found = spread(beliefs, [2] * num, budget, most)
    assert sum(found) == min(budget, num * (most - 2))
    assert max(found) <= most - 2
    ways = product(range(min(budget, most - 2) + 1), repeat=num)
    assert worth(found) == pytest.approx(max(worth(way) for way in ways if sum(way) <= budget))


@pytest.fixture
def group(text_task, rollout):
    def make(values, texts=None, tokens=(5, 6)):
        texts = texts or [f"answer {i}" for i in range(len(values))]
        rollouts = tuple(rollout("t", i, text=text, tokens=tokens) for i, text in enumerate(texts))
        scores = tuple(v if isinstance(v, Score) else Score("scored", v, v >= 0.5) for v in values)
        return Group(text_task("t"), rollouts, scores, "")

    return make


def success(forgetting: float = 0.5, reward=None) -> Success:
    return Success(reward or GroundingRules(), forgetting, prior_strength=2.0)


def test_evidence_counts_a_text_once_and_a_reward_as_a_part_of_a_success(group, failed):
    found = group([1.0, 0.25, 1.0, failed, 7.0], ["a", "b", "a", "c", "d"])
    assert [rollout.index for rollout, _ in distinct(found)] == [0, 1, 4]
    assert success().evidence(found) == Evidence(2.25, 0.75, 6.0)


def test_rewards_are_brought_into_0_to_1_by_the_rules_bounds(group):
    shifted = GroundingRules(format_bonus=0.5)  # 0.5 to 1.5
    assert success(reward=shifted).evidence(group([0.5, 1.0, 1.5, 0.0])) == Evidence(1.5, 2.5, 8.0)


def test_a_belief_by_hand(group):
    """Kind: 3 of 4 right, so a mean of (1 + 3) / (2 + 4) = 2/3; the prior counts 2 answers."""
    known = success(forgetting=0.5)
    known.add(7, group([1.0, 1.0, 1.0, 0.0]), step=4)
    assert known.belief(8, "grounding", 4) == pytest.approx(Belief(4 / 3, 2 / 3, 2.0))
    assert known.belief(7, "grounding", 4) == pytest.approx(Belief(4 / 3 + 3, 2 / 3 + 1, 2.0))
    # two steps on, a quarter is left: of the kind 0.75 of 1, a mean of 1.75 / 3
    assert known.belief(7, "grounding", 6) == pytest.approx(Belief(3.5 / 3 + 0.75, 2.5 / 3 + 0.25, 2.0))
    assert known.belief(9, "math", 6) == pytest.approx(Belief(1.0, 1.0, 1.0))


def test_evidence_of_a_step_that_is_not_over(group):
    known = success()
    more = known.evidence(group([1.0, 0.0], tokens=(1, 2, 3)))
    assert known.belief(0, "grounding", 1, more) == pytest.approx(Belief(2.0, 2.0, (2 * 1 + 6) / 4))


def test_old_evidence_fades_before_new_is_added(group):
    known = success(forgetting=0.5)
    known.add(7, group([1.0, 1.0]), step=1)
    known.add(7, group([0.0, 0.0]), step=2)
    assert known.tasks[7] == Evidence(1.0, 2.0, 6.0, 2)


def test_the_state_is_json_and_comes_back(group):
    known, again = success(), success()
    known.add(7, group([1.0, 0.3]), step=3)
    again.load_state_dict(json.loads(json.dumps(known.state_dict())))
    assert (again.tasks, again.kinds) == (known.tasks, known.kinds)


def test_bounds_of_rewards():
    part = RewardPart(name="a", rules=GroundingRules(format_bonus=0.2), weight=2.0)
    other = RewardPart(name="b", rules=GroundingRules(), weight=-1.0, kinds=("math",))
    composed = ComposeRules(type="compose", parts=(part, other))
    assert reward_bounds(composed, "grounding") == pytest.approx((0.4, 2.4))
    clamped = ComposeRules(type="compose", parts=(part,), clamp=(0.0, 1.0))
    assert reward_bounds(clamped, "grounding") == pytest.approx((0.4, 1.0))
    assert reward_bounds(PythonRules(type="python", function="a.py:f"), "math") == (0.0, 1.0)
    kinds = KindsRules(type="kinds", grounding=GroundingRules(format_bonus=0.1))
    assert reward_bounds(kinds, "grounding") == pytest.approx((0.1, 1.1))
