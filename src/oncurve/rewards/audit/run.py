"""Attack a reward on a config's own tasks, and measure what it pays for."""

import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from oncurve.config.rewards import KIND_RULES, KindRules, PythonRules, RewardConfig
from oncurve.errors import BrokenReward
from oncurve.rewards.answers import text_answer
from oncurve.rewards.audit import boxes, empty, mathematics, numbers, programs, queries, reports, words  # noqa: F401
from oncurve.rewards.audit.attack import ATTACKS, Attack, Case, Exploit, Yardstick, exploits
from oncurve.rewards.audit.checks import CHECKS, Honest, constant, do_nothing, summed
from oncurve.rewards.audit.finding import Finding
from oncurve.rewards.audit.written import NONSENSE, better_answers, constant_answers, right_answer, wrong_answers
from oncurve.rewards.kinds import rules_for, rules_of
from oncurve.types import Grader, Rollout, Score, Task, TaskSet

NUM_TASKS, NUM_TASKS_QUICK = 8, 3  # of one kind
NUM_SHOWN = 5  # broken exploits, in a refusal
NUM_SEEN = 200  # tasks looked at for kinds
SLOW = ("expression_bomb", "fork_bomb_or_hang", "sql_bomb")  # one answer at a time, on one task, not in a quick audit
BOMB_TIMEOUT_S = 1.0
GRACE_S = 5.0  # behind its time-out, for a process to be killed and a new one to start
MAX_GROWTH_BYTES = 512 << 20  # of this process during a bomb
NUM_ATTEMPTS = 2  # of a grader, where a function fails
RSS_UNIT = 1 if sys.platform == "darwin" else 1024

Graded = list[tuple[Case, str, Score, bool]]


