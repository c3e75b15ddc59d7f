"""Grade answers by the rules of their kind."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from oncurve.config.schema import GroundingRules, PythonRules, RewardConfig
from oncurve.rewards import grounding
from oncurve.rewards.python import PythonVerifier
from oncurve.types import Rollout, Score, Task


class LocalGrader:
    """Grades on this machine: pure and cheap verifiers in this process, a user's function in workers with deadlines.

    A fault of a verifier becomes a `Score` of status `error`, which is masked and counted, never a wrong answer.
    `latencies_ms` are those of the last `grade`, one an answer. Raises `ConfigError` where a function can't be loaded.
    """

    def __init__(self, rules: RewardConfig):
        self.latencies_ms: list[float] = []
        if isinstance(rules, PythonRules):
            self._verifier, self._num_threads = PythonVerifier(rules), rules.workers
            self.rules = f"{self._verifier.version} {self._verifier.sha256} {rules.model_dump_json()}"
        else:
            self._verifier, self._num_threads = _GroundingVerifier(rules), 1
            self.rules = f"{grounding.VERIFIER} {rules.model_dump_json()}"

    def grade(self, pairs: Sequence[tuple[Task, Rollout]]) -> list[Score]:
        if self._num_threads == 1:
            timed = [self._timed(pair) for pair in pairs]
        else:
            with ThreadPoolExecutor(self._num_threads) as threads:
                timed = list(threads.map(self._timed, pairs))
        self.latencies_ms = [latency_ms for _, latency_ms in timed]
        return [score for score, _ in timed]

    def _timed(self, pair: tuple[Task, Rollout]) -> tuple[Score, float]:
        task, rollout = pair
        begin = time.perf_counter()
        score = self._verifier.grade(task, rollout.text)
        return score, 1000 * (time.perf_counter() - begin)


class _GroundingVerifier:
    def __init__(self, rules: GroundingRules):
        self._rules = rules

    def grade(self, task: Task, text: str) -> Score:
        try:
            return grounding.grade(task.truth, text, self._rules)
        except Exception as error:  # whatever a verifier raises is its own fault, not the answer's
            words = f"{type(error).__name__}: {error}"
            return Score("error", float("nan"), evidence=words, reason="verifier", verifier=grounding.VERIFIER)
