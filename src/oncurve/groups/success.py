"""What is known of each task's success: a Beta posterior with forgetting, and how likely a group is to carry a signal.

With the success `p` of a task drawn from Beta(a, b), a group of `G` answers that are right or wrong carries a signal unless
all are right or all are wrong: with probability `1 - E[p^G] - E[(1-p)^G]`. Divided by its deviation, such a group's mean
squared advantage is 1, and 0 without a signal, so that this is also the gradient signal that is to be expected of it.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite, prod
from typing import Any, NamedTuple

from oncurve.config.rewards import ComposeRules, KindsRules, PythonRules, RewardConfig
from oncurve.groups.signal import distinct
from oncurve.types import Group


def moment(a: float, b: float, right: int, wrong: int) -> float:
    """`E[p^right (1-p)^wrong]` for `p` from Beta(a, b): B(a + right, b + wrong) / B(a, b)."""
    over = prod(a + i for i in range(right)) * prod(b + i for i in range(wrong))
    return over / prod(a + b + i for i in range(right + wrong))


def signal(a: float, b: float, size: int) -> float:
    """The probability that a group of `size` answers carries a signal."""
    return 1 - moment(a, b, size, 0) - moment(a, b, 0, size)


def gain(a: float, b: float, size: int) -> float:
    """What one answer more adds to the signal of a group of `size`; it falls with the size."""
    return moment(a, b, size, 1) + moment(a, b, 1, size)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Answers seen, as counts. Example: `Evidence(2.5, 1.5, 40.0)`: four answers of ten tokens, a mean success of 0.625."""

    right: float = 0.0
    wrong: float = 0.0
    tokens: float = 0.0  # of all of them
    step: int = 0  # when it was last added to

    @property
    def answers(self) -> float:
        return self.right + self.wrong

    def at(self, step: int, forgetting: float) -> "Evidence":
        """What is left of it at a later step: the policy that it was about has moved on."""
        kept = (1 - forgetting) ** (step - self.step)
        return Evidence(self.right * kept, self.wrong * kept, self.tokens * kept, step)

    def __add__(self, other: "Evidence") -> "Evidence":
        return replace(
            self, right=self.right + other.right, wrong=self.wrong + other.wrong, tokens=self.tokens + other.tokens
        )


class Belief(NamedTuple):
    """Beta(a, b) over a task's success, and the tokens that an answer to it is expected to take."""

    a: float
    b: float
    tokens: float

    @property
    def success(self) -> float:
        return self.a / (self.a + self.b)


NOTHING = Evidence()


class Success:
    """The evidence of every task, by its position in the data set, and of every kind of task, which is the tasks' prior."""

    def __init__(self, reward: RewardConfig, forgetting: float, prior_strength: float):
        self.reward, self.forgetting, self.prior_strength = reward, forgetting, prior_strength
        self.tasks: dict[int, Evidence] = {}
        self.kinds: dict[str, Evidence] = {}

    def evidence(self, group: Group) -> Evidence:
        """Of the group's distinct answers. A reward between the least and the most counts as a part of a success."""
        low, high = reward_bounds(self.reward, group.task.kind)
        answers = distinct(group)
        shares = [min(max((score.value - low) / (high - low), 0.0), 1.0) for _, score in answers]
        return Evidence(
            sum(shares), len(shares) - sum(shares), float(sum(len(rollout.tokens) for rollout, _ in answers))
        )

    def belief(self, index: int, kind: str, step: int, more: Evidence = NOTHING) -> Belief:
        """What is believed of a task at `step`; `more` is evidence that was not added yet."""
        of_kind = self.kinds.get(kind, NOTHING).at(step, self.forgetting)
        mean = (1 + of_kind.right) / (2 + of_kind.answers)
        length = of_kind.tokens / of_kind.answers if of_kind.answers else 1.0
        own = self.tasks.get(index, NOTHING).at(step, self.forgetting) + more
        strength = self.prior_strength
        tokens = (strength * length + own.tokens) / (strength + own.answers)
        return Belief(strength * mean + own.right, strength * (1 - mean) + own.wrong, tokens)

    def add(self, index: int, group: Group, step: int) -> None:
        found, kind = self.evidence(group), group.task.kind
        self.tasks[index] = self.tasks.get(index, NOTHING).at(step, self.forgetting) + found
        self.kinds[kind] = self.kinds.get(kind, NOTHING).at(step, self.forgetting) + found

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "tasks": [[index, *asdict(evidence).values()] for index, evidence in self.tasks.items()],
            "kinds": {kind: list(asdict(evidence).values()) for kind, evidence in self.kinds.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.tasks = {index: Evidence(*values) for index, *values in state["tasks"]}
        self.kinds = {kind: Evidence(*values) for kind, values in state["kinds"].items()}


def spread(beliefs: Sequence[Belief], sizes: Sequence[int], budget: int, most: int) -> list[int]:
    """How many more answers each group gets: one by one where the gain per expected token is largest, the first of equals.

    That is the best way to spend `budget` answers, since every gain falls with the size; no group grows beyond `most`.
    """
    more = [0] * len(sizes)

    def entry(i: int) -> tuple[float, int]:
        belief = beliefs[i]
        return -gain(belief.a, belief.b, sizes[i] + more[i]) / belief.tokens, i

    heap = [entry(i) for i in range(len(sizes)) if sizes[i] < most]
    heapq.heapify(heap)
    for _ in range(budget):
        if not heap:
            break
        _, i = heapq.heappop(heap)
        more[i] += 1
        if sizes[i] + more[i] < most:
            heapq.heappush(heap, entry(i))
    return more


def reward_bounds(reward: RewardConfig, kind: str) -> tuple[float, float]:
    """The least and the most that a well-formed answer to a task of `kind` gets; 0 and 1 where that isn't known."""
    if isinstance(reward, PythonRules):
        return 0.0, 1.0
    if isinstance(reward, ComposeRules):
        ends = [part.bounds for part in reward.parts if part.is_for(kind)]
        low, high = (sum(column) for column in zip(*ends, strict=True))
        if reward.clamp:
            low, high = (min(max(end, reward.clamp[0]), reward.clamp[1]) for end in (low, high))
    else:
        low, high = (getattr(reward, kind) if isinstance(reward, KindsRules) else reward).bounds
    return (low, high) if isfinite(low) and isfinite(high) and low < high else (0.0, 1.0)
