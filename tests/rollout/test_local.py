"""The local sampler: what it draws, and that nothing but its own key decides an answer."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.errors import DataError
from oncurve.policy.policy import Policy
from oncurve.policy.prompt import Row
from oncurve.rollout.local import LocalSampler, draw, uniforms
from oncurve.types import Request

JUST_BELOW_1 = 1 - 2**-53
quick = settings(deadline=None, max_examples=50)


def sampled(policy, requests, *, max_new_tokens=10, step=1, seed=3, **options):
    return LocalSampler(policy, max_new_tokens=max_new_tokens, **options).sample(requests, step=step, seed=seed)


def same(a, b) -> None:
    assert a.tokens == b.tokens
    assert a.logps == pytest.approx(b.logps, abs=1e-5)
    assert (a.task_id, a.index, a.text, a.stop) == (b.task_id, b.index, b.text, b.stop)


@pytest.fixture
def requests(tasks):
    return [Request(task, 3, temperature) for task, temperature in zip(tasks[:4], (1.0, 0.7, 1.3, 0.0), strict=True)]


# The random stream


def test_uniforms_are_pinned():
    expected = [0.45035535516877134, 0.16422115936326998, 0.5691819949515812, 0.7851506747595651]
    assert uniforms(7, 12, "scenes:train/17", 3, 4).tolist() == expected


def test_uniforms_do_not_depend_on_the_count():
    assert uniforms(7, 12, "t", 3, 50)[:4].tolist() == uniforms(7, 12, "t", 3, 4).tolist()


def test_every_part_of_the_key_changes_the_stream():
    keys = [(7, 12, "t", 3), (8, 12, "t", 3), (7, 13, "t", 3), (7, 12, "u", 3), (7, 12, "t", 4), (12, 7, "t", 3)]
    assert len({uniforms(*key, 1)[0] for key in keys}) == len(keys)


# Drawing


def test_draw_by_hand():
    probabilities = torch.tensor([[0.2, 0.0, 0.5, 0.3]]).repeat(5, 1)
    at = torch.tensor([0.0, 0.19, 0.21, 0.69, 0.71], dtype=torch.float64)
    assert draw(probabilities, at).tolist() == [0, 0, 2, 2, 3]


def test_a_token_of_probability_0_is_not_drawn_at_the_edges():
    probabilities = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).repeat(4, 1)
    at = torch.tensor([0.0, math.nextafter(0.5, 0), 0.5, JUST_BELOW_1], dtype=torch.float64)
    assert draw(probabilities, at).tolist() == [1, 1, 3, 3]


@given(
    weights=st.lists(st.sampled_from([0.0, 1e-30, 1e-8, 0.3, 1.0, 7.0]), min_size=1, max_size=8).filter(any),
    uniform=st.one_of(st.sampled_from([0.0, JUST_BELOW_1]), st.floats(0, JUST_BELOW_1)),
)
@quick
def test_draw_is_the_inverse_transform(weights, uniform):
    probabilities = torch.tensor([weights], dtype=torch.float64)
    token = draw(probabilities, torch.tensor([uniform], dtype=torch.float64)).item()
    assert weights[token] > 0
    cumulative = np.cumsum(weights)
    threshold = uniform * cumulative[-1]
    assert token == next(i for i, c in enumerate(cumulative) if c > threshold)


def test_draw_follows_the_probabilities():
    """Chi-square at an error level of 0.001 (3 degrees of freedom: 16.27)."""
    probabilities = torch.tensor([0.05, 0.4, 0.0, 0.25, 0.3])
    at = torch.tensor(np.random.default_rng(0).random(20_000))
    counts = torch.bincount(draw(probabilities.expand(len(at), -1), at), minlength=5)
    expected = probabilities * len(at)
    assert counts[2] == 0
    kept = expected > 0
    assert ((counts - expected)[kept] ** 2 / expected[kept]).sum() < 16.27


def test_sampled_tokens_follow_the_softmax_at_the_answers_temperature(policy, tasks):
    """Chi-square over ten bins of tokens, alike in probability, at an error level of 0.001 (9 degrees: 27.88)."""
    row = Row(policy.encode(tasks[0]), ((100,),), (0.5,))
    with torch.no_grad():
        probabilities = policy.distributions([row])[0][0].exp()
    bins = (probabilities.double().cumsum(0) * 10).clamp(max=9.999).long()
    expected = torch.zeros(10, dtype=torch.float64).index_add(0, bins, probabilities.double())
    sampler = LocalSampler(policy, max_new_tokens=1)
    tokens = [
        rollout.tokens[0]
        for step in range(20)
        for rollout in sampler.sample([Request(tasks[0], 100, 0.5)], step=step, seed=1)[0]
    ]
    counts = torch.bincount(bins[torch.tensor(tokens)], minlength=10)
    kept = expected > 0
    assert kept.sum() > 5
    assert counts[~kept].sum() == 0
    assert ((counts - expected * 2000)[kept] ** 2 / (expected * 2000)[kept]).sum() < 27.88


# Whole answers


def test_greedy_is_generate_token_for_token(policy, tasks):
    rollouts = sampled(policy, [Request(task, 1, 0.0) for task in tasks], max_new_tokens=12)
    for task, (rollout,) in zip(tasks, rollouts, strict=True):
        prompt = policy.encode(task)
        ids = torch.tensor([prompt.ids])
        written = policy.model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            **prompt.images,
            do_sample=False,
            max_new_tokens=12,
            suppress_tokens=policy.banned_ids.tolist(),
            eos_token_id=sorted(policy.eos_ids),
            pad_token_id=0,
        )
        assert rollout.tokens == tuple(written[0, len(prompt) :].tolist())
    assert len({rollout.tokens for (rollout,) in rollouts}) > 1


@pytest.mark.parametrize("batch_size", [1, 5, 6])
def test_answers_do_not_depend_on_the_batch_size(policy, requests, batch_size):
    for one, other in zip(sampled(policy, requests), sampled(policy, requests, batch_size=batch_size), strict=True):
        for a, b in zip(one, other, strict=True):
            same(a, b)


def test_answers_do_not_depend_on_order_or_company(policy, requests):
    together = sampled(policy, requests)
    for one, other in zip(together, reversed(sampled(policy, requests[::-1])), strict=True):
        for a, b in zip(one, other, strict=True):
            same(a, b)
    for request, expected in zip(requests, together, strict=True):
        ((alone,),) = sampled(policy, [Request(request.task, 1, request.temperature)])
        same(alone, expected[0])


def test_answers_do_not_depend_on_room_for_more_tokens(policy, requests):
    for short, long in zip(sampled(policy, requests, max_new_tokens=3), sampled(policy, requests), strict=True):
        for a, b in zip(short, long, strict=True):
            assert a.tokens == b.tokens[:3]


def test_seed_and_step_change_answers_and_repeat(policy, requests):
    first = sampled(policy, requests[:1])
    assert sampled(policy, requests[:1]) == first
    assert sampled(policy, requests[:1], seed=4)[0][0].tokens != first[0][0].tokens
    assert sampled(policy, requests[:1], step=2)[0][0].tokens != first[0][0].tokens
    assert len({rollout.tokens for rollout in first[0]}) == 3


def test_kept_logps_are_the_policys(policy, requests):
    for request, rollouts in zip(requests, sampled(policy, requests), strict=True):
        answers, temperatures = tuple(r.tokens for r in rollouts), tuple(r.temperature for r in rollouts)
        with torch.no_grad():
            found = policy.logps([Row(policy.encode(request.task), answers, temperatures)]).logps_T
        kept = torch.tensor([logp for rollout in rollouts for logp in rollout.logps])
        torch.testing.assert_close(kept, found, rtol=0, atol=1e-5)


def test_the_end_token_is_in_the_answer_and_not_in_the_text(policy, tasks):
    (rollouts,) = sampled(policy, [Request(tasks[0], 40, 1.0)], max_new_tokens=12)
    stops = {"end": 0, "length": 0}
    for r in rollouts:
        assert len(r.tokens) == len(r.logps) == len(r.mask)
        assert all(r.mask)
        ends = [token in policy.eos_ids for token in r.tokens]
        assert not any(ends[:-1])
        assert r.stop == ("end" if ends[-1] else "length")
        assert r.stop == "end" or len(r.tokens) == 12
        body = r.tokens[:-1] if ends[-1] else r.tokens
        assert r.text == policy.tokenizer.decode(body)
        assert (r.policy_version, r.temperature, r.seed) == (policy.version, 1.0, 3)
        stops[r.stop] += 1
    assert min(stops.values()) > 0
    assert [r.index for r in rollouts] == list(range(40))


def test_banned_tokens_never_appear(policy, tasks):
    allowed = set(range(100, 130))
    banned = set(range(policy.model.config.get_text_config().vocab_size)) - allowed
    narrow = Policy(policy.model, policy.processor, policy.family, eos_ids=frozenset({100}), banned_ids=banned)
    greedy, hot = sampled(narrow, [Request(tasks[0], 1, 0.0), Request(tasks[1], 30, 5.0)])
    drawn = {token for rollout in (*greedy, *hot) for token in rollout.tokens}
    assert drawn <= allowed
    assert len(drawn) > 15
    assert all(math.isfinite(logp) for rollout in (*greedy, *hot) for logp in rollout.logps)


def test_each_distinct_prompt_is_prefilled_once(policy, tasks):
    sampler = LocalSampler(policy, max_new_tokens=2)
    twin = Request(type(tasks[0])("twin", tasks[0].kind, tasks[0].messages, tasks[0].truth), 4, 1.0)
    requests = [Request(tasks[0], 4, 1.0), twin, Request(tasks[1], 4, 1.0)]
    rollouts = sampler.sample(requests, step=1, seed=0)
    assert sampler.prefill_tokens == len(policy.encode(tasks[0])) + len(policy.encode(tasks[1]))
    assert sampler.decoded_tokens == sum(len(r.tokens) for group in rollouts for r in group)
    assert [r.tokens for r in rollouts[0]] != [r.tokens for r in rollouts[1]]


def test_a_prompt_beyond_the_context_is_refused(policy, tasks):
    room = policy.context_tokens - len(policy.encode(tasks[0]))
    with pytest.raises(DataError, match=rf"{tasks[0].id}.*{room + 1} new ones.*context of 4,096"):
        sampled(policy, [Request(tasks[0], 1, 1.0)], max_new_tokens=room + 1)
