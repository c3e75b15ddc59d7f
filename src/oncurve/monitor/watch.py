"""A run's verdicts as its metrics come in; afterwards the doctor feeds the same rows through the same code."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oncurve.config.health import VERDICTS, Action, HealthConfig, Severity, VerdictName
from oncurve.monitor.history import History
from oncurve.monitor.rules import ACCURACY, REWARD, RULES, Finding, Rule
from oncurve.monitor.statistics import holm

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a run, since when, and how that shows.

    Example: `Verdict("cap_hit", "warning", 120, 150, "answers cut off at the cap: 9.1% over 20 points, limit 5%")`.
    """

    verdict: VerdictName
    severity: Severity
    onset_step: int  # where it began, as far as the metrics tell
    detected_step: int
    evidence: str
    cleared_step: int | None = None  # where its condition had gone for two looks in a row

    @property
    def rank(self) -> int:
        """0 for info to 2 for critical."""
        return SEVERITIES.index(self.severity)


@dataclass(slots=True)
class _State:
    """Of one rule's verdict: in how many looks in a row it was found (or, below 0, was not), and how severe it last was."""

    streak: int = 0
    rank: int = 0


class Watch:
    """Follows a run. Example: `Watch(HealthConfig()).observe(rows)`.

    A verdict begins when its rule has found it in two looks in a row (or at once, for what can't be chance), and ends when it
    was not found in two looks in a row. At every look the rules' p values are corrected together.
    """

    def __init__(self, config: HealthConfig):
        self.config = config
        self.history = History()
        self.verdicts: list[Verdict] = []  # all that ever began, as they stand now
        self._open: dict[VerdictName, int] = {}  # position in `verdicts`
        self._states: dict[tuple[VerdictName, Rule], _State] = {}
        self._last_look = (0, -1)  # rows and step

    def observe(self, rows: Iterable[Mapping[str, Any]]) -> list[Verdict]:
        """Take in rows of metrics; the verdicts that began, grew more severe, or ended (`cleared_step`) with them."""
        changed: dict[int, None] = {}
        for row in rows:
            before = self.history.num_rows
            self.history.add(row)
            cadences = {"row"} if self.history.num_rows > before else set()
            if cadences and self._window_passed():
                cadences.add("window")
            if any(name.startswith("eval/") for name in row):
                cadences.add("evaluation")
            for cadence in ("row", "window", "evaluation"):
                if cadence in cadences:
                    changed |= dict.fromkeys(self._look([rule for rule in RULES if rule.cadence == cadence]))
        return [self.verdicts[i] for i in changed]

    def _window_passed(self) -> bool:
        """Whether half a window has gone by since the last look: in steps, and at least four rows."""
        rows, step = self._last_look
        if self.history.num_rows < rows + 4 or self.history.step < step + self.config.window_steps / 2:
            return False
        self._last_look = self.history.num_rows, self.history.step
        return True

    def _look(self, rules: Sequence[Rule]) -> Iterable[int]:
        found: dict[tuple[VerdictName, Rule], Finding] = {}
        with np.errstate(all="ignore"):  # a metric that makes no sense makes no verdict: its p value is no number
            for rule in rules:
                for finding in rule.look(self.history, self.config):
                    key, p = (finding.verdict, rule), finding.tests[0][1]
                    if p <= 1 and (key not in found or p < found[key].tests[0][1]):
                        found[key] = finding
        factors = holm({key: finding.tests[0][1] for key, finding in found.items()}, len(VERDICTS), self.config.level)
        for key in factors:
            if (position := self._hold(key, found[key], factors[key])) is not None:
                yield position
        for key, state in self._states.items():
            if key[1] in rules and key not in factors:
                state.streak = min(state.streak, 0) - 1
                if (position := self._release(key[0])) is not None:
                    yield position

    def _hold(self, key: tuple[VerdictName, Rule], finding: Finding, factor: int) -> int | None:
        """Count a finding; the position of its verdict if that began or grew by it."""
        rank = max(SEVERITIES.index(severity) for severity, p in finding.tests if p * factor <= self.config.level)
        state = self._states.setdefault(key, _State())
        both = rank if finding.at_once or state.streak < 1 else min(rank, state.rank)
        state.streak, state.rank = max(state.streak, 0) + 1, rank
        if state.streak < 2 and not finding.at_once:
            return None
        position = self._open.get(finding.verdict)
        if position is None:
            position = self._open[finding.verdict] = len(self.verdicts)
            onset = min(finding.onset_step, self.history.step)
            self.verdicts.append(Verdict(finding.verdict, SEVERITIES[both], onset, self.history.step, finding.evidence))
            return position
        if both <= self.verdicts[position].rank:
            return None
        self.verdicts[position] = replace(self.verdicts[position], severity=SEVERITIES[both], evidence=finding.evidence)
        return position

    def _release(self, name: VerdictName) -> int | None:
        """End an open verdict that none of its rules has found in their last two looks; its position if it ended."""
        if name not in self._open or any(
            state.streak > -2 for (verdict, _), state in self._states.items() if verdict == name
        ):
            return None
        position = self._open.pop(name)
        self.verdicts[position] = replace(self.verdicts[position], cleared_step=self.history.step)
        return position

    def missing(self) -> Verdict | None:
        """`insufficient_data`, and what can't be judged for it; asked of a run that has ended."""
        history, window = self.history, 2 * self.config.window_steps
        lacking = []
        if history.num_rows < window:
            lacking.append(f"{history.num_rows} steps were measured, and two windows are {window}")
        if len(history[REWARD]) == 0:
            lacking.append(f"no {REWARD}")
        if (num := len(history[ACCURACY])) < 5:
            lacking.append(f"{num} of the 5 evaluations ({ACCURACY}) that reward_hacking needs")
        if not lacking:
            return None
        return Verdict(
            "insufficient_data",
            "info",
            history.first_step or 0,
            history.step,
            "not all rules could judge: " + "; ".join(lacking),
        )


