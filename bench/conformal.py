"""`oncurve train` with trl-cgrpo's sizes of groups in the place of the planner's: the arm `conformal` of bench/groups.py.

Of trl-cgrpo 0.2.0 the rule for tasks that a program verifies (`score="first_success"`), with its own defaults but for a grid
that ends at 16 and a calibration every 20 steps rather than 50. A prompt is sampled along the grid and stops at the first size
`k` at which a success came at answer `j` with `j / k` no larger than a conformal quantile of the same score over calibration
tasks. These are held back from training, the policy answers them anew at each calibration, and their answers count as spent.
"""

import math
import sys
from dataclasses import replace

import oncurve.train as training
from oncurve.cli.main import main
from oncurve.groups.planner import Planner
from oncurve.tasks.sets import load_tasks
from oncurve.types import Group, Request

GRID = (2, 4, 8, 16)
NUM_CALIBRATION, EVERY = 16, 20
MARGIN = 0.05  # of the miss rate, added to it


def first_success(group: Group, size: int) -> float:
    """`j / size` for the first right answer `j` (from 1) of the first `size`; infinite where there is none."""
    right = [score.value >= 1 for score in group.scores[:size]]
    return (right.index(True) + 1) / size if any(right) else math.inf


def quantiles(groups: list[Group]) -> dict[int, float]:
    """The thresholds by size. The miscoverage is the share of tasks without any success, and the margin."""
    scores = {size: sorted(min(first_success(group, size), 1.0) for group in groups) for size in GRID}
    missed = sum(first_success(group, GRID[-1]) >= 1 for group in groups) / len(groups)
    delta = min(max(missed + MARGIN, 0.05), 0.95)
    place = min(math.ceil((len(groups) + 1) * (1 - delta)), len(groups))
    return {size: own[max(place, 1) - 1] for size, own in scores.items()}


class ConformalPlanner(Planner):
    def __init__(self, tasks, config):
        super().__init__(tasks, config)
        size = config.data.num_scenes
        more = load_tasks(config.data.model_copy(update={"num_scenes": size + NUM_CALIBRATION}))
        self._calibration = [more[size + i] for i in range(NUM_CALIBRATION)]
        self._held_back = {task.id for task in self._calibration}

    def plan(self, step):
        requests = [replace(request, num_answers=GRID[0]) for request in super().plan(step)]
        calibrates = (step - 1) % EVERY == 0
        return requests + [Request(task, GRID[-1], 1.0) for task in self._calibration if calibrates]

    def more(self, groups):
        if held_back := [group for group in groups if group.task.id in self._held_back]:
            self._thresholds = quantiles(held_back)
        size = GRID[self._round]
        self._round += 1
        if self._round == len(GRID):
            return []
        return [
            Request(group.task, GRID[self._round] - size, 1.0, size)
            for group in groups
            if len(group.rollouts) == size
            and group.task.id not in self._held_back
            and first_success(group, size) > self._thresholds[size]
        ]

    def roles(self, groups):
        return tuple("leave_out" if group.task.id in self._held_back else "train" for group in groups)


if __name__ == "__main__":
    training.Planner = ConformalPlanner
    sys.exit(main())
