"""The policy: a model, its processor and its frozen reference. Log-probabilities here are the only ones in Oncurve."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oncurve.errors import DataError
from oncurve.policy import prefix
from oncurve.policy.families import Family
from oncurve.policy.prompt import Prompt, Row, concat_images, left_padded
from oncurve.policy.value import ValueHead
from oncurve.types import Task

MAX_KEPT_PROMPTS = 64  # sampling, update and reference ask for the same ones in one step


@dataclass(slots=True)
class DecodeState:
    """What joint decoding carries from token to token: the cache, the 2-D mask and each row's next position."""

    cache: object
    seen: Tensor  # (rows, columns)
    next_positions: Tensor  # (rows,)

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.cache.reorder_cache(rows)
        self.seen, self.next_positions = self.seen[rows], self.next_positions[rows]


@dataclass(frozen=True, slots=True)
class TokenLogps:
    """Of each answer token, row by row and answer by answer: its log-probability and its distribution's entropy, nats."""

    logps_T: Tensor
    entropy_T: Tensor  # detached unless its gradient was asked for
    values_T: Tensor | None = None  # of the state before each token, where there is a value head


class Policy:
    """Log-probabilities are over the allowed vocabulary (structural tokens banned) at each answer's temperature.

    Weights stay in float32; `compute_dtype` bfloat16 runs every forward, the sampler's too, under autocast.
    `shared_prefix` says whether answers to one prompt run as one row; where a family can't honour the mask, each answer
    is a plain row and `why_plain` says why.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        processor,
        family: Family,
        *,
        eos_ids: frozenset[int],
        banned_ids: Sequence[int],
        compute_dtype: torch.dtype = torch.float32,
    ):
        self.model, self.processor, self.family = model, processor, family
        self.eos_ids = eos_ids
        self.compute_dtype = compute_dtype
        self.banned_ids = torch.tensor(sorted(banned_ids), dtype=torch.long, device=model.device)
        self.reference: torch.nn.Module | None = None
        self.value_head: ValueHead | None = None
        self.version = 0
        self._prompts: dict[tuple, Prompt] = {}
        self._token_texts: dict[int, str] = {}
        self.why_plain = family.why_no_shared_prefix(model)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def tokenizer(self):
        return getattr(self.processor, "tokenizer", self.processor)

    @property
    def shared_prefix(self) -> bool:
        return self.why_plain is None

    @property
    def context_tokens(self) -> int:
        """The longest sequence that the model was made for."""
        return self.model.config.get_text_config().max_position_embeddings

    def freeze_reference(self) -> None:
        """Keep a frozen copy of the present weights as the reference of the KL term."""
        self.reference = copy.deepcopy(self.model).eval().requires_grad_(False)

    @torch.no_grad()
    def move_reference(self, share: float) -> None:
        """`reference <- share policy + (1 - share) reference`, weight by weight (TR-DPO's soft update, arXiv 2404.09656)."""
        for kept, present in zip(self.reference.parameters(), self.model.parameters(), strict=True):
            kept.lerp_(present, share)

    def add_value_head(self) -> None:
        """Give the policy a critic; `logps` then returns values too."""
        head = self.model.get_output_embeddings().weight
        self.value_head = ValueHead(head.shape[1]).to(self.device, head.dtype)

    def encode(self, task: Task, max_new_tokens: int = 0) -> Prompt:
        """The task's prompt. Raises `DataError` where prompt and answer would not fit into the model's context.

        A prompt is never cut: a cut through an image's tokens would change what the model sees.
        """
        key = (task.id, tuple((m.role, m.text, *(image.sha256 for image in m.images)) for m in task.messages))
        if key not in self._prompts:
            if len(self._prompts) >= MAX_KEPT_PROMPTS:
                del self._prompts[next(iter(self._prompts))]
            self._prompts[key] = self.family.encode(self.model, self.processor, task)
        prompt = self._prompts[key]
        if len(prompt) + max_new_tokens > self.context_tokens:
            raise DataError(
                f"task {task.id}: its prompt has {len(prompt):,} tokens; with {max_new_tokens} new ones it is longer than the "
                f"model's context of {self.context_tokens:,}. Use smaller images, a shorter prompt or a smaller max_new_tokens."
            )
        return prompt

    def text(self, tokens: Sequence[int]) -> str:
        """The text of an answer, without its end token."""
        body = [token for token in tokens if token not in self.eos_ids]
        return self.tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def token_texts(self, tokens: Sequence[int]) -> list[str]:
        for token in set(tokens) - self._token_texts.keys():
            self._token_texts[token] = self.tokenizer.decode([token], skip_special_tokens=False)
        return [self._token_texts[token] for token in tokens]

    @staticmethod
    def row(prompt: Prompt, answers: Sequence[tuple[int, ...]], temperatures: Sequence[float]) -> Row:
        """Answers to one prompt as a row for `logps`."""
        return Row(prompt, tuple(answers), tuple(temperatures))

    def forward_tokens(self, rows: Sequence[Row]) -> int:
        """How many tokens, padding included, one forward over these rows runs."""
        if self.shared_prefix:
            return len(rows) * (max(len(row.prompt) for row in rows) + max(row.num_answer_tokens for row in rows))
        longest = max(len(row.prompt) + len(answer) for row in rows for answer in row.answers)
        return longest * sum(len(row.answers) for row in rows)

    # Decoding

    @torch.no_grad()
    def prefill(self, prompts: Sequence[Prompt], repeats: Sequence[int]) -> tuple[Tensor, DecodeState]:
        """Run each prompt once and spread its cache over `repeats[i]` rows. Returns the first logits `(rows, _V)`.

        The prompts share one `batch_key`. Logits are at least float32, with banned tokens at minus infinity.
        """
        size = max(map(len, prompts))
        pad = self.tokenizer.pad_token_id
        stacked = {
            "input_ids": left_padded([torch.tensor(prompt.ids) for prompt in prompts], size, pad),
            "attention_mask": left_padded([torch.ones(len(prompt), dtype=torch.long) for prompt in prompts], size),
            **{name: left_padded([p.token_types[name] for p in prompts], size) for name in prompts[0].token_types},
        }
        positions = left_padded([prompt.positions for prompt in prompts], size)
        out = self._forward(
            **{name: tensor.to(self.device) for name, tensor in stacked.items()},
            **concat_images(prompts, self.device, self.model.dtype),
            position_ids=self.family.position_ids(positions.to(self.device)),
            use_cache=True,
            logits_to_keep=1,
        )
        index = torch.arange(len(prompts), device=self.device).repeat_interleave(
            torch.tensor(repeats, device=self.device)
        )
        out.past_key_values.reorder_cache(index)
        starts = torch.tensor([prompt.next_position for prompt in prompts], device=self.device)
        state = DecodeState(out.past_key_values, stacked["attention_mask"].to(self.device)[index], starts[index])
        return self._banned(out.logits[:, -1])[index], state

    @torch.no_grad()
    def decode(self, tokens: Tensor, state: DecodeState) -> Tensor:
        """Append one token `(rows,)` to every row; the next logits `(rows, _V)`."""
        state.seen = torch.cat([state.seen, state.seen.new_ones(len(tokens), 1)], 1)
        positions = state.next_positions[None, :, None].expand(self.family.num_position_axes, -1, 1)
        state.next_positions = state.next_positions + 1
        out = self._forward(
            input_ids=tokens[:, None],
            attention_mask=state.seen,
            position_ids=self.family.position_ids(positions),
            past_key_values=state.cache,
            use_cache=True,
        )
        return self._banned(out.logits[:, -1])

    def _forward(self, **inputs):
        with self._autocast():
            return self.model(**inputs)

    # Log-probabilities

    def logps(self, rows: Sequence[Row], *, reference: bool = False, entropy_gradient: bool = False) -> TokenLogps:
        """Of every answer token of a batch of rows whose prompts share one `batch_key`, with gradient where enabled."""
        logps_TV, targets_T, hidden_TH = self._predicted(rows, reference=reference)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            entropy_T = -(logps_TV.exp() * logps_TV.index_fill(-1, self.banned_ids, 0.0)).sum(-1)
        values_T = self.value_head(hidden_TH) if self.value_head is not None and not reference else None
        return TokenLogps(logps_TV.gather(-1, targets_T[:, None])[:, 0], entropy_T, values_T)

    def distributions(self, rows: Sequence[Row], *, reference: bool = False) -> tuple[Tensor, Tensor]:
        """The log-distribution `_TV` that predicts each answer token, at least float32, and the tokens `_T` themselves."""
        return self._predicted(rows, reference=reference)[:2]

    def _predicted(self, rows: Sequence[Row], *, reference: bool) -> tuple[Tensor, Tensor, Tensor]:
        """The log-distributions `_TV`, the tokens `_T`, and the hidden states `_TH` that the head read."""
        model = self.reference if reference else self.model
        with self._autocast():
            logits_TV, targets_T, answer_T, hidden_TH = (self.shared if self.shared_prefix else self.plain)(model, rows)
        logits_TV = self._banned(logits_TV)
        temperatures = [t for row in rows for t in row.temperatures]
        temperatures_T = torch.tensor(temperatures, dtype=logits_TV.dtype, device=self.device)[answer_T]
        return self.log_distribution(logits_TV, temperatures_T), targets_T, hidden_TH

    def shared(self, model: torch.nn.Module, rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits `_TV`, targets `_T`, answer index `_T`, hidden `_TH`, with all answers to one prompt in one sequence."""
        layout = prefix.lay_out(rows, self.tokenizer.pad_token_id).to(self.device)
        logits, hidden = _logits_and_hidden(
            model,
            input_ids=layout.ids_BS,
            attention_mask=self.family.shared_mask(model, layout),
            position_ids=self.family.position_ids(layout.positions_ABS),
            **concat_images([row.prompt for row in rows], self.device, model.dtype),
            use_cache=False,
            logits_to_keep=layout.columns_K,
        )
        logits_TV, hidden_TH = (x.reshape(-1, x.shape[-1])[layout.predictor_T] for x in (logits, hidden))
        return logits_TV, layout.targets_T, layout.answer_T, hidden_TH

    def plain(self, model: torch.nn.Module, rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same with one sequence for each answer, under the model's own mask and positions: what `shared` must meet."""
        answers = [(row.prompt, answer) for row in rows for answer in row.answers]
        size = max(len(prompt) + len(answer) for prompt, answer in answers)
        ids = torch.full((len(answers), size), self.tokenizer.pad_token_id)
        seen = torch.zeros_like(ids)
        types = {name: torch.zeros_like(ids) for name in answers[0][0].token_types}
        for i, (prompt, answer) in enumerate(answers):
            end = len(prompt) + len(answer)
            ids[i, :end] = torch.tensor(prompt.ids + answer)
            seen[i, :end] = 1
            for name, values in prompt.token_types.items():
                types[name][i, : len(prompt)] = values
                types[name][i, len(prompt) :] = self.family.answer_token_type
        logits, hidden = _logits_and_hidden(
            model,
            input_ids=ids.to(self.device),
            attention_mask=seen.to(self.device),
            **{name: values.to(self.device) for name, values in types.items()},
            **concat_images([prompt for prompt, _ in answers], self.device, model.dtype),
            use_cache=False,
        )
        logits_TV, hidden_TH = (
            torch.cat([x[i, len(p) - 1 : len(p) + len(a) - 1] for i, (p, a) in enumerate(answers)])
            for x in (logits, hidden)
        )
        targets = torch.tensor([token for _, answer in answers for token in answer], device=self.device)
        answer_T = torch.tensor([i for i, (_, answer) in enumerate(answers) for _ in answer], device=self.device)
        return logits_TV, targets, answer_T, hidden_TH

    @staticmethod
    def log_distribution(logits: Tensor, temperatures: Tensor) -> Tensor:
        """Log-softmax of `logits / temperature` `(rows, _V)`; a temperature of 0 (greedy) counts as 1."""
        return torch.log_softmax(logits / torch.where(temperatures > 0, temperatures, 1.0)[:, None], -1)

    def _banned(self, logits: Tensor) -> Tensor:
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return logits.index_fill(-1, self.banned_ids, -torch.inf)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self.device.type, dtype=self.compute_dtype, enabled=self.compute_dtype != self.model.dtype
        )


def _logits_and_hidden(model: torch.nn.Module, **inputs) -> tuple[Tensor, Tensor]:
    """A forward's logits, and the hidden states that the language head made them from."""
    read = []
    handle = model.get_output_embeddings().register_forward_pre_hook(lambda _, given: read.append(given[0]))
    try:
        return model(**inputs).logits, read[0]
    finally:
        handle.remove()
