"""Which tasks a step asks about and how many answers each gets, in rounds: what to ask next depends on what came back."""

from collections.abc import Mapping, Sequence
from typing import Any

from oncurve.config.schema import TrainConfig
from oncurve.groups.order import Order
from oncurve.groups.signal import why_no_signal
from oncurve.groups.success import Success, spread
from oncurve.types import Group, Request, Role, TaskSet


class Planner:
    """`plan` begins a step, `more` goes on with it until it returns nothing, `learn` ends it.

    Everything that a later step depends on is in `state_dict`. Raises `DataError` where the data set, or what the
    curriculum leaves of it, does not fill a step.
    """

    def __init__(self, tasks: TaskSet, config: TrainConfig):
        self._tasks, self._sampling, self._groups = tasks, config.sampling, config.groups
        self._tolerance = config.advantage.tolerance
        self._success = Success(config.reward, config.groups.forgetting, config.groups.prior_strength)
        size, policy = config.groups.size.type, config.groups.no_signal.type
        self._remembers = size == "adaptive" or policy == "reassign" or config.curriculum.by_success
        self._order = Order(
            tasks, config.curriculum, config.seed, config.sampling.prompts_per_step, self._expected_success
        )
        self._step, self._round = 0, 0
        self._asked: dict[str, int] = {}  # of this step: position in the data set by task id
        self._vacant = 0  # reassign: places that the last step's groups without signal give up
        self._rests: dict[int, tuple[int, int]] = {}  # reassign: the step that a task rests until, and its last rest

    def plan(self, step: int) -> list[Request]:
        """The first requests of `step` (from 1): `prompts_per_step` distinct tasks."""
        self._step, self._round, self._asked = step, 0, {}
        size, num = self._groups.size, self._sampling.prompts_per_step
        chosen = self._come_forward()
        resting = {index for index, (until, _) in self._rests.items() if step < until}
        chosen += self._order.take(num - len(chosen), {*chosen, *resting}, whole=True)
        chosen += self._order.take(num - len(chosen), set(chosen)) if len(chosen) < num else []
        answers = size.min if size.type == "adaptive" else self._sampling.answers_per_prompt
        return [self._request(index, answers) for index in chosen]

    def more(self, groups: Sequence[Group]) -> list[Request]:
        """What the step asks after having got these groups: further answers or further tasks; nothing once it is done."""
        self._round += 1
        adaptive, policy = self._groups.size.type == "adaptive", self._groups.no_signal
        if adaptive and self._round == 1:
            if requests := self._spread(groups):
                return requests
            self._round += 1
        tries = self._round - adaptive
        if tries > getattr(policy, "max_rounds", 0):
            return []
        if policy.type == "hotter":
            scale = policy.factor**tries
            ladder = tuple(min(t * scale, max(policy.max_temperature, t)) for t in self._sampling.ladder)
            return [
                self._request(self._asked[group.task.id], policy.num_answers, len(group.rollouts), ladder)
                for group in groups
                if why_no_signal(group, self._tolerance) not in (None, "too_few_scored")
            ]
        further = self._order.take(self.missing(groups), set(self._asked.values()))
        return [self._request(index, self._sampling.answers_per_prompt) for index in further]

    def missing(self, groups: Sequence[Group]) -> int:
        """Under `resample`, how many groups with a signal the step lacks; 0 under every other policy."""
        wanted = self._sampling.prompts_per_step * self._sampling.groups_per_prompt
        return max(0, wanted - len(groups) + self._num_silent(groups)) if self._resamples else 0

    def roles(self, groups: Sequence[Group]) -> tuple[Role, ...]:
        """What the update is to do with each of the step's groups."""
        of_silent = {"skip": "skip", "resample": "leave_out"}.get(self._groups.no_signal.type, "train")
        return tuple("train" if why_no_signal(group, self._tolerance) is None else of_silent for group in groups)

    def learn(self, groups: Sequence[Group]) -> None:
        """Remember what the step showed of its tasks, where a later plan depends on it."""
        if not self._remembers:
            return
        for group in groups:
            self._success.add(self._asked[group.task.id], group, self._step)
        if self._groups.no_signal.type == "reassign":
            self._vacant = self._num_silent(groups)
            for group in groups:
                index = self._asked[group.task.id]
                _, last = self._rests.pop(index, (0, 0))
                if why_no_signal(group, self._tolerance) in ("all_right", "all_wrong", "all_invalid", "identical"):
                    rest = 2 * last or self._groups.no_signal.rest_steps
                    self._rests[index] = self._step + 1 + rest, rest

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "order": self._order.state_dict(),
            "success": self._success.state_dict(),
            "vacant": self._vacant,
            "rests": [[index, *rest] for index, rest in self._rests.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any] | None, step: int) -> None:
        """Go on after `step`. A checkpoint without a planner's state is of a version whose steps were all alike."""
        if state is None:
            for _ in range(step):
                self._order.take(self._sampling.prompts_per_step, whole=True)
            return
        self._order.load_state_dict(state["order"])
        self._success.load_state_dict(state["success"])
        self._vacant = state["vacant"]
        self._rests = {index: tuple(rest) for index, *rest in state["rests"]}

    @property
    def _resamples(self) -> bool:
        return self._groups.no_signal.type == "resample"

    def _num_silent(self, groups: Sequence[Group]) -> int:
        return sum(why_no_signal(group, self._tolerance) is not None for group in groups)

    def _request(
        self, index: int, num_answers: int, first_index: int = 0, ladder: tuple[float, ...] | None = None
    ) -> Request:
        task = self._tasks[index]
        self._asked[task.id] = index
        ladder = ladder or self._sampling.ladder
        return Request(task, num_answers, ladder[0], first_index, ladder if len(ladder) > 1 else ())

    def _spread(self, groups: Sequence[Group]) -> list[Request]:
        """The rest of the step's budget, `prompts_per_step` times `answers_per_prompt` answers in all."""
        success, sizes = self._success, [len(group.rollouts) for group in groups]
        budget = self._sampling.prompts_per_step * self._sampling.answers_per_prompt - sum(sizes)
        indices = [self._asked[group.task.id] for group in groups]
        beliefs = [
            success.belief(index, group.task.kind, self._step, success.evidence(group))
            for index, group in zip(indices, groups, strict=True)
        ]
        more = spread(beliefs, sizes, budget, self._groups.size.max)
        return [
            self._request(index, count, size) for index, count, size in zip(indices, more, sizes, strict=True) if count
        ]

    def _come_forward(self) -> list[int]:
        """Known tasks within the band for the vacant places, those first that were not asked for the longest time."""
        if not self._vacant:
            return []
        low, high = self._groups.no_signal.band
        known = [
            (evidence.step, index)
            for index, evidence in self._success.tasks.items()
            if index not in self._rests
            and evidence.step < self._step - 1
            and low <= self._expected_success(index)[0] <= high
        ]
        return [index for _, index in sorted(known)[: min(self._vacant, self._sampling.prompts_per_step)]]

    def _expected_success(self, index: int) -> tuple[float, bool]:
        known = index in self._success.tasks
        return self._success.belief(index, self._tasks.kind(index), self._step).success, known
