"""The local sampler: prefill once per distinct prompt, decode all answers together, drop finished rows.

It is handed the policy and reads its log-probabilities over the allowed vocabulary at each answer's temperature.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
import torch

from oncurve.types import Request, Rollout, Segment


def uniforms(seed: int, step: int, task_id: str, index: int, count: int) -> np.ndarray:
    """The answer's random stream, one uniform number in [0, 1) per token: Philox keyed by all of the arguments.

    (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.) Nothing else touches an answer's randomness:
    not its batch, the number of workers, or a resume.
    """
    key = sha256(f"{seed}/{step}/{task_id}/{index}".encode()).digest()[:16]
    return np.random.Generator(np.random.Philox(key=np.frombuffer(key, np.uint64))).random(count)


def draw(probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """One token a row by inverse transform: the first token at which the cumulative probability exceeds `uniform`.

    `probabilities` is `(rows, _V)`, summed in float64; a token of probability 0 is never drawn.
    """
    cumulative = probabilities.double().cumsum(-1)
    threshold = uniform[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, threshold, right=True)[:, 0].clamp(max=probabilities.shape[-1] - 1)


@dataclass(slots=True)
class _Answer:
    task_id: str
    index: int
    temperature: float
    uniforms: np.ndarray
    tokens: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)


class LocalSampler:
    """Samples with the policy in this process. `batch_size` bounds the answers that are decoded together."""

    def __init__(self, policy, *, max_new_tokens: int, batch_size: int = 256):
        self.policy = policy
        self.max_new_tokens = max_new_tokens
        self.batch_size = batch_size
        self.prefill_tokens = 0  # of distinct prompts since the start: what prefix sharing really cost
        self.decoded_tokens = 0

    def sample(self, requests: Sequence[Request], *, step: int, seed: int) -> list[tuple[Rollout, ...]]:
        """`num_answers` rollouts for each request, in order. Raises `DataError` for a prompt beyond the context."""
        prompts = [self.policy.encode(request.task, self.max_new_tokens) for request in requests]
        answers = [
            [
                _Answer(r.task.id, i, r.temperature_of(i), uniforms(seed, step, r.task.id, i, self.max_new_tokens))
                for i in range(r.first_index, r.first_index + r.num_answers)
            ]
            for r in requests
        ]
        by_prompt: dict[tuple, list[int]] = {}
        for i, prompt in enumerate(prompts):
            by_prompt.setdefault((prompt.batch_key, prompt.key), []).append(i)
        batch: list[tuple] = []
        for (batch_key, _), indices in sorted(by_prompt.items(), key=lambda item: str(item[0][0])):
            mine = [answer for i in indices for answer in answers[i]]
            if batch and (batch[0][0] != batch_key or sum(len(a) for _, _, a in batch) + len(mine) > self.batch_size):
                self._decode(batch)
                batch = []
            batch.append((batch_key, prompts[indices[0]], mine))
        if batch:
            self._decode(batch)
        return [
            tuple(self._rollout(answer, prompt, seed) for answer in group)
            for prompt, group in zip(prompts, answers, strict=True)
        ]

    def _decode(self, batch: list[tuple]) -> None:
        policy, prompts = self.policy, [prompt for _, prompt, _ in batch]
        rows = [answer for _, _, answers in batch for answer in answers]
        logits, state = policy.prefill(prompts, [len(answers) for _, _, answers in batch], self.max_new_tokens)
        self.prefill_tokens += sum(map(len, prompts))
        temperatures = torch.tensor([row.temperature for row in rows], device=logits.device)
        stream = torch.tensor(np.stack([row.uniforms for row in rows]), device=logits.device)
        eos = torch.tensor(sorted(policy.eos_ids), device=logits.device)
        for t in range(self.max_new_tokens):
            logps = policy.log_distribution(logits, temperatures)
            greedy = temperatures == 0
            tokens = torch.where(greedy, logps.argmax(-1), draw(logps.exp(), stream[:, t]))
            chosen = logps.gather(-1, tokens[:, None])[:, 0]
            for row, token, logp in zip(rows, tokens.tolist(), chosen.tolist(), strict=True):
                row.tokens.append(token)
                row.logps.append(logp)
            self.decoded_tokens += len(rows)
            going = (~torch.isin(tokens, eos)).nonzero()[:, 0]
            if len(going) == 0 or t + 1 == self.max_new_tokens:
                return
            if len(going) < len(rows):
                state.keep(going)
                rows = [rows[i] for i in going.tolist()]
                tokens, temperatures, stream = tokens[going], temperatures[going], stream[going]
            logits = policy.decode(tokens, state)

    def _rollout(self, answer: _Answer, prompt, seed: int) -> Rollout:
        return Rollout(
            task_id=answer.task_id,
            index=answer.index,
            segments=(Segment(tuple(answer.tokens), tuple(answer.logps), trained=True),),
            text=self.policy.text(answer.tokens),
            stop="end" if answer.tokens[-1] in self.policy.eos_ids else "length",
            policy_version=self.policy.version,
            temperature=answer.temperature,
            seed=seed,
            model_image_sizes=prompt.model_image_sizes,
        )
