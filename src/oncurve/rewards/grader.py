"""Grade answers by the rules of their kind."""

from collections.abc import Sequence

from oncurve.config.schema import GroundingRules
from oncurve.rewards import grounding
from oncurve.types import Rollout, Score, Task


class LocalGrader:
    """Grades in this process, which suits verifiers that are pure, cheap and can't hang, as the grounding one is.

    A fault of a verifier becomes a `Score` of status `error`, which is masked and counted, never a wrong answer.
    """

    def __init__(self, rules: GroundingRules):
        self._rules = rules
        self.rules = f"{grounding.VERIFIER} {rules.model_dump_json()}"

    def grade(self, pairs: Sequence[tuple[Task, Rollout]]) -> list[Score]:
        return [self._grade(task, rollout) for task, rollout in pairs]

    def _grade(self, task: Task, rollout: Rollout) -> Score:
        try:
            return grounding.grade(task.truth, rollout.text, self._rules)
        except Exception as error:  # whatever a verifier raises is its own fault, not the answer's
            words = f"{type(error).__name__}: {error}"
            return Score("error", float("nan"), evidence=words, reason="verifier", verifier=grounding.VERIFIER)
