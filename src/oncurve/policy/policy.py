"""The policy: a model, its processor and its frozen reference. Log-probabilities here are the only ones in Oncurve."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from oncurve.errors import DataError, ModelError
from oncurve.policy import prefix
from oncurve.policy.decoding import DecodeState, SharedState, SpreadState
from oncurve.policy.families import Family
from oncurve.policy.head import headless, in_chunks, rescales
from oncurve.policy.prompt import Prompt, Row, concat_images, left_padded
from oncurve.policy.value import ValueHead
from oncurve.types import Task

MAX_KEPT_PROMPTS = 64  # sampling, update and reference ask for the same ones in one step
TILED_FROM = 1024  # columns of a shared row from which its attention runs in tiles; below it one mask is quicker


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
        self.tiled_from = TILED_FROM
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

    @property
    def has_adapter(self) -> bool:
        return getattr(self.model, "_hf_peft_config_loaded", False)

    def freeze_reference(self) -> None:
        """Keep a frozen copy of the present weights as the reference of the KL term; under an adapter, its base is that."""
        if self.has_adapter:
            self.reference = self.model
        else:
            self.reference = copy.deepcopy(self.model).eval().requires_grad_(False)

    @torch.no_grad()
    def move_reference(self, share: float) -> None:
        """`reference <- share policy + (1 - share) reference`, weight by weight (TR-DPO's soft update, arXiv 2404.09656)."""
        for kept, present in zip(self.reference.parameters(), self.model.parameters(), strict=True):
            kept.lerp_(present, share)

    def add_value_head(self) -> None:
        """Give the policy a critic; `logps` then returns values too. Raises `ModelError` where hidden states are not at hand."""
        if rescales(self.model):
            raise ModelError(
                f"{self.model.config.model_type} rescales its logits behind the head, where no critic can read"
            )
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
    def prefill(
        self, prompts: Sequence[Prompt], repeats: Sequence[int], max_new_tokens: int
    ) -> tuple[Tensor, DecodeState]:
        """Run each prompt once, for `repeats[i]` answers of up to `max_new_tokens`. The first logits `(answers, _V)`.

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
        if "past_key_values" not in out:
            raise ModelError(
                f"{self.model.config.model_type} keeps its past in a form that the sampler can't spread over answers; "
                "choose a model with attention in some of its layers"
            )
        index = torch.arange(len(prompts), device=self.device).repeat_interleave(
            torch.tensor(repeats, device=self.device)
        )
        starts = torch.tensor([prompt.next_position for prompt in prompts], device=self.device)
        short = SharedState.takes(out.past_key_values, size, max(repeats) * max_new_tokens)
        kind = SharedState if self.shared_prefix and short else SpreadState
        state = kind.of(out.past_key_values, stacked["attention_mask"].to(self.device), starts[index], index)
        return self._banned(out.logits[:, -1])[index], state

    @torch.no_grad()
    def decode(self, tokens: Tensor, state: DecodeState) -> Tensor:
        """Append one token `(answers,)` to every answer; the next logits `(answers, _V)`."""
        ids, positions, mask = state.advance(tokens)
        if mask.ndim == 4 and self.model.config.get_text_config()._attn_implementation == "eager":
            mask = prefix.additive(mask, self.model.dtype)
        out = self._forward(
            input_ids=ids,
            attention_mask=mask,
            position_ids=self.family.position_ids(positions.expand(self.family.num_position_axes, -1, -1)),
            past_key_values=state.cache,
            use_cache=True,
        )
        return self._banned(state.of_answers(out.logits))

    def _forward(self, **inputs):
        with self._autocast():
            return self.model(**inputs)

    # Log-probabilities

    def logps(self, rows: Sequence[Row], *, reference: bool = False, entropy_gradient: bool = False) -> TokenLogps:
        """Of every answer token of a batch of rows whose prompts share one `batch_key`, with gradient where enabled."""
        head, hidden_TH, targets_T, temperatures_T = self._predictors(rows, reference=reference)

        def terms(hidden_TH: Tensor, targets_T: Tensor, temperatures_T: Tensor) -> tuple[Tensor, Tensor]:
            logps_TV = self._distributions(head, hidden_TH, temperatures_T)
            with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
                entropy_T = -(logps_TV.exp() * logps_TV.index_fill(-1, self.banned_ids, 0.0)).sum(-1)
            return logps_TV.gather(-1, targets_T[:, None])[:, 0], entropy_T

        num_logits = self.model.config.get_text_config().vocab_size
        values_T = self.value_head(hidden_TH) if self.value_head is not None and not reference else None
        return TokenLogps(*in_chunks(terms, hidden_TH, targets_T, temperatures_T, num_logits), values_T)

    def distributions(self, rows: Sequence[Row], *, reference: bool = False) -> tuple[Tensor, Tensor]:
        """The log-distribution `_TV` that predicts each answer token, at least float32, and the tokens `_T` themselves."""
        head, hidden_TH, targets_T, temperatures_T = self._predictors(rows, reference=reference)
        return self._distributions(head, hidden_TH, temperatures_T), targets_T

    def _predictors(
        self, rows: Sequence[Row], *, reference: bool
    ) -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor, Tensor]:
        """The head, and of each answer token the hidden state `_TH` that predicts it, itself, and its temperature."""
        model = self.reference if reference else self.model
        with (
            self._autocast(),
            self._recomputing(),
            self._base_alone(reference and self.has_adapter),
            headless(model) as head,
        ):
            hidden_TH, targets_T, answer_T = (self.shared if self.shared_prefix else self.plain)(model, rows)
        dtype = torch.promote_types(hidden_TH.dtype, torch.float32)
        temperatures = torch.tensor([t for row in rows for t in row.temperatures], dtype=dtype, device=self.device)
        return head, hidden_TH, targets_T, temperatures[answer_T]

    def _distributions(self, head: Callable[[Tensor], Tensor], hidden_TH: Tensor, temperatures_T: Tensor) -> Tensor:
        with self._autocast():
            logits_TV = head(hidden_TH)
        logits_TV = self._banned(logits_TV)
        return self.log_distribution(logits_TV, temperatures_T)

    def shared(self, model: torch.nn.Module, rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states `_TH`, targets `_T` and answer index `_T`, with all answers to one prompt in one sequence."""
        layout = prefix.lay_out(rows, self.tokenizer.pad_token_id).to(self.device)
        with self.family.handed(model, self.family.shared_mask(model, layout, self.tiled_from)) as mask:
            hidden = model(
                input_ids=layout.ids_BS,
                attention_mask=mask,
                position_ids=self.family.position_ids(layout.positions_ABS),
                **concat_images([row.prompt for row in rows], self.device, model.dtype),
                use_cache=False,
                logits_to_keep=layout.columns_K,
            ).logits
        return hidden.reshape(-1, hidden.shape[-1])[layout.predictor_T], layout.targets_T, layout.answer_T

    def plain(self, model: torch.nn.Module, rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor]:
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
        hidden = model(
            input_ids=ids.to(self.device),
            attention_mask=seen.to(self.device),
            **{name: values.to(self.device) for name, values in types.items()},
            **concat_images([prompt for prompt, _ in answers], self.device, model.dtype),
            use_cache=False,
        ).logits
        kept = [hidden[i, len(p) - 1 : len(p) + len(a) - 1] for i, (p, a) in enumerate(answers)]
        targets = torch.tensor([token for _, answer in answers for token in answer], device=self.device)
        answer_T = torch.tensor([i for i, (_, answer) in enumerate(answers) for _ in answer], device=self.device)
        return torch.cat(kept), targets, answer_T

    @staticmethod
    def log_distribution(logits: Tensor, temperatures: Tensor) -> Tensor:
        """Log-softmax of `logits / temperature` `(rows, _V)`; a temperature of 0 (greedy) counts as 1."""
        return torch.log_softmax(logits / torch.where(temperatures > 0, temperatures, 1.0)[:, None], -1)

    def _banned(self, logits: Tensor) -> Tensor:
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return logits.index_fill(-1, self.banned_ids, -torch.inf)

    @contextmanager
    def _base_alone(self, alone: bool) -> Iterator[None]:
        if not alone:
            yield
            return
        self.model.disable_adapters()
        try:
            yield
        finally:
            self.model.enable_adapters()

    @contextmanager
    def _recomputing(self) -> Iterator[None]:
        """Layers under gradient checkpointing count as in training here and only here: dropout and caches stay as they are."""
        layers = []
        if torch.is_grad_enabled() and self.model.is_gradient_checkpointing:
            layers = [module for module in self.model.modules() if isinstance(module, GradientCheckpointingLayer)]
        for layer in layers:
            layer.training = True
        try:
            yield
        finally:
            for layer in layers:
                layer.training = False

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self.device.type, dtype=self.compute_dtype, enabled=self.compute_dtype != self.model.dtype
        )
