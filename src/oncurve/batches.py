"""What an update is given and what the record keeps of it: advantages, written answers, a row for every answer."""

import json
from collections.abc import Sequence
from itertools import compress
from math import nan
from statistics import fmean

import numpy as np

from oncurve.advantage import decoupled_advantages, update_advantages
from oncurve.answers import AnswerTerms
from oncurve.config.schema import ObjectiveConfig, TrainConfig
from oncurve.groups.signal import why_no_signal
from oncurve.policy.policy import Policy
from oncurve.record.schema import AnswerRecord
from oncurve.sft import written_answer
from oncurve.tasks.labels import written
from oncurve.truths import truth_json
from oncurve.types import Batch, Group, Role
from oncurve.update import Updater


def make_batches(
    assembled: Sequence[tuple[int, tuple[Group, ...], tuple[Role, ...]]], updater: Updater, config: TrainConfig
) -> list[Batch]:
    """An update's batches with their advantages, from rewards less their KL penalty where the KL term is in the reward."""
    groups, kl = [group for _, groups, _ in assembled for group in groups], config.objective.kl
    if config.objective.type == "ppo":
        found = iter([(0.0,) * len(group.rollouts) for group in groups])
    elif config.reward.type == "compose" and config.reward.normalise == "before":
        found = iter(_decoupled(groups, config))
    else:
        rewards_PG = [group.rewards_G for group in groups]
        if kl.beta > 0 and kl.place == "reward":
            penalties_PG = updater.kl_penalties(groups)
            rewards_PG = [np.subtract(*pair).tolist() for pair in zip(rewards_PG, penalties_PG, strict=True)]
        scored_PG = [group.scored_G for group in groups]
        found = iter(update_advantages(rewards_PG, scored_PG, **config.advantage.model_dump()))
    return [Batch(step, groups, tuple(next(found) for _ in groups), roles) for step, groups, roles in assembled]


def _decoupled(groups: Sequence[Group], config: TrainConfig) -> list[tuple[float, ...]]:
    """Advantages with each part of the composed reward normalised on its own."""
    parts_PK = [[part for part in config.reward.parts if part.is_for(group.task.kind)] for group in groups]
    return decoupled_advantages(
        [
            [[score.parts.get(part.name, nan) for score in group.scores] for part in parts]
            for group, parts in zip(groups, parts_PK, strict=True)
        ],
        [[abs(part.weight) for part in parts] for parts in parts_PK],
        [group.scored_G for group in groups],
        std=config.advantage.std,
        baseline=config.advantage.baseline,
        eps=config.advantage.eps,
    )


def written_answers(batches: Sequence[Batch], policy: Policy, config: TrainConfig) -> list[list[tuple[int, ...]]]:
    """The written answer to each group's task, by step and group; () for a group that is not supervised."""
    every, silent = config.objective.sft_weight > 0, config.groups.no_signal.type == "supervise"
    if not (every or silent):
        return []

    def tokens(group: Group) -> tuple[int, ...]:
        if every or why_no_signal(group, config.advantage.tolerance):
            return written_answer(policy, written(group.task))
        return ()

    return [[tokens(group) for group in batch.groups] for batch in batches]


def answer_records(
    batch: Batch, terms: Sequence[Sequence[AnswerTerms]], policy: Policy, objective: ObjectiveConfig
) -> list[AnswerRecord]:
    """The record's rows of one step, in the order of its groups and answers."""
    rows, ppo = [], objective.type == "ppo"
    for g, (group, group_terms) in enumerate(zip(batch.groups, terms, strict=True)):
        prompt = policy.encode(group.task)
        shared = {
            "step": batch.step,
            "group": g,
            "task_id": group.task.id,
            "kind": group.task.kind,
            "prompt": prompt.text,
            "images": list(prompt.image_hashes),
            "model_image_sizes": [list(size) for size in prompt.model_image_sizes],
            "truth": json.dumps(truth_json(group.task.truth)),
            "messages": json.dumps([{"role": m.role, "text": m.text} for m in group.task.messages]),
            "options": json.dumps(dict(group.task.options)),
            "fingerprint": group.fingerprint,
        }
        for a, (rollout, score, term) in enumerate(zip(group.rollouts, group.scores, group_terms, strict=True)):
            tokens = rollout.tokens
            rows.append(
                AnswerRecord(
                    **shared,
                    answer=a,
                    index=rollout.index,
                    text=rollout.text,
                    tokens=list(tokens),
                    token_texts=policy.token_texts(tokens),
                    mask=list(rollout.mask),
                    stop=rollout.stop,
                    temperature=rollout.temperature,
                    seed=rollout.seed,
                    policy_version=rollout.policy_version,
                    status=score.status,
                    value=score.value,
                    correct=score.correct,
                    parts=json.dumps(dict(score.parts)),
                    extracted=json.dumps(score.extracted),
                    evidence=score.evidence,
                    reason=score.reason,
                    verifier=score.verifier,
                    advantage=fmean(compress(term.advantages, rollout.mask)) if ppo else term.advantages[0],
                    weight=term.weight,
                    sampler_logps=list(rollout.logps),
                    old_logps=term.old_logps,
                    reference_logps=term.reference_logps,
                    pass_logps=term.pass_logps,
                    trained=term.weight > 0,
                    pass_entropies=term.pass_entropies if objective.entropy else None,
                    token_advantages=term.advantages if ppo else None,
                    old_values=term.old_values,
                    returns=term.returns,
                    pass_values=term.pass_values if ppo else None,
                )
            )
    return rows
