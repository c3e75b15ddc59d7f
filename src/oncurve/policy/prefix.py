"""The shared prefix: answers to one prompt as one row `[prompt | answer 1 | … | answer n]`.

A key is visible if it is not later and is in the prompt or in the same answer; positions of every answer restart after
the prompt. Some families let a block of the prompt, such as an image, see itself in both directions.
A batch pads prompts on the left and rows on the right, so that all answers begin in one column.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oncurve.policy.prompt import Row, left_padded

PROMPT, PADDING = 0, -1


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything of a batch of `_B` rows lies, `_S` columns each."""

    ids_BS: Tensor
    positions_ABS: Tensor  # (axes, rows, columns), as the model counts them
    segment_BS: Tensor  # 0 in the prompt, i in answer i, -1 in padding
    place_BS: Tensor  # the index that a token has in the plain row of its answer
    block_BS: Tensor  # of the prompt's tokens, those of one number above 0 see one another in both directions
    columns_K: Tensor  # columns that predict an answer's token in any row: the head runs on these only
    predictor_T: Tensor  # index into `rows * columns_K` of the row that predicts each answer token
    targets_T: Tensor  # the answer tokens, row by row and answer by answer
    answer_T: Tensor  # index of each token's answer, counted through the batch

    def to(self, device: torch.device) -> "Layout":
        return Layout(*(getattr(self, name).to(device) for name in self.__slots__))


def lay_out(rows: Sequence[Row], pad_id: int) -> Layout:
    """Lay a batch out. Answers must not be empty; an answer's first token is predicted by the last prompt column."""
    start = max(len(row.prompt) for row in rows)
    size = start + max(row.num_answer_tokens for row in rows)
    ids, segments, places, blocks, positions, sources, answers = [], [], [], [], [], [], []
    num_answers = 0
    for index, row in enumerate(rows):
        lengths = torch.tensor([len(answer) for answer in row.answers])
        assert lengths.min() > 0, "an answer without tokens"
        tail = size - start - row.num_answer_tokens
        within = torch.cat([torch.arange(length) for length in lengths])
        number = torch.arange(len(lengths)).repeat_interleave(lengths)
        text = torch.tensor([*row.prompt.ids, *(token for answer in row.answers for token in answer)])
        head = left_padded([text[: len(row.prompt)]], start, pad_id)[0]
        ids.append(torch.nn.functional.pad(torch.cat([head, text[len(row.prompt) :]]), (0, tail), value=pad_id))
        prompt_segment = left_padded([torch.zeros(len(row.prompt), dtype=torch.long)], start, PADDING)[0]
        segments.append(torch.nn.functional.pad(torch.cat([prompt_segment, number + 1]), (0, tail), value=PADDING))
        prompt_place = left_padded([torch.arange(len(row.prompt))], start)[0]
        places.append(torch.nn.functional.pad(torch.cat([prompt_place, len(row.prompt) + within]), (0, tail)))
        prompt_blocks = torch.zeros(len(row.prompt)).long() if row.prompt.blocks is None else row.prompt.blocks
        blocks.append(torch.nn.functional.pad(left_padded([prompt_blocks], start)[0], (0, size - start)))
        prompt_positions = torch.nn.functional.pad(row.prompt.positions, (start - len(row.prompt), 0))
        answer_positions = (row.prompt.next_position + within).expand(len(prompt_positions), -1)
        positions.append(torch.nn.functional.pad(torch.cat([prompt_positions, answer_positions], 1), (0, tail)))
        column = torch.where(within == 0, start - 1, start + torch.arange(len(within)) - 1)
        sources.append(torch.stack([torch.full_like(column, index), column]))
        answers.append(number + num_answers)
        num_answers += len(lengths)
    source_row, source_column = torch.cat(sources, 1)
    columns = source_column.unique()
    return Layout(
        ids_BS=torch.stack(ids),
        positions_ABS=torch.stack(positions, 1),
        segment_BS=torch.stack(segments),
        place_BS=torch.stack(places),
        block_BS=torch.stack(blocks),
        columns_K=columns,
        predictor_T=source_row * len(columns) + torch.searchsorted(columns, source_column),
        targets_T=torch.tensor([token for row in rows for answer in row.answers for token in answer]),
        answer_T=torch.cat(answers),
    )


def visible(layout: Layout, window: int | None = None, *, blocks_escape: bool = False) -> Tensor:
    """The mask `(rows, 1, queries, keys)`, True where a key is visible. A sliding `window` counts in plain places.

    Blocks see themselves inside the window only, unless `blocks_escape` it.

    Padding sees itself and nothing else: a row of the mask without any key gives NaN in some attention kernels.
    """
    segment, place, block = layout.segment_BS, layout.place_BS, layout.block_BS
    size = segment.shape[1]
    causal = torch.ones(size, size, dtype=torch.bool, device=segment.device).tril()
    mine = (segment[:, None, :] == PROMPT) | (segment[:, None, :] == segment[:, :, None])
    real = (segment[:, None, :] != PADDING) & (segment[:, :, None] != PADDING)
    within = (block[:, None, :] == block[:, :, None]) & (block[:, :, None] > 0)
    near = True if window is None else place[:, :, None] - place[:, None, :] < window
    seen = causal & near | within if blocks_escape else (causal | within) & near
    mask = seen & mine & real
    return (mask | torch.eye(size, dtype=torch.bool, device=segment.device))[:, None]


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """The same mask as numbers to be added to the scores (eager attention adds a boolean one wrongly, in silence)."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)
