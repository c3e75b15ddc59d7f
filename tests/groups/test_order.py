"""The order of the tasks: passes, weights of kinds, kinds that are held out, difficulty, and what a resume brings back."""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.config.groups import CurriculumConfig, KindWeights
from oncurve.errors import DataError
from oncurve.groups.order import Order


class Kinds:
    """A task set of which only the kinds are known."""

    name = "kinds"

    def __init__(self, kinds):
        self.kinds = kinds

    def __len__(self) -> int:
        return len(self.kinds)

    def kind(self, index: int) -> str:
        return self.kinds[index]


def order(kinds=("math",) * 12, size=4, success=lambda index: (0.5, False), **curriculum) -> Order:
    return Order(Kinds(kinds), CurriculumConfig(**curriculum), 0, size, success)


@given(size=st.integers(4, 20), counts=st.lists(st.integers(1, 4), min_size=1, max_size=20))
@settings(deadline=None, max_examples=50)
def test_what_is_taken_is_distinct_and_goes_on_where_it_stopped(size, counts):
    one, other = order(("math",) * size), order(("math",) * size)
    taken = [one.take(count) for count in counts]
    assert all(len(set(part)) == count for part, count in zip(taken, counts, strict=True))
    assert Counter(index for part in taken for index in part).most_common(1)[0][1] <= -(-sum(counts) // size) + 1
    for part, count in zip(taken, counts, strict=True):
        other.load_state_dict(json.loads(json.dumps(other.state_dict())))
        assert other.take(count) == part


def test_what_is_avoided_is_passed_over_and_no_task_is_asked_for_without_end():
    asked = order().take(4)
    further = order().take(12, set(asked))
    assert len(further) == 8
    assert not set(further) & set(asked)
    assert order().take(3, set(range(12))) == []


def test_kinds_come_by_weight_at_every_place():
    kinds = ("math",) * 30 + ("code",) * 300
    weights = KindWeights(math=1.0, code=2.0)
    mixed = order(kinds, kind_weights=weights)
    taken = mixed.take(90)
    for end in range(3, 91):
        found = Counter(kinds[i] for i in taken[:end])
        assert abs(found["math"] - end / 3) < 1
    assert {i for i in taken if kinds[i] == "math"} == set(range(30))
    again = order(kinds, kind_weights=weights)
    again.load_state_dict(json.loads(json.dumps(mixed.state_dict())))
    assert again.take(20) == mixed.take(20)


def test_a_kind_without_a_weight_and_a_held_out_kind_are_never_asked():
    kinds = ("math", "code", "sql") * 6
    asked = {kinds[i] for i in order(kinds, kind_weights=KindWeights(math=1.0, code=1.0)).take(8)}
    assert asked == {"math", "code"}
    assert {kinds[i] for i in order(kinds, heldout_kinds=("code",)).take(12)} == {"math", "sql"}


def test_a_kind_has_no_weight_while_it_is_held_out():
    with pytest.raises(ValueError, match="kind code has a weight and is held out"):
        CurriculumConfig(kind_weights=KindWeights(code=1.0), heldout_kinds=("code",))


def test_too_few_tasks_that_are_left_say_so():
    with pytest.raises(DataError, match="it has 3 tasks that the curriculum leaves of 9, fewer than"):
        order(("math", "code", "code") * 3, heldout_kinds=("code",))


def test_easy_first_and_the_band():
    """Task i succeeds i/12 of the time; tasks 10 and 11 were never asked and stand where their kind's mean puts them."""

    def success(index: int) -> tuple[float, bool]:
        return (index / 12, True) if index < 10 else (0.5, False)

    easy = order(success=success, order="easy_first").take(12)
    assert [i for i in easy if i < 10] == list(range(10))[::-1]
    assert set(easy[3:6]) == {6, 10, 11}
    in_band = order(success=success, band=(0.3, 0.6)).take(6)
    assert set(in_band) == {4, 5, 6, 7, 10, 11}
    narrow = order(success=success, size=4, band=(0.9, 1.0))
    assert set(narrow.take(4)) == {8, 9, 10, 11}  # the nearest fill the step


def test_an_order_by_success_comes_back_as_it_was():
    values = [0.1 * i for i in range(12)]
    one = order(success=lambda i: (values[i], True), order="easy_first")
    one.take(5)
    state = json.loads(json.dumps(one.state_dict()))
    values.reverse()
    again = order(success=lambda i: (values[i], True), order="easy_first")
    again.load_state_dict(state)
    assert again.take(4) == one.take(4)
