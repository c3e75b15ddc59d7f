"""The plan: every task once in a pass, none twice in a step, the same at every asking."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.config.schema import SamplingConfig
from oncurve.errors import DataError
from oncurve.groups.planner import Planner


class Numbers:
    """A task set whose tasks are their own positions."""

    name = "numbers"

    def __init__(self, size: int):
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        return index


def planner(size: int, prompts: int, seed: int = 0) -> Planner:
    return Planner(Numbers(size), SamplingConfig(prompts_per_step=prompts, answers_per_prompt=6, temperature=0.9), seed)


def planned(plan: Planner, step: int) -> list[int]:
    return [request.task for request in plan.plan(step)]


def test_requests_carry_the_settings():
    for request in planner(10, 4).plan(1):
        assert (request.num_answers, request.temperature) == (6, 0.9)


@given(size=st.integers(1, 30), prompts=st.integers(1, 10), seed=st.integers(0, 3))
@settings(deadline=None, max_examples=50)
def test_every_pass_asks_each_task_once(size, prompts, seed):
    if size < prompts:
        with pytest.raises(DataError):
            planner(size, prompts, seed)
        return
    plan, steps = planner(size, prompts, seed), size // prompts
    for epoch in range(2):
        asked = [task for step in range(steps) for task in planned(plan, 1 + epoch * steps + step)]
        assert len(asked) == len(set(asked)) == steps * prompts
        assert set(asked) <= set(range(size))
        if size % prompts == 0:
            assert set(asked) == set(range(size))


def test_a_step_is_the_same_whatever_was_asked_before():
    plan = planner(20, 4)
    forwards = [planned(plan, step) for step in range(1, 16)]
    assert [planned(plan, step) for step in range(15, 0, -1)] == forwards[::-1]
    assert planned(planner(20, 4), 12) == forwards[11]


def test_passes_and_seeds_have_orders_of_their_own():
    orders = [
        [task for step in range(5) for task in planned(planner(20, 4, seed), 1 + 5 * epoch + step)]
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    assert orders[0] != orders[1]
    assert orders[0] != orders[2]
    assert orders[0] != list(range(20))


def test_too_few_tasks_say_what_to_do():
    with pytest.raises(
        DataError, match=r"numbers: it has 3 tasks, fewer than sampling\.prompts_per_step 4; lower that"
    ):
        planner(3, 4)