def audit(
    grader: Grader, reward: RewardConfig, tasks: TaskSet, *, quick: bool = False, limit: int | None = None
) -> list[Finding]:
    """One finding for each exploit and each check on each kind that is among the tasks.

    `limit` is the number of tasks of one kind. Attacks are executed through `grader` alone. `quick` leaves out the slow
    ones and takes fewer tasks. Raises what `grader.grade` raises for tasks that it can't grade.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        sole = reward.type if isinstance(reward, KindRules) else None
        for kind, some in by_kind(tasks, limit or (NUM_TASKS_QUICK if quick else NUM_TASKS), sole).items():
            found += Audit(grader, reward, kind, some, Path(folder) / "executed", quick).findings()
    return found


def refuse_broken(grader: Grader, reward: RewardConfig, tasks: TaskSet) -> None:
    """A quick audit. Raises `BrokenReward` that names what won."""
    broken = [finding for finding in audit(grader, reward, tasks, quick=True) if not finding.ok]
    if broken:
        shown = "".join(f"\n    {f.exploit} ({f.kind}): {f.verdict}; right is: {f.right}" for f in broken[:NUM_SHOWN])
        more = f"\n    and {len(broken) - NUM_SHOWN} more" if len(broken) > NUM_SHOWN else ""
        raise BrokenReward(
            f"the reward can be won without doing the task, and a model would find out:{shown}{more}\n"
            "    `oncurve audit CONFIG` shows each in full; mend the reward, or train with --no-audit"
        )


def by_kind(tasks: TaskSet, limit: int, sole: str | None = None) -> dict[str, list[Task]]:
    """The first `limit` tasks of each kind, of some `NUM_SEEN` that lie evenly over the set; `sole` is the only kind in it."""
    found: dict[str, list[Task]] = {}
    for index in range(0, len(tasks), max(1, len(tasks) // NUM_SEEN)):
        task = tasks[index]
        found.setdefault(task.kind, [])
        if len(found[task.kind]) < limit:
            found[task.kind].append(task)
        if sole in found and len(found[sole]) == limit:
            break
    return found


class Audit:
    """The audit of one kind's tasks. `marker` is a file that exists only once an answer was executed outside a sandbox."""

    def __init__(
        self, grader: Grader, reward: RewardConfig, kind: str, tasks: Sequence[Task], marker: Path, quick: bool
    ):
        self._grader, self._kind, self._quick, self._marker = grader, kind, quick, marker
        rules = rules_of(reward, kind)
        self._known = rules is not None
        self._own = not self._known or reward.type == "compose"  # what breaks a format may count 0 and be scored there
        self._deadline_s = GRACE_S + (BOMB_TIMEOUT_S if self._known else 0.0) + NUM_ATTEMPTS * slowest_s(reward)
        self._seen: list[tuple[Case, str, Score]] = []
        self._honest = [self._answered(case) for case in self._cases(rules or KIND_RULES[kind](type=kind), tasks)]

    def findings(self) -> list[Finding]:
        checks = (check(self._kind, self._honest) for check in CHECKS)
        attacked = [self._attacked(exploit) for exploit in exploits() if exploit.name not in ("constant", "do_nothing")]
        named = {exploit.name: exploit for exploit in exploits()}
        return [
            *(finding for finding in checks if finding),
            self._constant(named["constant"]),
            *attacked,
            self._do_nothing(named["do_nothing"]),
        ]

    def _cases(self, base: KindRules, tasks: Sequence[Task]) -> list[Case]:
        rules = [rules_for(task, base) for task in tasks]
        if not self._known:
            best = max(spellings(rules[0]), key=lambda rules: self._pays(tasks[0], right_answer(tasks[0], rules)))
            rules = [best] * len(tasks)
        return [
            Case(task, r, right_answer(task, r), wrong_answers(task, r), self._marker)
            for task, r in zip(tasks, rules, strict=True)
        ]

    def _pays(self, task: Task, text: str) -> float:
        score = self._grader.grade([(task, answer(task, text))])[0]
        return score.value if score.status == "scored" else float("-inf")

    def _answered(self, case: Case) -> Honest:
        nothing = (NONSENSE, "")
        series = better_answers(case.task, case.rules)
        texts = [case.right, *case.wrong, *nothing, *(text for some in series for text in some)]
        scores = iter(self._grade(case, [(case.task, text) for text in texts]))
        right, wrong = next(scores), tuple(next(scores) for _ in case.wrong)
        said = tuple((text, next(scores)) for text in nothing)
        moved = tuple(tuple((text, next(scores)) for text in some) for some in series)
        nothing_pays = least([score for _, score in said], 0.0)
        yard = Yardstick(right.value, least(wrong, nothing_pays), nothing_pays, self._own)
        return Honest(case, yard, right, wrong, said, moved)

    def _grade(self, case: Case, pairs: Sequence[tuple[Task, str]]) -> list[Score]:
        scores = self._grader.grade([(task, answer(task, text)) for task, text in pairs])
        self._seen += [
            (case, text, score) for (task, text), score in zip(pairs, scores, strict=True) if task is case.task
        ]
        return scores

    def _attacked(self, exploit: Exploit) -> Finding:
        generator = ATTACKS.get((exploit.name, self._kind))
        slow = exploit.name in SLOW
        named = exploit.name, self._kind, exploit.does, exploit.right
        if generator is None or not exploit.of(self._kind):
            return Finding(*named, applies=False)
        if slow and self._quick:
            return Finding(*named, verdict="left out of a quick audit")
        found: Graded = []
        for honest in self._honest[: 1 if slow else None]:
            attacks = list(generator(honest.case))
            found += self._bombed(honest, attacks) if slow else self._judged(honest, attacks)
        if found:
            found += self._unharmed(self._honest[0])
        return summed(*named, found)

    def _judged(self, honest: Honest, attacks: Sequence[Attack]) -> Graded:
        case = honest.case
        scores = self._grade(case, [(attack.task or case.task, attack.text) for attack in attacks])
        return [
            (case, attack.text, score, is_right(score, attack, honest.yard))
            for attack, score in zip(attacks, scores, strict=True)
        ]

    def _bombed(self, honest: Honest, attacks: Sequence[Attack]) -> Graded:
        """Each alone, against the clock and this process's memory."""
        case, found = honest.case, []
        task = case.task
        if self._known and "timeout_s" in type(case.rules).model_fields:
            task = replace(task, options={**task.options, "timeout_s": BOMB_TIMEOUT_S})
        for attack in attacks:
            begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            [(_, text, score, ok)] = self._judged(honest, [replace(attack, task=task)])
            growth = RSS_UNIT * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
            in_time = time.monotonic() - begin <= self._deadline_s
            found.append((case, text, score, ok and in_time and growth <= MAX_GROWTH_BYTES))
        return found

    def _unharmed(self, honest: Honest) -> Graded:
        """The right answer once more, where an attack has changed what it gets."""
        case = honest.case
        [score] = self._grade(case, [(case.task, case.right)])
        same = (score.status, score.correct, score.value) == (
            honest.right.status,
            honest.right.correct,
            honest.right.value,
        )
        return [] if same or honest.right.status == "error" else [(case, case.right, score, False)]

    def _constant(self, exploit: Exploit) -> Finding:
        cases = [honest.case for honest in self._honest]
        pool = dict.fromkeys(
            [*(case.right for case in cases), *constant_answers(cases[0].rules, [c.task for c in cases])]
        )
        source = {case.right: case for case in reversed(cases)}  # an answer is not tried on the task it is from
        pairs = [(text, case) for text in pool for case in cases if source.get(text) is not case]
        scores = self._grader.grade([(case.task, answer(case.task, text)) for text, case in pairs])
        paid: dict[str, list[tuple[Case, Score]]] = {}
        for (text, case), score in zip(pairs, scores, strict=True):
            if score.status != "error":
                paid.setdefault(text, []).append((case, score))
        return constant(self._kind, exploit.does, exploit.right, self._honest, paid)

    def _do_nothing(self, exploit: Exploit) -> Finding:
        return do_nothing(self._kind, exploit.does, exploit.right, self._honest, self._seen)


def least(scores: Sequence[Score], otherwise: float) -> float:
    return min((score.value for score in scores if score.status != "error"), default=otherwise)


def answer(task: Task, text: str) -> Rollout:
    """`text` as an answer by a model that saw the images in their own sizes."""
    return text_answer(task, text, [image.pixels.size for image in task.images])


def is_right(score: Score, attack: Attack, yard: Yardstick) -> bool:
    """An error never is; an answer that a function has declined to grade has won nothing."""
    if score.status == "error":
        return score.reason == "not_graded"
    return attack.judge(score, yard)


def slowest_s(reward: RewardConfig) -> float:
    """The longest that a function of the user's own may take."""
    every = [part.rules for part in reward.parts] if reward.type == "compose" else [reward]
    return max((rules.timeout_s for rules in every if isinstance(rules, PythonRules)), default=0.0)


def spellings(rules: KindRules) -> Iterator[KindRules]:
    """The rules in each dialect and format that the kind knows: a function of the user's own reads one of them."""
    yield rules
    for field in ("dialect", "format"):
        if field in type(rules).model_fields:
            for name in get_args(type(rules).model_fields[field].annotation):
                yield rules.model_copy(update={field: name})
