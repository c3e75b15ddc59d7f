"""Put answers into groups, and refuse a group whose members differ in what they must share."""

from collections.abc import Sequence
from hashlib import sha256

from oncurve.errors import MixedGroupError
from oncurve.truths import truth_json
from oncurve.types import Group, Rollout, Score, Task


def fingerprint(task: Task, rules: str, policy_version: int) -> str:
    """SHA-256 over what the answers of one group share: task, prompt, system prompt, images, truth, rules, policy version."""
    messages = [(m.role, m.text, [image.sha256 for image in m.images]) for m in task.messages]
    shared = (task.id, task.kind, messages, truth_json(task.truth), sorted(task.options.items()), rules, policy_version)
    return sha256(repr(shared).encode()).hexdigest()


def make_group(task: Task, rollouts: Sequence[Rollout], scores: Sequence[Score], rules: str) -> Group:
    """One group of answers to `task`.

    Raises `MixedGroupError`, naming the field that differs, where an answer is to another task or by another policy
    version, or where two scores come from different verifiers.
    """
    _same("task", [task.id, *(rollout.task_id for rollout in rollouts)], task)
    _same("policy version", [rollout.policy_version for rollout in rollouts], task)
    _same("verifier", [score.verifier for score in scores], task)
    indices = [rollout.index for rollout in rollouts]
    if len(set(indices)) < len(indices):
        raise MixedGroupError(f"task {task.id}: answer {max(indices, key=indices.count)} stands in its group twice")
    return Group(task, tuple(rollouts), tuple(scores), fingerprint(task, rules, rollouts[0].policy_version))


def assemble(
    tasks: Sequence[Task],
    rollouts_PG: Sequence[Sequence[Rollout]],
    scores_PG: Sequence[Sequence[Score]],
    rules: str,
    group_size: int,
) -> tuple[Group, ...]:
    """The groups of a step: each task's answers in their order, cut into groups of `group_size`."""
    return tuple(
        make_group(task, rollouts[i : i + group_size], scores[i : i + group_size], rules)
        for task, rollouts, scores in zip(tasks, rollouts_PG, scores_PG, strict=True)
        for i in range(0, len(rollouts), group_size)
    )


def _same(field: str, values: Sequence[object], task: Task) -> None:
    for index, value in enumerate(values):
        if value != values[0]:
            raise MixedGroupError(
                f"task {task.id}: a group mixes two values of its {field}, {values[0]!r} and {value!r} (member {index}); "
                "answers are compared only where task, rules and policy version are the same"
            )
