"""Which tasks a step asks about: a shuffled order for every pass over the data, counted, never stored."""

import random

from oncurve.config.schema import SamplingConfig
from oncurve.errors import DataError
from oncurve.types import Request, TaskSet


class Planner:
    """Step `n` always plans the same requests; the cursor is the step number, so a resume needs nothing else."""

    def __init__(self, tasks: TaskSet, sampling: SamplingConfig, seed: int):
        if len(tasks) < sampling.prompts_per_step:
            raise DataError(
                f"data set {tasks.name}: it has {len(tasks)} tasks, fewer than sampling.prompts_per_step "
                f"{sampling.prompts_per_step}; lower that or add data"
            )
        self._tasks, self._sampling, self._seed = tasks, sampling, seed
        self._order: tuple[int, list[int]] = (-1, [])

    def plan(self, step: int) -> list[Request]:
        """The requests of `step` (from 1): `prompts_per_step` distinct tasks, the next ones in this pass's order.

        What is left of a pass when it no longer fills a step is skipped, so that a step never holds a task twice.
        """
        size = self._sampling.prompts_per_step
        epoch, place = divmod(step - 1, len(self._tasks) // size)
        if self._order[0] != epoch:
            order = list(range(len(self._tasks)))
            random.Random(f"{self._seed}/{epoch}").shuffle(order)
            self._order = (epoch, order)
        chosen = self._order[1][place * size : (place + 1) * size]
        return [Request(self._tasks[i], self._sampling.answers_per_prompt, self._sampling.temperature) for i in chosen]