def line(verdict: Verdict) -> str:
    """What the terminal says when a verdict begins, grows or ends."""
    if verdict.cleared_step is not None:
        return f"{verdict.verdict} (since step {verdict.onset_step}) has gone at step {verdict.cleared_step}"
    return f"{verdict.severity.upper()} {verdict.verdict}: {verdict.evidence}"


@dataclass(frozen=True, slots=True)
class Decision:
    """What a verdict leads to. `why` is a sentence for the terminal and the run's events."""

    action: Action
    verdict: Verdict
    why: str
    to_step: int | None = None  # of the checkpoint that a rollback goes back to
    overrides: tuple[str, ...] = ()  # of the configuration, from there on


def decide(
    changed: Sequence[Verdict], config: HealthConfig, checkpoints: Sequence[int] = (), num_rollbacks: int = 0
) -> Decision | None:
    """The hardest action that verdicts which began or grew call for, or None.

    `checkpoints` are the steps of those that are intact, `num_rollbacks` how often this run went back before. A rollback
    goes to the last checkpoint before the verdict's onset; where that is not to be had, the run pauses.
    """
    found = []
    for verdict in changed:
        if verdict.cleared_step is not None or verdict.severity == "info":
            continue
        acts = verdict.rank >= SEVERITIES.index(config.act_at)
        action = config.actions.get(verdict.verdict, "warn") if acts else "warn"
        found.append(_decision(action, verdict, config, checkpoints, num_rollbacks))
    return max(found, key=lambda decision: ("warn", "pause", "rollback", "stop").index(decision.action), default=None)


def _decision(
    action: Action, verdict: Verdict, config: HealthConfig, checkpoints: Sequence[int], num_rollbacks: int
) -> Decision:
    told = f"health.actions says {action} for {verdict.verdict}"
    if action != "rollback":
        return Decision(action, verdict, told)
    before = [step for step in checkpoints if step < verdict.onset_step]
    if num_rollbacks >= config.max_rollbacks:
        return Decision(
            "pause", verdict, f"{told}, but health.max_rollbacks = {config.max_rollbacks} is used up; it pauses"
        )
    if not before:
        return Decision(
            "pause", verdict, f"{told}, but no checkpoint is older than step {verdict.onset_step}; it pauses"
        )
    with_ = ", ".join(config.rollback_with)
    return Decision(
        "rollback", verdict, f"{told}: back to step {before[-1]}, on with {with_}", before[-1], config.rollback_with
    )
