"""The plan: which tasks and how many answers, round by round, and the same after a resume at any step."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.config.groups import AdaptiveSize, CurriculumConfig, GroupsConfig, Hotter, Reassign, Resample, Skip
from oncurve.config.schema import SamplingConfig, TrainConfig
from oncurve.errors import DataError
from oncurve.groups.planner import Planner
from oncurve.truths import NoTruth
from oncurve.types import Group, Request, Rollout, Score, Segment, Task


class Numbers:
    """A task set whose ids are its positions."""

    name = "numbers"

    def __init__(self, size: int):
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        return Task(str(index), "text", (), NoTruth())

    def kind(self, index: int) -> str:
        return "text"


def planner(
    num_tasks: int = 20, prompts: int = 4, seed: int = 0, *, answers: int = 6, curriculum=None, **groups
) -> Planner:
    sampling = SamplingConfig(prompts_per_step=prompts, answers_per_prompt=answers, temperature=0.9)
    config = TrainConfig(
        sampling=sampling,
        groups=GroupsConfig(**groups),
        curriculum=curriculum or CurriculumConfig(),
        seed=seed,
    )
    return Planner(Numbers(num_tasks), config)


def planned(plan: Planner, step: int) -> list[int]:
    return [int(request.task.id) for request in plan.plan(step)]


class Step:
    """One step whose answers are right or wrong as `reward(task, index)` says, and what was asked in each round."""

    def __init__(self, plan: Planner, step: int, reward):
        self.rounds: list[list[Request]] = []
        answers: dict[str, list] = {}
        requests = plan.plan(step)
        while requests:
            self.rounds.append(requests)
            for request in requests:
                for i in range(request.first_index, request.first_index + request.num_answers):
                    segment = Segment((1, 2), (-1.0, -1.0), trained=True)
                    rollout = Rollout(request.task.id, i, (segment,), f"answer {i}", "end", 0, 1.0, 0)
                    value = float(reward(int(request.task.id), i))
                    pair = rollout, Score("scored", value, value > 0.5)
                    answers.setdefault(request.task.id, []).append((request.task, *pair))
            self.groups = [
                Group(found[0][0], tuple(r for _, r, _ in found), tuple(s for _, _, s in found), "")
                for found in answers.values()
            ]
            requests = plan.more(self.groups)
        self.missing, self.roles = plan.missing(self.groups), plan.roles(self.groups)
        plan.learn(self.groups)

    @property
    def sizes(self) -> dict[int, int]:
        return {int(group.task.id): len(group.rollouts) for group in self.groups}

    def asked(self, number: int) -> list[int]:
        return [int(request.task.id) for request in self.rounds[number]]


def right(task: int, index: int) -> float:
    return 1.0


def mixed(task: int, index: int) -> float:
    return index % 2


def test_requests_carry_the_settings():
    for request in planner(10, 4).plan(1):
        assert (request.num_answers, request.temperature, request.first_index, request.ladder) == (6, 0.9, 0, ())


def test_a_ladder_gives_every_answer_its_temperature():
    sampling = SamplingConfig(prompts_per_step=2, answers_per_prompt=4, temperatures=(0.5, 1.0, 1.5))
    (request, _) = Planner(Numbers(4), TrainConfig(sampling=sampling)).plan(1)
    assert [request.temperature_of(i) for i in range(5)] == [0.5, 1.0, 1.5, 0.5, 1.0]
    with pytest.raises(ValueError, match="both set"):
        SamplingConfig(temperature=0.9, temperatures=(0.5, 1.0))


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


def test_passes_and_seeds_have_orders_of_their_own():
    def order(seed: int, epoch: int) -> list[int]:
        plan = planner(20, 4, seed)
        steps = [planned(plan, step) for step in range(1, 11)]
        return [task for step in steps[5 * epoch : 5 * epoch + 5] for task in step]

    orders = [order(0, 0), order(0, 1), order(1, 0)]
    assert orders[0] != orders[1]
    assert orders[0] != orders[2]
    assert orders[0] != list(range(20))


def test_too_few_tasks_say_what_to_do():
    with pytest.raises(
        DataError, match=r"numbers: it has 3 tasks, fewer than sampling\.prompts_per_step 4; lower that"
    ):
        planner(3, 4)


def test_a_checkpoint_without_a_plan_goes_on_where_its_step_says():
    one, other = planner(), planner()
    before = [planned(one, step) for step in range(1, 8)]
    other.load_state_dict(None, 7)
    assert planned(other, 8) == planned(one, 8) not in before


SETTINGS = {
    "keep": {},
    "adaptive": {"size": AdaptiveSize(type="adaptive", min=2, max=12)},
    "resample": {"no_signal": Resample(type="resample", max_rounds=2)},
    "hotter": {"no_signal": Hotter(type="hotter")},
    "reassign": {"no_signal": Reassign(type="reassign", rest_steps=2)},
    "adaptive and resample": {
        "size": AdaptiveSize(type="adaptive", min=2, max=12),
        "no_signal": Resample(type="resample", max_rounds=1),
    },
    "easy first": {"curriculum": CurriculumConfig(order="easy_first", band=(0.2, 0.9))},
}


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
def test_stopping_and_going_on_asks_the_same(options):
    """Answers depend on task, index and step, so that all of what the planner learns matters."""

    def rewards(step):
        return lambda task, index: (task * 7 + index * (task % 3) + step) % 5 / 4

    whole, resumed = planner(**options), planner(**options)
    for step in range(1, 16):
        expected = Step(whole, step, rewards(step)).rounds
        assert Step(resumed, step, rewards(step)).rounds == expected
        state, resumed = json.loads(json.dumps(resumed.state_dict())), planner(**options)
        resumed.load_state_dict(state, step)


# Size by difficulty


def test_adaptive_sizes_spend_the_budget_where_a_signal_is_likely():
    """Even tasks are always right; of odd ones every second answer is. The second visit knows it."""
    plan = planner(4, 4, answers=6, size=AdaptiveSize(type="adaptive", min=2, max=12))
    for step in range(1, 6):
        done = Step(plan, step, lambda task, index: 1.0 if task % 2 == 0 else index % 2)
        assert [r.num_answers for r in done.rounds[0]] == [2, 2, 2, 2]
        assert sum(done.sizes.values()) == 24
        assert min(done.sizes.values()) >= 2
        assert max(done.sizes.values()) <= 12
    assert min(done.sizes[1], done.sizes[3]) > max(done.sizes[0], done.sizes[2])
    for request in done.rounds[1]:
        assert request.first_index == 2


def test_the_mean_size_must_lie_between_min_and_max():
    with pytest.raises(ValueError, match=r"min 8 and max 16 don't hold sampling\.answers_per_prompt 6"):
        planner(size=AdaptiveSize(type="adaptive", min=8, max=16))


# Groups without signal


def test_resample_replaces_what_is_missing_and_no_more():
    """Of each round's tasks those with an even number are silent."""
    plan = planner(40, 4, no_signal=Resample(type="resample", max_rounds=5))
    done = Step(plan, 1, lambda task, index: 1.0 if task % 2 == 0 else index % 2)
    missing = 4
    for number in range(len(done.rounds)):
        assert len(done.asked(number)) == missing
        missing = sum(task % 2 == 0 for task in done.asked(number))
    assert missing == done.missing == 0
    assert len(done.rounds) > 1
    tasks = [int(group.task.id) for group in done.groups]
    assert len(set(tasks)) == len(tasks)
    assert done.roles == tuple("train" if task % 2 else "leave_out" for task in tasks)
    assert done.roles.count("train") == 4
    later = planned(plan, 2)
    assert not set(later) & set(tasks)  # the cursor has moved on


