"""In which order the tasks of a data set are asked: pass after pass, as the curriculum says."""

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any

from oncurve.config.groups import CurriculumConfig
from oncurve.errors import DataError
from oncurve.types import TaskSet


class Order:
    """Passes over a data set, each with an order of its own, and the place of the next task.

    `success` gives the expected success of a task and whether it was ever asked; it is consulted when a pass begins.
    """

    def __init__(
        self,
        tasks: TaskSet,
        curriculum: CurriculumConfig,
        seed: int,
        prompts_per_step: int,
        success: Callable[[int], tuple[float, bool]],
    ):
        self._curriculum, self._seed, self._size, self._success = curriculum, seed, prompts_per_step, success
        by_kind = any(self._weights.values())
        self._kinds = [tasks.kind(i) for i in range(len(tasks))] if by_kind or curriculum.heldout_kinds else None
        self._open = [i for i in range(len(tasks)) if self._kinds is None or self._is_open(self._kinds[i])]
        if len(self._open) < prompts_per_step:
            left = f" that the curriculum leaves of {len(tasks)}" if len(self._open) < len(tasks) else ""
            raise DataError(
                f"data set {tasks.name}: it has {len(self._open)} tasks{left}, fewer than sampling.prompts_per_step "
                f"{prompts_per_step}; lower that or add data"
            )
        self._pass, self._place, self._now = -1, 0, []

    def take(self, count: int, avoid: Collection[int] = (), *, whole: bool = False) -> list[int]:
        """The next `count` distinct tasks that are not in `avoid`, from this pass and at most one more; perhaps fewer.

        With `whole`, what is left of a pass that no longer fills `count` is passed over.
        """
        taken: list[int] = []
        if self._pass < 0 or (whole and len(self._now) - self._place < count):
            self._begin_pass()
        for _ in range(2):
            while len(taken) < count and self._place < len(self._now):
                index = self._now[self._place]
                self._place += 1
                if index not in avoid and index not in taken:
                    taken.append(index)
            if len(taken) == count:
                break
            self._begin_pass()
        return taken

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON; the order itself only where it can't be made again from the pass's number."""
        return {
            "pass": self._pass,
            "place": self._place,
            "order": self._now if self._curriculum.by_success else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._pass, self._place = state["pass"], state["place"]
        if state["order"] is not None:
            self._now = state["order"]
        elif self._pass >= 0:
            self._now = self._mixed(self._pass)

    @property
    def _weights(self) -> dict[str, float]:
        return self._curriculum.kind_weights.model_dump()

    def _is_open(self, kind: str) -> bool:
        """Whether tasks of this kind are trained on."""
        weights = self._weights
        return kind not in self._curriculum.heldout_kinds and (weights[kind] > 0 or not any(weights.values()))

    def _begin_pass(self) -> None:
        self._pass, self._place = self._pass + 1, 0
        self._now = self._mixed(self._pass)
        if self._curriculum.by_success:
            self._now = self._by_success(self._now)

    def _mixed(self, number: int) -> list[int]:
        """The pass's shuffle; by weight of kinds until the first of them is used up, so that the shares hold throughout."""
        order = list(self._open)
        random.Random(f"{self._seed}/{number}").shuffle(order)
        if not any(self._weights.values()):
            return order
        queues: dict[str, list[int]] = {}
        for index in reversed(order):
            queues.setdefault(self._kinds[index], []).append(index)
        total = sum(self._weights[kind] for kind in queues)
        taken, mixed = dict.fromkeys(queues, 0), []
        while True:
            kind = max(queues, key=lambda kind: self._weights[kind] / total * (len(mixed) + 1) - taken[kind])
            if not queues[kind]:
                return mixed if len(mixed) >= self._size else order
            taken[kind] += 1
            mixed.append(queues[kind].pop())

    def _by_success(self, order: list[int]) -> list[int]:
        """`order` without the tasks known to lie outside the band, or with the nearest of them where too few are left."""
        expected = {index: self._success(index) for index in order}
        if band := self._curriculum.band:

            def outside(index: int) -> float:
                success, known = expected[index]
                return max(band[0] - success, success - band[1], 0.0) if known else 0.0

            nearest = sorted(order, key=outside)
            number = max(sum(outside(index) == 0 for index in order), self._size)
            kept = set(nearest[:number])
            order = [index for index in order if index in kept]
        if self._curriculum.order == "easy_first":
            order = sorted(order, key=lambda index: -expected[index][0])
        return order
