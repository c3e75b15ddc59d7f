"""The metrics of a run as series, one row after the other."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Series:
    """What one metric was, and at which steps."""

    steps: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, part: slice | np.ndarray) -> "Series":
        return Series(self.steps[part], self.values[part])

    def last(self, num: int) -> "Series":
        return self[-num:]

    def blocks(self, num: int) -> "Series":
        """Means over `num` values each, the last block whole and what is left over at the front dropped."""
        whole = len(self) // num * num
        cut = self[len(self) - whole :]
        return Series(*(array.reshape(-1, num).mean(1) for array in (cut.steps, cut.values)))


EMPTY = Series(np.empty(0), np.empty(0))


class History:
    """All rows so far. A value that is not finite is no point of its series; `nonfinite` keeps where it stood."""

    def __init__(self) -> None:
        self._lists: dict[str, tuple[list[float], list[float]]] = {}
        self._arrays: dict[str, Series] = {}
        self.nonfinite: list[tuple[int, str]] = []
        self.first_step: int | None = None
        self.step = 0
        self.num_rows = 0  # of training steps: those with other metrics than evaluation's

    def add(self, row: Mapping[str, Any]) -> None:
        """Take in a row of `metrics.jsonl`. Of a metric that a step has twice, the later value counts."""
        self.step = row["step"]
        self.first_step = self.step if self.first_step is None else self.first_step
        known = False
        for name, value in row.items():
            if name == "step" or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            known = known or not name.startswith(("eval/", "time/"))
            if not math.isfinite(value):
                self.nonfinite.append((self.step, name))
                continue
            steps, values = self._lists.setdefault(name, ([], []))
            self._arrays.pop(name, None)
            if steps and steps[-1] == self.step:
                values[-1] = value
            else:
                steps.append(self.step)
                values.append(value)
        self.nonfinite += [(self.step, name) for name in row.get("nonfinite") or {}]
        self.num_rows += known

    def __getitem__(self, name: str) -> Series:
        """The series of a metric; empty where it was never measured."""
        if name not in self._lists:
            return EMPTY
        if name not in self._arrays:
            steps, values = self._lists[name]
            self._arrays[name] = Series(np.array(steps, float), np.array(values, float))
        return self._arrays[name]

    def tail(self, name: str, num: int) -> Series:
        """The last `num` values of a metric, without a copy of all the others."""
        return Series(*(np.array(items[-num:], float) for items in self._lists.get(name, ([], []))))

    def names(self, prefix: str, suffix: str) -> list[str]:
        return sorted(name for name in self._lists if name.startswith(prefix) and name.endswith(suffix))

    def window(self, name: str, num_steps: int) -> int:
        """How many values of a metric make one window: those of `num_steps` steps, and no fewer than 8."""
        steps = self[name].steps
        return max(8, int((steps > self.step - num_steps).sum()))