def test_resample_ends_where_everything_is_too_hard():
    done = Step(planner(40, 4, no_signal=Resample(type="resample", max_rounds=3)), 1, lambda task, index: 0.0)
    assert [len(requests) for requests in done.rounds] == [4, 4, 4, 4]
    assert done.missing == 4
    assert set(done.roles) == {"leave_out"}
    few = Step(planner(5, 4, no_signal=Resample(type="resample", max_rounds=3)), 1, lambda task, index: 0.0)
    assert [len(requests) for requests in few.rounds] == [4, 1]  # no task is asked twice in a step


def test_hotter_asks_the_same_tasks_at_rising_temperatures():
    plan = planner(no_signal=Hotter(type="hotter", factor=1.5, max_temperature=2.0, max_rounds=2, num_answers=3))
    silent = planned(planner(), 1)[0]
    done = Step(plan, 1, lambda task, index: 1.0 if task == silent else index % 2)
    assert done.asked(1) == done.asked(2) == [silent]
    asked = [(r.first_index, r.num_answers, r.temperature) for (r,) in done.rounds[1:]]
    assert asked == [(6, 3, pytest.approx(1.35)), (9, 3, 2.0)]
    assert done.sizes[silent] == 12
    assert set(done.roles) == {"train"}


def test_hotter_stops_where_a_signal_came():
    plan = planner(no_signal=Hotter(type="hotter", num_answers=2))
    done = Step(plan, 1, lambda task, index: float(index < 6))
    assert [len(requests) for requests in done.rounds] == [4, 4]


def test_skip_marks_the_groups_without_signal():
    plan = planner(no_signal=Skip(type="skip"))
    done = Step(plan, 1, lambda task, index: 1.0 if task % 2 else index % 2)
    assert done.roles == tuple("skip" if task % 2 else "train" for task in done.asked(0))


def test_groups_within_the_tolerance_have_no_signal():
    sampling = SamplingConfig(prompts_per_step=2, answers_per_prompt=2)
    config = TrainConfig(sampling=sampling, groups=GroupsConfig(no_signal=Skip(type="skip")))
    near = config.model_copy(update={"advantage": config.advantage.model_copy(update={"tolerance": 0.1})})
    assert Step(Planner(Numbers(4), near), 1, lambda task, index: index * 0.05).roles == ("skip", "skip")
    assert Step(Planner(Numbers(4), config), 1, lambda task, index: index * 0.05).roles == ("train", "train")


def test_reassign_brings_tasks_in_the_band_forward_and_lets_others_rest():
    plan = planner(16, 4, no_signal=Reassign(type="reassign", band=(0.2, 0.8), rest_steps=3))
    first = Step(plan, 1, mixed).asked(0)
    quiet = Step(plan, 2, right).asked(0)
    assert set(quiet).isdisjoint(first)
    third = Step(plan, 3, mixed).asked(0)
    assert third == sorted(first)  # four places were vacant, four tasks are known to be mixed
    rested = [task for step in (4, 5) for task in Step(plan, step, mixed).asked(0)]
    assert not set(rested) & set(quiet)  # they rest until step 6
    after = [task for step in range(6, 10) for task in Step(plan, step, mixed).asked(0)]
    assert set(after) == set(range(16))


def test_reassign_goes_on_where_every_task_rests():
    plan = planner(4, 4, no_signal=Reassign(type="reassign", rest_steps=50))
    for step in range(1, 5):
        assert sorted(Step(plan, step, right).asked(0)) == [0, 1, 2, 3]
