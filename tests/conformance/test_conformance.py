"""In every family, shared rows, plain ones and decoding against one unpadded row an answer, laid out by the model itself."""

from dataclasses import dataclass

import pytest
import torch

from oncurve.errors import ModelError

BOUNDS = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 0.05}
"""Of a log-probability in nats and of each parameter's gradient relative to its norm; in bfloat16, whose rounding drowns the
gradients that nearly cancel, of the gradient as a whole. A row without the mask is off by 0.5 nats and more.
"""


@dataclass(frozen=True)
class Errors:
    """The largest of a log-probability, in nats; the largest of a parameter's gradient, relative; that of the whole gradient."""

    logp: float
    gradient: float
    whole_gradient: float


def compare(bed, plain_logps, *, plain: bool = False) -> Errors:
    policy, rows = bed.policy, bed.rows
    generator = torch.Generator().manual_seed(3)
    weights = torch.randn(sum(row.num_answer_tokens for row in rows), generator=generator, dtype=torch.float64)
    named = [(name, p) for name, p in policy.model.named_parameters() if p.requires_grad]

    def with_gradients(logps_T: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        found = torch.autograd.grad((weights * logps_T.double()).sum(), [p for _, p in named], allow_unused=True)
        return logps_T.detach(), [
            torch.zeros_like(p) if g is None else g for g, (_, p) in zip(found, named, strict=True)
        ]

    with bed.throughout():
        bfloat16 = policy.compute_dtype == torch.bfloat16
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            one_by_one = [
                plain_logps(policy, row.prompt, answer, temperature or 1.0)
                for row in rows
                for answer, temperature in zip(row.answers, row.temperatures, strict=True)
            ]
        truth, expected = with_gradients(torch.cat(one_by_one))
        policy.why_plain = "asked by the test" if plain else policy.why_plain
        found, gradients = with_gradients(policy.logps(rows).logps_T)
    # a key bias has a gradient of zero in exact arithmetic, so its rounding is measured against the largest
    largest = max(g.norm() for g in expected)
    scales = [g.norm() if g.norm() > 1e-5 * largest else largest for g in expected]
    errors = [(g - e).norm() / s for g, e, s in zip(gradients, expected, scales, strict=True)]
    difference, whole = (
        torch.cat([t.flatten() for t in tensors])
        for tensors in ([g - e for g, e in zip(gradients, expected, strict=True)], expected)
    )
    return Errors((found - truth).abs().max().item(), max(errors).item(), (difference.norm() / whole.norm()).item())


@pytest.mark.parametrize("dtype", BOUNDS)
def test_shared_rows(family, dtype, bed, plain_logps, measured):
    made = bed(family, dtype)
    assert made.policy.shared_prefix
    errors = compare(made, plain_logps)
    gradient = errors.whole_gradient if dtype == "bfloat16" else errors.gradient
    measured(family, dtype, f"{errors.logp:.0e} / {gradient:.0e}")
    assert errors.logp < BOUNDS[dtype]
    assert gradient < BOUNDS[dtype]


def test_shared_rows_in_tiles(family, bed, plain_logps):
    """In families whose prompts see themselves in both directions, long rows stay under a mask."""
    made = bed(family, "float64")
    made.policy.tiled_from = 0
    errors = compare(made, plain_logps)
    assert errors.logp < 1e-9
    assert errors.gradient < 1e-9


def test_plain_rows(family, bed, plain_logps):
    errors = compare(bed(family, "float64"), plain_logps, plain=True)
    assert errors.logp < 1e-9
    assert errors.gradient < 1e-9


def test_adapters_with_checkpointing(family, bed, plain_logps, measured):
    made, runs = bed(family, "float64", adapters=True), []
    made.policy.model.get_decoder().layers[0].register_forward_pre_hook(lambda *_: runs.append(1))
    errors = compare(made, plain_logps)
    assert (
        len(runs) == sum(len(row.answers) for row in made.rows) + 2
    )  # the shared row's, and once more in its backward
    measured(family, "LoRA + checkpointing, float64", f"{errors.logp:.0e} / {errors.gradient:.0e}")
    assert errors.logp < 1e-9
    assert errors.gradient < 1e-9


def test_eager_attention(family, bed, plain_logps):
    errors = compare(bed(family, "float32", attention="eager"), plain_logps)
    assert errors.logp < 1e-4
    assert errors.gradient < 1e-4


@torch.no_grad()
def decoding_error(made, max_new_tokens: int = 3) -> float:
    """Of the logits, with prompts of different length prefilled together, their caches spread, and a row dropped on the way."""
    policy, (first, second) = made.policy, made.rows
    answers = [(first.prompt, (20, 21, 22)), (first.prompt, (27, 28, 20)), (second.prompt, (29, 30, 31))]
    with made.throughout():
        truth = []
        for prompt, answer in answers:
            types = {
                name: torch.cat([values, values.new_full((3,), policy.family.answer_token_type)])[None]
                for name, values in prompt.token_types.items()
            }
            images = {n: t.to(policy.model.dtype) if t.is_floating_point() else t for n, t in prompt.images.items()}
            ids = torch.tensor([prompt.ids + answer])
            truth.append(policy.model(input_ids=ids, **types, **images, use_cache=False).logits[0, len(prompt) - 1 :])
        found, state = policy.prefill([first.prompt, second.prompt], [2, 1], max_new_tokens)
        kept, errors = [0, 1, 2], []
        for place in range(4):
            expected = torch.stack([truth[i][place] for i in kept]).index_fill(-1, policy.banned_ids, -torch.inf)
            allowed = expected.isfinite()
            assert torch.equal(found.isfinite(), allowed)
            errors.append((found - expected)[allowed].abs().max().item())
            if place == 3:
                break
            if place == 1:
                state.keep(torch.tensor([1, 2]))
                kept = [1, 2]
            found = policy.decode(torch.tensor([answers[i][1][place] for i in kept]), state)
    return max(errors)


def test_decoding(family, bed, measured):
    """Short answers share the prompt's cache, long ones get a copy each."""
    error = max(decoding_error(bed(family, "float64"), max_new_tokens) for max_new_tokens in (3, 10_000))
    measured(family, "decoding, logits", f"{error:.0e}")
    assert error < 1e-9


@pytest.mark.parametrize(
    ("name", "named"), [("LFM2", "conv"), ("Qwen3-Next", "linear_attention"), ("Jamba", "linear_attention")]
)
def test_layers_with_a_state_are_named_and_run_the_plain_way(name, named, bed, plain_logps):
    made = bed(name, "float32")
    assert not made.policy.shared_prefix
    assert f"layers of type {named} carry a state" in made.policy.why_plain
    errors = compare(made, plain_logps)
    assert errors.logp < 1e-4
    assert errors.whole_gradient < 1e-4
    assert decoding_error(made) < 1e-4


def test_a_model_without_any_attention_cannot_be_sampled(bed):
    made = bed("Mamba", "float32", attention="eager")
    assert not made.policy.shared_prefix
    with pytest.raises(ModelError, match="mamba keeps its past in a form that the sampler can't spread"):
        made.policy.prefill([row.prompt for row in made.rows], [1, 1], 2)
