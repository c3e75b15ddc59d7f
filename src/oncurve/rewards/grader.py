"""Grade answers by the rules of their kind."""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from oncurve.config.rewards import KindRules, RewardConfig
from oncurve.errors import BrokenTruth, OncurveError
from oncurve.rewards.compose import open_verifier
from oncurve.rewards.kinds import rules_for
from oncurve.rewards.scores import failed
from oncurve.types import Rollout, Score, Task


class LocalGrader:
    """Grades on this machine. Verifiers that start processes of their own answer several at a time.

    A fault of a verifier is tried again, then becomes a `Score` of status `error`, which is masked and counted, never a
    wrong answer. `latencies_ms` are those of the last `grade`, one an answer. Raises `ConfigError` where a function
    can't be loaded.
    """

    def __init__(self, rules: RewardConfig, *, allow_unsafe: bool = False):
        self.latencies_ms: list[float] = []
        self._rules, self._of_a_kind = rules, isinstance(rules, KindRules)
        self._verifier = open_verifier(rules, allow_unsafe=allow_unsafe)
        num_threads = getattr(self._verifier, "num_threads", 1)
        self._threads = ThreadPoolExecutor(num_threads) if num_threads > 1 else None  # a sandbox ends with its thread
        self.rules = f"{self._verifier.version} {rules.model_dump_json()}"

    @property
    def isolation(self) -> str | None:
        """The level at which this grader runs code that a model wrote, where it has met a task that needs it."""
        return getattr(self._verifier, "isolation", None)

    def check(self, tasks: Iterable[Task]) -> None:
        """Raises `ConfigError` for a task of a kind that the rules don't grade, `BrokenTruth` for one with a broken truth,
        or on which the verifier itself fails.
        """
        for task in tasks:
            try:
                self._verifier.check(task, self._rules_of(task))
            except OncurveError:
                raise
            except Exception as error:
                raise BrokenTruth(f"the verifier fails on it: {type(error).__name__}: {error}") from error

    def grade(self, pairs: Sequence[tuple[Task, Rollout]]) -> list[Score]:
        timed = list((self._threads.map if self._threads else map)(self._timed, pairs))
        self.latencies_ms = [latency_ms for _, latency_ms in timed]
        return [score for score, _ in timed]

    def _timed(self, pair: tuple[Task, Rollout]) -> tuple[Score, float]:
        begin = time.perf_counter()
        score = self._attempt(*pair)
        if score.status == "error":  # the fault may be the machine's, and gone the next time
            score = self._attempt(*pair)
        return score, 1000 * (time.perf_counter() - begin)

    def _attempt(self, task: Task, rollout: Rollout) -> Score:
        rules = self._rules_of(task)
        try:
            return self._verifier.grade(task, rollout, rules)
        except OncurveError:  # the user's to mend: a task that the rules don't fit
            raise
        except Exception as error:  # whatever else a verifier raises is its own fault, not the answer's
            return failed(error, self._verifier.version)

    def _rules_of(self, task: Task) -> RewardConfig:
        return rules_for(task, self._rules) if self._of_a_kind else self._rules
