"""An update's answers: what it sees of each, the rows that they run in, and their tokens' values as arrays."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from oncurve.objective.terms import TokenInputs
from oncurve.types import Rollout


@dataclass(slots=True)
class AnswerTerms:
    """What an update saw of one answer. Lists run over its tokens; log-probabilities and entropy in nats."""

    weight: float = 0.0  # of one trained token in the loss of its optimizer step; 0 where the answer has no part in it
    advantages: list[float] = field(default_factory=list)
    old_logps: list[float] = field(default_factory=list)
    reference_logps: list[float] | None = None
    pass_logps: list[list[float]] = field(default_factory=list)  # of the policy, in each pass over the batch
    pass_entropies: list[list[float]] = field(default_factory=list)
    old_values: list[float] | None = None  # PPO: of the state before each token, before the first optimizer step
    returns: list[float] | None = None  # PPO: what the value loss aims at
    pass_values: list[list[float]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Answer:
    """An answer on its way through an update; a written one, of the supervised loss, is a `Rollout` too."""

    step: int
    prompt: object
    rollout: Rollout
    reward: float
    length: int  # trained tokens in the loss; 0 for an answer that has no part in it
    terms: AnswerTerms
    runs: bool = True  # False where its group has no forward; it may still count in the denominators

    @property
    def silent(self) -> bool:
        return self.length == 0 or not any(self.terms.advantages)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one step that run together, and their answers in the same order."""

    step: int
    silent: bool
    rows: list
    answers: list[Answer]


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """The tokens of a task's written answer, where a sampled one would have its rollout. Example: `WrittenAnswer((5, 7, 1))`."""

    tokens: tuple[int, ...]
    temperature: float = 1.0


def token_inputs(pairs: Sequence[tuple[Rollout, AnswerTerms]], logps_T: Tensor, entropy_T: Tensor) -> TokenInputs:
    """What the objective is given of these answers' tokens, in the type of `logps_T`."""
    with_reference = all(term.reference_logps is not None for _, term in pairs)
    return TokenInputs(
        logps_T,
        joined([term.old_logps for _, term in pairs], logps_T),
        joined([r.logps for r, _ in pairs], logps_T),
        joined([term.advantages for _, term in pairs], logps_T),
        joined([[i] * len(r.tokens) for i, (r, _) in enumerate(pairs)], logps_T).long(),
        joined([term.reference_logps for _, term in pairs], logps_T) if with_reference else None,
        entropy_T,
    )


def joined(lists: Sequence[Sequence[float]], like: Tensor | None = None) -> Tensor:
    """Lists one behind the other, in the type and on the device of `like`; float64 without it."""
    dtype, device = (torch.float64, None) if like is None else (like.dtype, like.device)
    return torch.tensor([x for one in lists for x in one], dtype=dtype, device=device)


def scattered(values_T: Tensor, mask_T: Tensor) -> list[float]:
    """Values of the trained tokens at their places, 0 elsewhere."""
    return torch.zeros(len(mask_T), dtype=values_T.dtype).masked_scatter(mask_T, values_T).tolist()


def in_parts(groups: Sequence, count: int) -> list[list]:
    """Whole groups in their order, in `count` runs as equal as can be."""
    return [list(groups[len(groups) * i // count : len(groups) * (i + 1) // count]) for i in range(count)]


def cut(items: Sequence, sizes: Sequence[int], budget: int) -> list[list]:
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


def by_answer(chunk: Chunk, values_T: Tensor | None) -> Iterable[tuple[Answer, list[float]]]:
    """Each answer with its tokens' values; nothing where there are none."""
    if values_T is None:
        return ()
    lengths = [len(answer.rollout.tokens) for answer in chunk.answers]
    return zip(chunk.answers, (part.tolist() for part in values_T.detach().split(lengths)), strict=True)
