r"""The choice verifier: exactly one of the choices, spelt as it is given."""

from oncurve.config.rewards import ChoiceRules
from oncurve.errors import BrokenTruth
from oncurve.parsing import MalformedAnswer
from oncurve.rewards.final import final_answer
from oncurve.rewards.measures import words
from oncurve.rewards.scores import invalid
from oncurve.truths import ChoiceTruth
from oncurve.types import Rollout, Score, Task

VERIFIER = "choice/1"
MAX_CHARACTERS = 4000


class Verifier:
    version = VERIFIER

    def check(self, task: Task, rules: ChoiceRules) -> None:
        if task.truth.choice not in rules.choices:
            raise BrokenTruth(f"truth.choice: {task.truth.choice!r} is none of the choices {', '.join(rules.choices)}")

    def grade(self, task: Task, answer: Rollout, rules: ChoiceRules) -> Score:
        return grade(task.truth, answer.text, rules)


def grade(truth: ChoiceTruth, text: str, rules: ChoiceRules) -> Score:
    """1 for the truth's choice, 0 for another; what is none of them, or several, is invalid."""
    try:
        final = final_answer(text, rules.format)
        choice = _choice(final.inner, rules)
    except MalformedAnswer as fault:
        return invalid(fault, rules.floor, VERIFIER)
    correct = choice == truth.choice
    return Score(
        status="scored",
        value=float(correct),
        correct=correct,
        parts={"format": float(final.reasoned)},
        extracted=choice,
        evidence=f"chose {choice}, as the truth" if correct else f"chose {choice}; the truth is {truth.choice}",
        verifier=VERIFIER,
    )


def _choice(inner: str, rules: ChoiceRules) -> str:
    named = inner.removeprefix(r"\text{").removesuffix("}") if inner.startswith(r"\text{") else inner
    if named in rules.choices:
        return named
    several = {choice.lower() for choice in rules.choices} & set(words(inner[:MAX_CHARACTERS]))
    if len(several) > 1:
        raise MalformedAnswer("multi_answer", f"more than one choice: {inner[:40]!r}")
    raise MalformedAnswer("not_a_choice", f"{inner[:40]!r} is not one of the choices alone: {', '.join(rules.choices)}")
