"""From one update's batches to new weights: forward, loss, backward, clip, optimizer step.

The weights of the reduction are counted over all answers of an optimizer step first, so the sum over micro-batches is exact.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress

import torch

from oncurve.answers import (
    Answer,
    AnswerTerms,
    Chunk,
    WrittenAnswer,
    by_answer,
    cut,
    in_parts,
    joined,
    scattered,
    token_inputs,
)
from oncurve.config.schema import TrainConfig
from oncurve.objective import critic
from oncurve.objective.diagnostics import critic_metrics, mismatch_metrics, policy_metrics
from oncurve.objective.grpo import kl_estimate
from oncurve.objective.reduction import token_weights
from oncurve.objective.terms import needs_every_answer, token_terms
from oncurve.optimizer import Optimizer, StepReport
from oncurve.types import Batch, Group, Role, Rollout


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What one update did to each step's answers, and to the weights."""

    terms: list[list[list[AnswerTerms]]]  # [step][group][answer]
    losses: list[list[float]]  # [step][pass]: what the step's answers add to the loss, a mean over mini-batches
    metrics: dict[str, float]  # of the update as a whole


class Updater:
    """Makes updates with the policy that it is handed. Any split into micro-batches gives the same gradient."""

    def __init__(self, policy, config: TrainConfig):
        self.policy, self.config, self.objective = policy, config, config.objective
        num_steps = config.num_steps // config.accumulate_steps * config.objective.optimizer_steps
        self.optimizer = Optimizer(policy.model, config.optimizer, num_steps)
        self.critic: Optimizer | None = None
        if self.objective.type == "ppo":
            policy.add_value_head()
            self.critic = Optimizer(policy.value_head, self.objective.critic, num_steps)
        self.sft_weight = self.objective.sft_weight or getattr(config.groups.no_signal, "weight", 0.0)
        self.done = 0  # updates so far

    def update(self, batches: Sequence[Batch], written: Sequence[Sequence[tuple[int, ...]]] = ()) -> UpdateResult:
        """The objective's passes over the answers of these batches, each in `mini_batches` optimizer steps.

        Groups that are to be left out have no part in it; those that are skipped count in the denominators alone. The old
        policy is the trainer's own before the first optimizer step. `written` holds the tokens of each group's written
        answer, by step and group, where a supervised loss is mixed in: () for a group without one. An optimizer step whose
        loss or gradient is not finite leaves the weights as they are and is counted; one without any gradient does too.
        """
        objective = self.objective
        steps = [self._answers(i, batch.groups, batch.advantages_PG, batch.roles) for i, batch in enumerate(batches)]
        in_use = [role != "leave_out" for batch in batches for role in batch.roles]
        groups = list(compress((group for groups in steps for group in groups), in_use))
        parts = in_parts(groups, objective.mini_batches)
        tokens = compress((tokens for of_step in written for tokens in of_step), in_use)
        written_parts = in_parts(list(tokens), objective.mini_batches)
        for part in parts:
            self._weigh(part)
        chunks = [self._chunks(answer for group in part for answer in group if answer.runs) for part in parts]
        texts = [self._written(part, tokens) for part, tokens in zip(parts, written_parts, strict=True)]
        self._look_back([chunk for part in chunks for chunk in part])
        losses, imitated = [[0.0] * objective.passes for _ in batches], []
        oldest = min(r.policy_version for batch in batches for group in batch.groups for r in group.rollouts)
        metrics: dict[str, float] = {
            "policy/skipped_updates/count": 0,
            "sampler/policy_lag/max": self.policy.version - oldest,
        }
        for number in range(objective.passes):
            for part, text in zip(chunks, texts, strict=True):
                self._zero_grad()
                total = 0.0
                for chunk in part:
                    loss, value_loss = self._backward(chunk)
                    losses[chunk.step][number] += loss / len(parts)
                    total += loss + value_loss
                imitated += map(self._imitate, text)
                metrics |= self._step(total, metrics["policy/skipped_updates/count"])
        if imitated:
            metrics["policy/sft_loss"] = math.fsum(imitated) / objective.optimizer_steps
        self.done += 1
        if objective.kl.move_every and self.done % objective.kl.move_every == 0:
            self.policy.move_reference(objective.kl.move_share)
        terms = [[[answer.terms for answer in group] for group in groups] for groups in steps]
        return UpdateResult(terms, losses, metrics)

    def kl_penalties(self, groups: Sequence[Group]) -> list[list[float]]:
        """`beta` times the summed `k1` of every answer, to be taken from its reward (`place = "reward"`)."""
        answers = self._answers(0, groups)
        self._look_at_reference(self._chunks(answer for group in answers for answer in group))
        return [
            [math.fsum(self._token_penalties(answer, answer.rollout.logps)) for answer in group] for group in answers
        ]

    def metrics(self, batch: Batch, terms: Sequence[Sequence[AnswerTerms]]) -> dict[str, float]:
        """Ratio, clipping, KL, entropy, critic and sampler mismatch over the trained tokens of one step."""
        pairs = [
            (r, term)
            for group, own in zip(batch.groups, terms, strict=True)
            for r, term in zip(group.rollouts, own, strict=True)
        ]
        kept = [(r, term) for r, term in pairs if term.weight > 0]
        if not kept:
            return {}
        mask_T = joined([r.mask for r, _ in kept]).bool()
        passes = []
        for number in range(self.objective.passes):
            given = token_inputs(
                kept,
                joined([term.pass_logps[number] for _, term in kept]),
                joined([term.pass_entropies[number] for _, term in kept]),
            ).at(mask_T)
            passes.append((given, token_terms(self.objective, given)))
        first, _ = passes[0]
        metrics = policy_metrics([terms for _, terms in passes], first.entropy_T)
        metrics |= mismatch_metrics(first.sampler_logps_T, first.old_logps_T, self.objective.importance_cap)
        if self.critic is not None:
            old, returns, *values = (
                joined(column)[mask_T]
                for column in (
                    [term.old_values for _, term in kept],
                    [term.returns for _, term in kept],
                    *zip(*(term.pass_values for _, term in kept), strict=True),
                )
            )
            weights_T = (
                joined([[term.weight] * len(r.tokens) for r, term in kept])[mask_T] / self.objective.mini_batches
            )
            metrics |= critic_metrics(values, old, returns, weights_T, self.objective.value_clip)
        return metrics | {"tokens/distinct_share": self._distinct_share(batch.of_role("train"))}

    def state_dict(self) -> dict:
        """All that an update leaves behind but the policy's own weights."""
        moves = self.objective.kl.move_every > 0
        return {
            "done": self.done,
            "optimizer": self.optimizer.state_dict(),
            "critic": self.critic and self.critic.state_dict(),
            "value_head": self.critic and self.policy.value_head.state_dict(),
            "reference": self.policy.reference.state_dict() if moves else None,
        }

    def load_state_dict(self, state: dict) -> None:
        self.done = state["done"]
        self.optimizer.load_state_dict(state["optimizer"])
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])
            self.policy.value_head.load_state_dict(state["value_head"])
        if state["reference"] is not None:
            self.policy.reference.load_state_dict(state["reference"])

    # Answers, their weights, and how they are laid in rows

    def _answers(
        self, step: int, groups: Sequence[Group], advantages_PG=None, roles_P: Sequence[Role] = ()
    ) -> list[list[Answer]]:
        advantages_PG = advantages_PG or [[0.0] * len(group.rollouts) for group in groups]
        return [
            [
                self._answer(step, group, rollout, score, advantage, role)
                for rollout, score, advantage in zip(group.rollouts, group.scores, advantages, strict=True)
            ]
            for group, advantages, role in zip(groups, advantages_PG, roles_P or ("train",) * len(groups), strict=True)
        ]

    def _answer(self, step: int, group: Group, rollout: Rollout, score, advantage: float, role: Role) -> Answer:
        masked = score.status == "error" or (self.objective.truncated == "mask" and rollout.stop == "length")
        length = 0 if masked else sum(rollout.mask)
        terms = AnswerTerms(advantages=[advantage] * len(rollout.tokens))
        return Answer(step, self.policy.encode(group.task), rollout, score.value, length, terms, role == "train")

    def _weigh(self, groups: Sequence[Sequence[Answer]]) -> None:
        """The weights of one optimizer step."""
        lengths = [[answer.length for answer in group] for group in groups]
        weights = token_weights(lengths, self.objective.reduction, self.config.sampling.max_new_tokens)
        for group, group_weights in zip(groups, weights, strict=True):
            for answer, weight in zip(group, group_weights, strict=True):
                answer.terms.weight = weight if answer.runs else 0.0

    def _written(self, groups: Sequence[Sequence[Answer]], tokens: Sequence[tuple[int, ...]]) -> list[Chunk]:
        """The written answers of these groups as chunks, one for each prompt.

        A token weighs 1 / all their tokens, times the share of the groups that have a written answer.
        """
        pairs = [(group[0], answer) for group, answer in zip(groups, tokens, strict=False) if answer]
        by_prompt = {asked.prompt.key: (asked, answer) for asked, answer in pairs}
        size = sum(len(answer) for _, answer in by_prompt.values()) * len(groups) / max(1, len(pairs))
        return self._chunks(
            Answer(asked.step, asked.prompt, WrittenAnswer(answer), 0.0, len(answer), AnswerTerms(1 / size, [1.0]))
            for asked, answer in by_prompt.values()
        )

    def _chunks(self, answers: Iterable[Answer]) -> list[Chunk]:
        """Answers of a step to one prompt, whatever their groups, as rows; rows packed up to `micro_batch_tokens`."""
        by_prompt: dict[tuple[int, str], list[Answer]] = {}
        for answer in answers:
            by_prompt.setdefault((answer.step, answer.prompt.key), []).append(answer)
        every, budget, chunks = needs_every_answer(self.objective), self.config.micro_batch_tokens, []
        for (step, _), members in by_prompt.items():
            prompt = members[0].prompt
            silent = not every and all(answer.silent for answer in members)
            once, each = (len(prompt), 0) if self.policy.shared_prefix else (0, len(prompt))
            for part in cut(members, [each + len(answer.rollout.tokens) for answer in members], budget - once):
                rollouts = [answer.rollout for answer in part]
                row = self.policy.row(prompt, [r.tokens for r in rollouts], [r.temperature for r in rollouts])
                last = chunks[-1] if chunks else None
                if (
                    last is not None
                    and (last.step, last.silent) == (step, silent)
                    and last.rows[0].prompt.batch_key == prompt.batch_key
                    and self.policy.forward_tokens([*last.rows, row]) <= budget
                ):
                    last.rows.append(row)
                    last.answers.extend(part)
                else:
                    chunks.append(Chunk(step, silent, [row], list(part)))
        return chunks

    def _distinct_share(self, groups: Sequence[Group]) -> float:
        if not self.policy.shared_prefix:
            return 1.0
        answers = [answer for group in self._answers(0, groups) for answer in group]
        rows = [row for chunk in self._chunks(answers) for row in chunk.rows]
        return sum(row.num_tokens for row in rows) / sum(row.num_tokens_plain for row in rows)

    # What is fixed before the first optimizer step

    @torch.no_grad()
    def _look_back(self, chunks: Sequence[Chunk]) -> None:
        """Reference, old log-probabilities and values; PPO's advantages. One mini-batch needs no forward for the old ones."""
        if self.policy.reference is not None:
            self._look_at_reference(chunks)
        if self.objective.mini_batches == 1 and self.critic is None:
            return
        for chunk in chunks:
            found = self.policy.logps(chunk.rows)
            for answer, logps in by_answer(chunk, found.logps_T):
                answer.terms.old_logps = logps
            for answer, values in by_answer(chunk, found.values_T):
                answer.terms.old_values = values
        if self.critic is not None:
            self._estimate([answer for chunk in chunks for answer in chunk.answers])

    @torch.no_grad()
    def _look_at_reference(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            for answer, logps in by_answer(chunk, self.policy.logps(chunk.rows, reference=True).logps_T):
                answer.terms.reference_logps = logps

    def _token_penalties(self, answer: Answer, logps: Sequence[float]) -> list[float]:
        """`beta k1` of each trained token."""
        columns = (joined([x])[joined([answer.rollout.mask]).bool()] for x in (logps, answer.terms.reference_logps))
        return (self.objective.kl.beta * kl_estimate(*columns, "k1")).tolist()

    def _estimate(self, answers: Sequence[Answer]) -> None:
        """PPO's advantages and returns: the reward comes with the last trained token, a KL penalty with every one."""
        objective, kept = self.objective, [answer for answer in answers if answer.length]
        masks = [joined([answer.rollout.mask]).bool() for answer in kept]
        found = []
        for answer, mask_T in zip(kept, masks, strict=True):
            rewards_T = torch.zeros(answer.length, dtype=torch.float64)
            rewards_T[-1] = answer.reward
            if objective.kl.beta and objective.kl.place == "reward":
                rewards_T -= torch.tensor(self._token_penalties(answer, answer.terms.old_logps), dtype=torch.float64)
            values_T = joined([answer.terms.old_values])[mask_T]
            found.append(critic.gae(rewards_T, values_T, objective.gamma, objective.gae_lambda))
            answer.terms.returns = scattered(found[-1] + values_T, mask_T)
        if found:
            joined_T = critic.whiten(torch.cat(found)) if objective.whiten else torch.cat(found)
            for answer, mask_T, advantages_T in zip(kept, masks, joined_T.split([a.length for a in kept]), strict=True):
                answer.terms.advantages = scattered(advantages_T, mask_T)

    # Loss, backward, step

    def _backward(self, chunk: Chunk) -> tuple[float, float]:
        """The chunk's part of the policy loss and of the weighted value loss; their gradients are added to the weights'."""
        objective = self.objective
        with torch.set_grad_enabled(not chunk.silent):
            found = self.policy.logps(chunk.rows, entropy_gradient=objective.entropy > 0)
            for answer, logps in by_answer(chunk, found.logps_T):
                answer.terms.old_logps = answer.terms.old_logps or logps
                answer.terms.pass_logps.append(logps)
            for answer, entropies in by_answer(chunk, found.entropy_T):
                answer.terms.pass_entropies.append(entropies)
            for answer, values in by_answer(chunk, found.values_T):
                answer.terms.pass_values.append(values)
            pairs = [(answer.rollout, answer.terms) for answer in chunk.answers]
            weights_T = joined([[term.weight * trained for trained in r.mask] for r, term in pairs], found.logps_T)
            kept_T = weights_T > 0  # what weighs nothing stays out: 0 times the NaN of a banned token would be NaN
            weights_T = weights_T[kept_T]
            given = token_inputs(pairs, found.logps_T, found.entropy_T).at(kept_T)
            loss = (weights_T * token_terms(objective, given).loss_T).sum()
            value_loss = torch.zeros_like(loss)
            if self.critic is not None and len(weights_T):
                # of an answer without a part in the loss there are no returns; NaN keeps its place until it is left out
                columns = (
                    [t.old_values for _, t in pairs],
                    [t.returns or [math.nan] * len(r.tokens) for r, t in pairs],
                )
                old_T, returns_T = (joined(column, found.logps_T)[kept_T] for column in columns)
                values_T = critic.value_loss(found.values_T[kept_T], old_T, returns_T, objective.value_clip)
                value_loss = objective.value_weight * (weights_T * values_T).sum()
        if not chunk.silent:
            (loss + value_loss).backward()
        return loss.item(), value_loss.item()

    def _imitate(self, chunk: Chunk) -> float:
        """The chunk's part of the supervised loss, before its weight; its gradient is added to the weights'."""
        logps_T = self.policy.logps(chunk.rows).logps_T
        weights_T = joined([[a.terms.weight] * len(a.rollout.tokens) for a in chunk.answers], logps_T)
        loss = -(weights_T * logps_T).sum()
        (self.sft_weight * loss).backward()
        return loss.item()

    def _zero_grad(self) -> None:
        for optimizer in filter(None, (self.optimizer, self.critic)):
            optimizer.zero_grad()

    def _step(self, loss: float, skipped: int) -> dict[str, float]:
        report = self.optimizer.step(loss)
        metrics = _report("policy", report, self.config.optimizer.max_grad_norm)
        metrics["policy/skipped_updates/count"] = skipped + report.skipped
        if self.critic is not None:
            metrics |= _report("critic", self.critic.step(loss), self.objective.critic.max_grad_norm)
        return metrics


def _report(who: str, report: StepReport, max_grad_norm: float) -> dict[str, float]:
    return {
        f"{who}/learning_rate": report.learning_rate,
        f"{who}/grad_norm/before_clip": report.grad_norm,
        f"{who}/grad_norm/after_clip": min(report.grad_norm, max_grad_norm),
    }
