"""The built-in general questions: their right answers are right, and no answer fits them all."""

from collections import Counter

from oncurve.config.rewards import KindsRules
from oncurve.rewards.answers import text_answer
from oncurve.rewards.audit.written import right_answer
from oncurve.rewards.grader import LocalGrader
from oncurve.rewards.kinds import rules_of
from oncurve.tasks.sets import load_tasks, parse_data

RULES = KindsRules(type="kinds")


def test_every_question_can_be_answered_rightly():
    found = load_tasks(parse_data("general"))
    tasks = [found[i] for i in range(len(found))]
    assert len(tasks) == 60
    assert Counter(task.kind for task in tasks) == {"choice": 18, "counting": 12, "math": 16, "short_answer": 14}
    assert all(task.category for task in tasks)
    assert len({task.messages[0].text for task in tasks}) == 60
    grader = LocalGrader(RULES)
    grader.check(tasks)
    answers = [text_answer(task, right_answer(task, rules_of(RULES, task.kind))) for task in tasks]
    assert all(score.correct for score in grader.grade(list(zip(tasks, answers, strict=True))))


def test_no_letter_is_right_for_most_choices():
    found = load_tasks(parse_data("general"))
    letters = Counter(task.truth.choice for task in map(found.__getitem__, range(60)) if task.kind == "choice")
    assert set(letters) == set("ABCD")
    assert max(letters.values()) <= 6
