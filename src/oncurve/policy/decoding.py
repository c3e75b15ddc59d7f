"""Joint decoding: what it carries from token to token, and how a model is called for the next ones.

`SharedState` keeps each prompt's keys and values once and puts its answers' behind them, a column a token: answers decode
as columns of one row, each under a mask that shows it the prompt and itself. `SpreadState` gives each answer a row with a
copy of its prompt's cache; it takes every model, and answers that are long against their prompt.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

PROMPT, PADDING = 0, -1
LONGEST = (
    4  # answers' columns over a prompt's, up to which a shared cache pays: each column costs all the others a look
)


@dataclass(slots=True)
class SpreadState:
    cache: object
    seen: Tensor  # (answers, columns)
    next_positions: Tensor  # (answers,)

    @classmethod
    def of(cls, cache, seen: Tensor, next_positions: Tensor, prompt_of: Tensor) -> "SpreadState":
        """From the cache and mask of a prefill: the copies of each prompt's cache, for the answers in `prompt_of`."""
        cache.reorder_cache(prompt_of)
        return cls(cache, seen[prompt_of], next_positions)

    def keep(self, answers: Tensor) -> None:
        """Drop all answers but these (ascending)."""
        self.cache.reorder_cache(answers)
        self.seen, self.next_positions = self.seen[answers], self.next_positions[answers]

    def advance(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One token more of every answer: ids and positions `(rows, columns)`, and the mask."""
        self.seen = torch.cat([self.seen, self.seen.new_ones(len(tokens), 1)], 1)
        positions, self.next_positions = self.next_positions, self.next_positions + 1
        return tokens[:, None], positions[:, None], self.seen

    def of_answers(self, logits: Tensor) -> Tensor:
        """From `(rows, columns, _V)` to `(answers, _V)`."""
        return logits[:, -1]


@dataclass(slots=True)
class SharedState:
    cache: object
    owner: Tensor  # (rows, columns): 0 the prompt's, otherwise the number of an answer, -1 padding
    next_positions: Tensor  # (answers,)
    row: Tensor  # (answers,), ascending
    number: Tensor  # (answers,), from 1

    @classmethod
    def of(cls, cache, seen: Tensor, next_positions: Tensor, prompt_of: Tensor) -> "SharedState":
        owner = torch.where(seen.bool(), PROMPT, PADDING)
        return cls(cache, owner, next_positions, prompt_of, torch.arange(1, len(prompt_of) + 1, device=seen.device))

    @staticmethod
    def takes(cache, prompt_columns: int, answer_columns: int) -> bool:
        """Whether the cache keeps every column, and the answers are short enough."""
        return answer_columns <= LONGEST * prompt_columns and all(type(layer) is DynamicLayer for layer in cache.layers)

    @property
    def slot(self) -> Tensor:
        """The column of each answer among the new ones of its row."""
        return torch.arange(len(self.row), device=self.row.device) - torch.searchsorted(self.row, self.row)

    def keep(self, answers: Tensor) -> None:
        self.next_positions, self.number = self.next_positions[answers], self.number[answers]
        rows, self.row = self.row[answers].unique(return_inverse=True)
        if len(rows) < len(self.owner):
            self.cache.reorder_cache(rows)
            self.owner = self.owner[rows]

    def advance(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        place = (self.row, self.slot)
        new = self.owner.new_full((len(self.owner), int(place[1].max()) + 1), PADDING)
        ids, positions = torch.zeros_like(new), torch.zeros_like(new)
        ids[place], positions[place], new[place] = tokens, self.next_positions, self.number
        self.next_positions = self.next_positions + 1
        self.owner = torch.cat([self.owner, new], 1)
        owner, new = self.owner[:, None, None, :], new[:, None, :, None]
        return ids, positions, (owner == PROMPT) | ((owner == new) & (new != PADDING))

    def of_answers(self, logits: Tensor) -> Tensor:
        return logits[self.row, self.slot]


DecodeState = SpreadState | SharedState
