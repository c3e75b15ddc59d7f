"""Put answers into groups, and refuse a group whose members differ in what they must share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from oncurve.errors import MixedGroupError
from oncurve.truths import truth_json
from oncurve.types import Group, Rollout, Score, Task


@dataclass(frozen=True, slots=True)
class Member:
    """An answer with the task that it was asked, and the rules that it was graded by. They may come of several rounds."""

    task: Task
    rollout: Rollout
    score: Score
    rules: str  # names and versions of all rules


def shared_fields(task: Task, rules: str, policy_version: int) -> dict[str, Any]:
    """What the answers of one group share, by the names that an error says."""
    return {
        "task": task.id,
        "kind": task.kind,
        "system prompt": tuple(m.text for m in task.messages if m.role == "system"),
        "prompt": tuple((m.role, m.text) for m in task.messages if m.role != "system"),
        "messages": tuple((m.role, len(m.images)) for m in task.messages),
        "images": tuple(image.sha256 for image in task.images),
        "truth": truth_json(task.truth),
        "options": sorted(task.options.items()),
        "rules": rules,
        "policy version": policy_version,
    }


def fingerprint(task: Task, rules: str, policy_version: int) -> str:
    """SHA-256 over what the answers of one group share: task, prompt, system prompt, images, truth, rules, policy version."""
    return sha256(repr(list(shared_fields(task, rules, policy_version).items())).encode()).hexdigest()


def make_group(members: Sequence[Member]) -> Group:
    """One group. Raises `MixedGroupError`, naming the field that differs, where its members are not to be compared.

    They must share the task with all that belongs to it, the rules, the verifier and the policy version.
    """
    first: dict[str, Any] = {}
    for number, member in enumerate(members):
        for name, value in _fields(member).items():
            if value != first.setdefault(name, value):
                raise MixedGroupError(
                    f"task {members[0].task.id}: a group mixes two values of its {name}, {_short(first[name])} and "
                    f"{_short(value)} (member {number}); answers are compared only where task, prompt, images, truth, "
                    "rules and policy version are the same"
                )
    for number, member in enumerate(members):
        if member.rollout.task_id != member.task.id:
            raise MixedGroupError(f"task {member.task.id}: member {number} is an answer to {member.rollout.task_id}")
    indices = [member.rollout.index for member in members]
    if len(set(indices)) < len(indices):
        twice = max(indices, key=indices.count)
        raise MixedGroupError(f"task {members[0].task.id}: answer {twice} stands in its group twice")
    task, rules, version = members[0].task, members[0].rules, members[0].rollout.policy_version
    rollouts, scores = (tuple(column) for column in zip(*((m.rollout, m.score) for m in members), strict=True))
    return Group(task, rollouts, scores, fingerprint(task, rules, version))


def assemble(answers: Iterable[Member], group_size: int | None = None) -> tuple[Group, ...]:
    """The groups of a step, in the order in which their tasks came up: each task's answers, of all rounds.

    They are cut into groups of `group_size` where one is given.
    """
    by_task: dict[str, list[Member]] = {}
    for member in answers:
        by_task.setdefault(member.task.id, []).append(member)
    return tuple(
        make_group(members[i : i + (group_size or len(members))])
        for members in by_task.values()
        for i in range(0, len(members), group_size or len(members))
    )


def _fields(member: Member) -> Mapping[str, Any]:
    """A score of status `error` may name a part's verifier, the one that failed."""
    verifier = {"verifier": member.score.verifier} if member.score.status != "error" else {}
    return shared_fields(member.task, member.rules, member.rollout.policy_version) | verifier


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
