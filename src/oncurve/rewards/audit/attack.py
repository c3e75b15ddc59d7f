"""What an attack is, what it is held against, and the table of attacks by exploit and kind.

A judge says whether a verdict is right. A verifier of a kind has statuses, so a broken format must be `invalid`. A
function of the user's own may have none: there a broken format must pay no more than a plainly wrong answer.
"""

import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from oncurve.config.rewards import KindRules
from oncurve.types import Score, Task

EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Exploit:
    """A known way to win a reward without doing the task. Example: `exploits()[0].name` is `exit_zero`."""

    name: str
    kinds: tuple[str, ...]  # "*" for all
    does: str
    right: str  # the verdict of a sound verifier, in words

    def of(self, kind: str) -> bool:
        return kind in self.kinds or "*" in self.kinds


@cache
def exploits() -> tuple[Exploit, ...]:
    """The list that `exploits.toml` is."""
    table = tomllib.loads((resources.files(__package__) / "exploits.toml").read_text("utf-8"))
    return tuple(Exploit(**row | {"kinds": tuple(row["kinds"])}) for row in table["exploit"])


@dataclass(frozen=True, slots=True)
class Case:
    """A task under attack: the rules it is graded by, and answers to it whose verdict is known."""

    task: Task
    rules: KindRules
    right: str
    wrong: tuple[str, ...]  # well formed, and plainly not the truth
    marker: Path  # a file that appears only if an answer is executed outside a sandbox


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What the answers of a case that are no attack get."""

    right: float  # the right answer
    wrong: float  # the worst of the wrong ones
    nothing: float  # an answer that says nothing
    own: bool  # graded by a function of the user's own

    @property
    def half(self) -> float:
        return (self.right + self.low) / 2

    @property
    def low(self) -> float:
        return max(self.wrong, self.nothing)


Judge = Callable[[Score, Yardstick], bool]


@dataclass(frozen=True, slots=True)
class Attack:
    """One hostile answer. `task` stands in for the case's own where the attack needs another truth."""

    text: str
    judge: Judge
    task: Task | None = None


def refused(score: Score, yard: Yardstick) -> bool:
    """The answer broke the format, and pays so."""
    if yard.own:
        return not score.correct and score.value <= yard.low + EPS
    return score.status == "invalid"


def not_correct(score: Score, yard: Yardstick) -> bool:
    """Not correct, and paid less than the right answer; without a word on it, no more than half the way to it."""
    if score.correct is None:
        return score.value <= yard.half + EPS
    return not score.correct and score.value < yard.right


def no_gain(score: Score, yard: Yardstick) -> bool:
    """Pays no more than the right answer, given plainly."""
    return score.value <= yard.right + EPS


def correct(score: Score, yard: Yardstick) -> bool:
    """Right although it looks odd."""
    return bool(score.correct) or (score.correct is None and score.value >= yard.right - EPS)


def worth(share: float) -> Judge:
    """Not correct, and worth at most this share of the way from nothing to the right answer."""

    def judge(score: Score, yard: Yardstick) -> bool:
        return not score.correct and score.value <= yard.nothing + share * (yard.right - yard.nothing) + EPS

    return judge


def part_zero(part: str) -> Judge:
    """Refused, or the part is 0; where the reward has no such part, no gain."""

    def judge(score: Score, yard: Yardstick) -> bool:
        values = [value for name, value in score.parts.items() if name.rpartition("/")[2] == part]
        return score.status == "invalid" or (not any(values) if values else no_gain(score, yard))

    return judge


def unexecuted(judge: Judge, marker: Path) -> Judge:
    """As `judge`, and the answer's command was not run."""
    return lambda score, yard: judge(score, yard) and not marker.exists()


Generator = Callable[[Case], Iterable[Attack]]
ATTACKS: dict[tuple[str, str], Generator] = {}


def attacks(exploit: str, *kinds: str) -> Callable[[Generator], Generator]:
    """Enter a generator of attacks into the table."""

    def enter(generator: Generator) -> Generator:
        ATTACKS.update(dict.fromkeys(((exploit, kind) for kind in kinds), generator))
        return generator

    return enter


def all_of(judge: Judge, texts: Iterable[str], task: Task | None = None) -> Iterable[Attack]:
    return [Attack(text, judge, task) for text in texts]
