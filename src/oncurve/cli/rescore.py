"""Grade a run's recorded answers again by today's rules, and show what would change. The record stays as it is.

oncurve rescore runs/cat_and_dog                          the run's own rules, today's verifiers
oncurve rescore runs/cat_and_dog --config new.toml        the rules of another configuration
oncurve rescore runs/cat_and_dog --from 100 --json

Answers whose verifier had failed get a score this way.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

TAKES_OVERRIDES = True
NUM_SHOWN = 5
TOLERANCE = 1e-12  # of a value that is the same


@dataclass(frozen=True, slots=True)
class Change:
    """One answer, as it was scored and as it would be now."""

    row: Any  # AnswerRecord
    score: Any  # Score

    @property
    def differs(self) -> bool:
        same_value = self.row.status == "error" or abs(self.row.value - self.score.value) <= TOLERANCE
        return self.row.status != self.score.status or self.row.correct != self.score.correct or not same_value

    @property
    def size(self) -> float:
        """How far the value moved; an answer that had no value, or has none now, comes first."""
        if "error" in (self.row.status, self.score.status):
            return float("inf") if self.row.status != self.score.status else 0.0
        return abs(self.row.value - self.score.value)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument("--config", type=Path, metavar="CONFIG", help="grade by this configuration's [reward]")
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="STEP", help="the first step to grade (1)")
    parser.add_argument("--to", dest="last", type=int, metavar="STEP", help="the last one")
    parser.add_argument(
        "--allow-unsafe", action="store_true", help="run code without isolation, which every score says"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document and nothing else")


def run(args: argparse.Namespace) -> int:
    from oncurve.cli.train import config_of
    from oncurve.config.loader import load
    from oncurve.config.schema import TrainConfig
    from oncurve.errors import ConfigError, RunError
    from oncurve.record.reader import RunReader
    from oncurve.rewards.grader import LocalGrader

    reader = RunReader(args.run)
    if "reward" not in reader.config:
        raise RunError(f"{args.run} has no rewards: it was trained on written answers")
    if args.overrides and not args.config:
        raise ConfigError("--KEY=VALUE changes a configuration; name one with --config CONFIG")
    config = load(args.config, args.overrides, TrainConfig) if args.config else config_of(args.run)
    grader = LocalGrader(config.reward, allow_unsafe=args.allow_unsafe)
    steps = [step for step in reader.steps() if args.first <= step and (args.last is None or step <= args.last)]
    if not steps:
        raise RunError(f"{args.run} has no recorded step from {args.first} to {args.last or 'its end'}")
    changes = [change for step in steps for change in regrade(reader.step(step), grader)]
    report = summary(changes) | {
        "run": str(args.run),
        "rules_then": reader.info.get("reward_rules"),
        "rules_now": grader.rules,
    }
    worst = sorted((change for change in changes if change.differs), key=lambda change: -change.size)[:NUM_SHOWN]
    if args.json:
        print(json.dumps(report | {"examples": [_example(change) for change in worst]}))
    else:
        _show(report, worst)
    return 0


def regrade(rows, grader) -> Iterator[Change]:
    """The changes of a step's answers, in their order."""
    from oncurve.rewards.answers import text_answer
    from oncurve.truths import parse_truth
    from oncurve.types import Message, Task

    pairs = []
    for row in rows:
        messages = tuple(Message(turn["role"], turn["text"]) for turn in json.loads(row.messages))
        truth = parse_truth(row.kind, json.loads(row.truth))
        task = Task(row.task_id, row.kind, messages, truth, json.loads(row.options))
        pairs.append((task, text_answer(task, row.text, [tuple(size) for size in row.model_image_sizes])))
    yield from (Change(row, score) for row, score in zip(rows, grader.grade(pairs), strict=True))


def summary(changes: list[Change]) -> dict[str, Any]:
    """Counts, mean rewards before and after over the answers that have one, and how many groups gain or lose their signal."""
    then: dict[tuple[int, int], set[float]] = {}
    now: dict[tuple[int, int], set[float]] = {}
    for change in changes:
        key = change.row.step, change.row.group
        if change.row.status != "error":
            then.setdefault(key, set()).add(change.row.value)
        if change.score.status != "error":
            now.setdefault(key, set()).add(change.score.value)
    groups = {(change.row.step, change.row.group) for change in changes}
    had, has = ({key for key in groups if len(values.get(key, ())) > 1} for values in (then, now))
    moves = Counter(
        f"{change.row.status} -> {change.score.status}"
        for change in changes
        if change.row.status != change.score.status
    )
    return {
        "num_answers": len(changes),
        "num_changed": sum(change.differs for change in changes),
        "mean_reward_then": _mean(change.row.value for change in changes if change.row.status != "error"),
        "mean_reward_now": _mean(change.score.value for change in changes if change.score.status != "error"),
        "num_correct_then": sum(bool(change.row.correct) for change in changes),
        "num_correct_now": sum(bool(change.score.correct) for change in changes),
        "status_changes": dict(moves.most_common()),
        "num_groups": len(groups),
        "groups_that_gain_a_signal": len(has - had),
        "groups_that_lose_theirs": len(had - has),
    }


def _mean(values: Iterator[float]) -> float | None:
    found = list(values)
    return fmean(found) if found else None


def _example(change: Change) -> dict[str, Any]:
    from oncurve.cli.grade import score_json

    row = change.row
    then = {"status": row.status, "value": None if row.status == "error" else row.value, "correct": row.correct}
    place = {"step": row.step, "group": row.group, "answer": row.answer, "task_id": row.task_id}
    return place | {"text": row.text, "then": then | {"evidence": row.evidence}, "now": score_json(change.score)}


def _show(report: dict[str, Any], worst: list[Change]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    console.print(f"{report['num_changed']} of {report['num_answers']} answers would be scored otherwise")
    then, now = (
        "none" if report[key] is None else f"{report[key]:.4f}" for key in ("mean_reward_then", "mean_reward_now")
    )
    console.print(f"mean reward   {then} -> {now}")
    console.print(f"correct       {report['num_correct_then']} -> {report['num_correct_now']}")
    for move, count in report["status_changes"].items():
        console.print(f"{move:<20}{count} answers")
    gain, lose = report["groups_that_gain_a_signal"], report["groups_that_lose_theirs"]
    console.print(f"{report['num_groups']} groups: {gain} would gain a signal, {lose} would lose theirs")
    for change in worst:
        row, score = change.row, change.score
        console.print(f"\nstep {row.step}, group {row.group}, answer {row.answer}, task {escape(row.task_id)}")
        console.print(f"  {escape(row.text[:300])}", style="cyan")
        console.print(f"  then  {row.status} {row.value:.4g}  {escape(row.evidence)}")
        console.print(f"  now   {score.status} {score.value:.4g}  {escape(score.evidence)}")
