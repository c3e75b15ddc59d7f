"""From one update's batches to new weights: forward, loss, backward, clip, optimizer step.

The weights of the reduction are counted over the whole update first, so the sum over micro-batches is exact.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from oncurve.config.schema import TrainConfig
from oncurve.objective import grpo
from oncurve.objective.diagnostics import mismatch_metrics, policy_metrics
from oncurve.objective.reduction import token_weights
from oncurve.optimizer import Optimizer
from oncurve.types import Batch, Group


@dataclass(slots=True)
class AnswerTerms:
    """What an update saw of one answer. Lists run over its tokens; log-probabilities and entropy in nats."""

    weight: float  # of one trained token in the update's loss; 0 where the verifier failed
    old_logps: list[float] = field(default_factory=list)
    reference_logps: list[float] | None = None
    pass_logps: list[list[float]] = field(default_factory=list)  # of the policy, in each pass over the batch
    entropy: list[float] = field(default_factory=list)  # in the first pass


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What one update did to each step's answers, and to the weights."""

    terms: list[list[list[AnswerTerms]]]  # [step][group][answer]
    losses: list[list[float]]  # [step][pass]: what the step's answers add to the loss of that pass
    metrics: dict[str, float]  # of the update as a whole


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Rows of one step that run together, with where each answer stands in the step."""

    step: int
    rows: list
    places: list[tuple[int, int]]  # (group, answer)


class Updater:
    """Makes updates with the policy that it is handed. Any split into micro-batches gives the same gradient."""

    def __init__(self, policy, config: TrainConfig):
        self.policy = policy
        self.config = config
        num_updates = config.num_steps // config.accumulate_steps * config.objective.passes
        self.optimizer = Optimizer(policy.model, config.optimizer, num_updates)

    def update(self, batches: Sequence[Batch]) -> UpdateResult:
        """`objective.passes` optimizer steps over the answers of these batches.

        The old policy of the ratio is the policy of the first pass, that is the one that wrote the answers. A pass whose
        loss or gradient is not finite leaves the weights as they are and is counted.
        """
        objective = self.config.objective
        terms = self._weigh(batches)
        chunks = [chunk for step, batch in enumerate(batches) for chunk in self._chunks(step, batch.groups)]
        advantages = [batch.advantages_PG for batch in batches]
        if self.policy.reference is not None:
            for chunk in chunks:
                logps = self._reference_logps(chunk)
                for (group, answer), values in zip(chunk.places, logps, strict=True):
                    terms[chunk.step][group][answer].reference_logps = values
        losses = [[0.0] * objective.passes for _ in batches]
        oldest = min(r.policy_version for batch in batches for group in batch.groups for r in group.rollouts)
        metrics: dict[str, float] = {
            "policy/skipped_updates/count": 0,
            "sampler/policy_lag/max": self.policy.version - oldest,
        }
        for number in range(objective.passes):
            self.optimizer.zero_grad()
            for chunk in chunks:
                loss = self._loss(chunk, batches, terms, advantages)
                loss.backward()
                losses[chunk.step][number] += loss.item()
            report = self.optimizer.step(sum(step_losses[number] for step_losses in losses))
            metrics["policy/learning_rate"] = report.learning_rate
            metrics["policy/grad_norm/before_clip"] = report.grad_norm
            metrics["policy/grad_norm/after_clip"] = min(report.grad_norm, self.config.optimizer.max_grad_norm)
            metrics["policy/skipped_updates/count"] += report.skipped
        return UpdateResult(terms, losses, metrics)

    def kl_penalties(self, groups: Sequence[Group]) -> list[list[float]]:
        """`beta` times the summed `k1` of every answer, to be taken from its reward (`place = "reward"`)."""
        penalties = [[0.0] * len(group.rollouts) for group in groups]
        for chunk in self._chunks(0, groups):
            for (g, a), reference in zip(chunk.places, self._reference_logps(chunk), strict=True):
                rollout = groups[g].rollouts[a]
                d = [
                    logp - ref
                    for logp, ref, trained in zip(rollout.logps, reference, rollout.mask, strict=True)
                    if trained
                ]
                penalties[g][a] = self.config.objective.kl.beta * math.fsum(d)
        return penalties

    def metrics(self, batch: Batch, terms: Sequence[Sequence[AnswerTerms]]) -> dict[str, float]:
        """Ratio, clipping, KL, entropy and sampler mismatch over the trained tokens of one step."""
        objective, answers = self.config.objective, []
        for group, group_advantages, group_terms in zip(batch.groups, batch.advantages_PG, terms, strict=True):
            answers += zip(group.rollouts, group_advantages, group_terms, strict=True)
        kept = [(r, advantage, term) for r, advantage, term in answers if term.weight > 0]
        if not kept:
            return {}
        mask_T = torch.tensor([trained for r, _, _ in kept for trained in r.mask])

        def over_tokens(lists: Iterable[Sequence[float]]) -> torch.Tensor:
            return torch.tensor([x for one in lists for x in one], dtype=torch.float64)[mask_T]

        old_T = over_tokens(term.old_logps for _, _, term in kept)
        with_reference = all(term.reference_logps is not None for _, _, term in kept)
        return {
            **policy_metrics(
                [over_tokens(term.pass_logps[i] for _, _, term in kept) for i in range(objective.passes)],
                old_T,
                over_tokens([advantage] * len(r.tokens) for r, advantage, _ in kept),
                over_tokens(term.entropy for _, _, term in kept),
                over_tokens(term.reference_logps for _, _, term in kept) if with_reference else None,
                clip_low=objective.clip_low,
                clip_high=objective.clip_high,
                estimator=objective.kl.estimator,
            ),
            **mismatch_metrics(over_tokens(r.logps for r, _, _ in kept), old_T),
            "tokens/distinct_share": self._distinct_share(batch.groups),
        }

    def _distinct_share(self, groups: Sequence[Group]) -> float:
        if not self.policy.shared_prefix:
            return 1.0
        rows = [row for chunk in self._chunks(0, groups) for row in chunk.rows]
        return sum(row.num_tokens for row in rows) / sum(row.num_tokens_plain for row in rows)

    def _weigh(self, batches: Sequence[Batch]) -> list[list[list[AnswerTerms]]]:
        groups = [group for batch in batches for group in batch.groups]
        lengths = [
            [sum(rollout.mask) if scored else 0 for rollout, scored in zip(group.rollouts, group.scored_G, strict=True)]
            for group in groups
        ]
        weights = iter(token_weights(lengths, self.config.objective.reduction, self.config.sampling.max_new_tokens))
        return [[[AnswerTerms(weight) for weight in next(weights)] for _ in batch.groups] for batch in batches]

    def _chunks(self, step: int, groups: Sequence[Group]) -> list[_Chunk]:
        """Answers to one prompt, whatever their groups, as rows; rows packed up to `micro_batch_tokens`."""
        by_prompt: dict[str, tuple[object, list[tuple[int, int]]]] = {}
        for g, group in enumerate(groups):
            prompt = self.policy.encode(group.task)
            _, places = by_prompt.setdefault(prompt.key, (prompt, []))
            places.extend((g, a) for a in range(len(group.rollouts)))
        budget, chunks = self.config.micro_batch_tokens, []
        for prompt, places in by_prompt.values():
            once, each = (len(prompt), 0) if self.policy.shared_prefix else (0, len(prompt))
            sizes = [each + len(_rollout(groups, place).tokens) for place in places]
            for part in _cut(places, sizes, budget - once):
                rollouts = [_rollout(groups, place) for place in part]
                row = self.policy.row(prompt, [r.tokens for r in rollouts], [r.temperature for r in rollouts])
                last = chunks[-1] if chunks else None
                if (
                    last is not None
                    and last.rows[0].prompt.batch_key == prompt.batch_key
                    and self.policy.forward_tokens([*last.rows, row]) <= budget
                ):
                    last.rows.append(row)
                    last.places.extend(part)
                else:
                    chunks.append(_Chunk(step, [row], list(part)))
        return chunks

    @torch.no_grad()
    def _reference_logps(self, chunk: _Chunk) -> list[list[float]]:
        return _split(self.policy.logps(chunk.rows, reference=True).logps_T, chunk)

    def _loss(self, chunk: _Chunk, batches: Sequence[Batch], terms, advantages) -> torch.Tensor:
        """The chunk's part of the update's loss; keeps its log-probabilities in `terms`."""
        objective, mine = self.config.objective, [terms[chunk.step][g][a] for g, a in chunk.places]
        found = self.policy.logps(chunk.rows)
        for term, logps, entropy in zip(
            mine, _split(found.logps_T, chunk), _split(found.entropy_T, chunk), strict=True
        ):
            if not term.pass_logps:
                term.old_logps, term.entropy = logps, entropy
            term.pass_logps.append(logps)
        like = {"dtype": found.logps_T.dtype, "device": found.logps_T.device}
        groups = batches[chunk.step].groups
        trained = [_rollout(groups, place).mask for place in chunk.places]
        lengths = torch.tensor([len(mask) for mask in trained], device=like["device"])

        def per_token(values: Sequence[float]) -> torch.Tensor:
            return torch.tensor(values, **like).repeat_interleave(lengths)

        def joined(lists: Sequence[Sequence[float]]) -> torch.Tensor:
            return torch.tensor([x for one in lists for x in one], **like)

        weights_T = per_token([term.weight for term in mine]) * joined(trained)
        kept_T = weights_T > 0  # what weighs nothing stays out: 0 times the NaN of a banned token would be NaN
        in_loss = objective.kl.beta > 0 and objective.kl.place == "loss"
        loss_T = grpo.token_loss(
            found.logps_T[kept_T],
            joined([term.old_logps for term in mine])[kept_T],
            per_token([advantages[chunk.step][g][a] for g, a in chunk.places])[kept_T],
            joined([term.reference_logps for term in mine])[kept_T] if in_loss else None,
            clip_low=objective.clip_low,
            clip_high=objective.clip_high,
            beta=objective.kl.beta if in_loss else 0.0,
            estimator=objective.kl.estimator,
        )
        return (weights_T[kept_T] * loss_T).sum()


def _rollout(groups: Sequence[Group], place: tuple[int, int]):
    return groups[place[0]].rollouts[place[1]]


def _cut(items: Sequence, sizes: Sequence[int], budget: int) -> list[list]:
    """Runs of items whose sizes sum to at most `budget`; an item beyond it stands alone."""
    runs: list[list] = []
    room = 0
    for item, size in zip(items, sizes, strict=True):
        if not runs or size > room:
            runs.append([])
            room = budget
        runs[-1].append(item)
        room -= size
    return runs


def _split(values_T: torch.Tensor, chunk: _Chunk) -> list[list[float]]:
    lengths = [len(answer) for row in chunk.rows for answer in row.answers]
    return [part.tolist() for part in values_T.detach().split(lengths)]
