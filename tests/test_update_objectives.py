"""Updates beyond plain GRPO: one gradient under every split, PPO's critic, what is left out, what is mixed in."""

import copy
import random
from dataclasses import replace

import pytest
import torch

from oncurve.config.schema import (
    CispoObjective,
    GrpoObjective,
    KlConfig,
    OptimizerConfig,
    PpoObjective,
    SamplingConfig,
    TrainConfig,
)
from oncurve.groups.assemble import Member, make_group
from oncurve.rollout.local import LocalSampler
from oncurve.types import Batch, Group, Request, Score
from oncurve.update import Updater

NEW_TOKENS = 5
SIZES = (4, 2, 2)  # answers to each of three prompts; the first four are two groups
REWARDS = (0.9, 0.1, 0.6, 0.2, 0.8, 0.3, 0.5, 0.7)
WRITTEN = (120, 44, 121, 1)

EVERYTHING = GrpoObjective(
    ratio="token",
    clip_high=0.28,
    importance_cap=2.0,
    entropy=0.05,
    sft_weight=0.3,
    reduction="token_mean",
    truncated="mask",
    kl=KlConfig(beta=0.2),
)
GSPO = GrpoObjective(ratio="sequence", clip_low=3e-4, clip_high=4e-4)
PPO = PpoObjective(type="ppo", kl=KlConfig(beta=0.1, estimator="k1", place="reward"))


def config(objective, micro_batch_tokens: int = 16_384, **optimizer) -> TrainConfig:
    return TrainConfig(
        sampling=SamplingConfig(max_new_tokens=NEW_TOKENS, prompts_per_step=8),
        objective=objective,
        optimizer=OptimizerConfig(warmup_updates=0, max_grad_norm=1e9, **{"learning_rate": 3e-3} | optimizer),
        micro_batch_tokens=micro_batch_tokens,
    )


@pytest.fixture(scope="module")
def groups(make_policy, tasks) -> tuple[Group, ...]:
    """Four groups to three prompts; the sampler's log-probabilities a little off, as another program's are."""
    policy = make_policy("float64")
    sampler = LocalSampler(policy, max_new_tokens=NEW_TOKENS)
    rollouts = sampler.sample([Request(tasks[i], n, 1.0) for i, n in enumerate(SIZES)], step=1, seed=3)
    shaken = random.Random(0)
    made, rewards = [], iter(REWARDS)
    for i, answers in enumerate(rollouts):
        off = [
            replace(r, segments=(replace(r.segments[0], logps=tuple(x + shaken.gauss(0, 0.3) for x in r.logps)),))
            for r in answers
        ]
        scores = [Score("scored", value := next(rewards), value >= 0.5, verifier="grounding/1") for _ in off]
        for first in range(0, len(off), 2):
            pairs = zip(off[first : first + 2], scores[first : first + 2], strict=True)
            made.append(make_group([Member(tasks[i], rollout, score, "rules") for rollout, score in pairs]))
    assert {r.stop for group in made for r in group.rollouts} == {"end", "length"}
    return tuple(made)


def batch(groups, step: int = 1) -> Batch:
    def advantage(group: Group, r) -> float:
        return 2 * group.scores[group.rollouts.index(r)].value - 1.05

    return Batch(step, tuple(groups), tuple(tuple(advantage(group, r) for r in group.rollouts) for group in groups))


@pytest.fixture(scope="module")
def start(make_policy, perturb_weights):
    """A policy in float64, off its reference."""
    policy = make_policy("float64")
    policy.freeze_reference()
    perturb_weights(policy.model, 0.01)
    return policy


@pytest.fixture
def policy(start):
    before = copy.deepcopy(start.model.state_dict())
    reference = copy.deepcopy(start.reference.state_dict())
    yield start
    start.model.load_state_dict(before)
    start.reference.load_state_dict(reference)
    start.why_plain, start.value_head, start.version = None, None, 0


def updater_of(policy, objective, **options) -> Updater:
    updater = Updater(policy, config(objective, **options))
    if policy.value_head is not None:
        with torch.no_grad():
            generator = torch.Generator().manual_seed(1)
            weight = policy.value_head.out.weight
            weight.copy_(0.02 * torch.randn(weight.shape, dtype=weight.dtype, generator=generator))
    return updater


def gradient(policy) -> torch.Tensor:
    parameters = [
        *policy.model.parameters(),
        *(policy.value_head.parameters() if policy.value_head is not None else ()),
    ]
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])


def splits(groups):
    """Ten ways to make the same update: (batches, micro_batch_tokens, plain rows)."""
    a, b, c, d = groups
    whole = [batch(groups)]
    yield from ((whole, tokens, False) for tokens in (1, 85, 100, 180))
    yield whole, 16_384, True
    yield whole, 200, True
    yield [batch([d, b, c, a])], 16_384, False
    yield [batch([a, b]), batch([c, d], 2)], 16_384, False
    yield [batch([a]), batch([b], 2), batch([c], 3), batch([d], 4)], 16_384, False
    yield [batch([c]), batch([d, a], 2), batch([b], 3)], 90, False


@pytest.mark.parametrize("objective", [EVERYTHING, GSPO, PPO], ids=["everything", "gspo", "ppo"])
def test_ten_splits_of_one_update_give_one_gradient(objective, policy, groups):
    state = copy.deepcopy(policy.model.state_dict())

    def update(batches, tokens, plain) -> tuple[float, torch.Tensor]:
        policy.model.load_state_dict(state)
        policy.why_plain = "the test asks" if plain else None
        written = [[WRITTEN] * len(one.groups) for one in batches] if objective.sft_weight else ()
        result = updater_of(policy, objective, micro_batch_tokens=tokens).update(batches, written)
        return sum(losses[0] for losses in result.losses), gradient(policy)

    loss, expected = update([batch(groups)], 16_384, False)
    assert expected.norm() > 1e-3
    count = 0
    for split in splits(groups):
        found_loss, found = update(*split)
        assert found_loss == pytest.approx(loss, rel=1e-10, abs=1e-12)
        assert (found - expected).norm() <= 1e-10 * expected.norm(), count
        count += 1
    assert count == 10


def test_everything_at_once_by_hand(policy, groups, plain_logps):
    """The written formula over plain rows: weights, entropy, KL and the supervised term, in float64."""
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    written = {}
    for group in groups:
        prompt = policy.encode(group.task)
        for r, score in zip(group.rollouts, group.scores, strict=True):
            if r.stop == "length":
                continue
            tokens += len(r.tokens)
            logps = plain_logps(policy, prompt, r.tokens)
            reference = plain_logps(policy, prompt, r.tokens, model=policy.reference).detach()
            row = policy.row(prompt, [r.tokens], [1.0])
            full = policy.distributions([row])[0]
            entropy = -(full.exp() * full.masked_fill(full.isinf(), 0.0)).sum(-1)
            weights = (logps.detach() - torch.tensor(r.logps, dtype=torch.float64)).exp().clamp(max=2.0)
            a = 2 * score.value - 1.05
            d = reference - logps
            total = (
                total + (-weights * a * (logps - logps.detach()).exp() + 0.2 * (d.exp() - d - 1) - 0.05 * entropy).sum()
            )
        written[prompt.key] = -plain_logps(policy, prompt, WRITTEN).sum()
    supervised = sum(written.values()) / (3 * len(WRITTEN))
    expected = torch.autograd.grad(
        total / tokens + 0.3 * supervised, list(policy.model.parameters()), allow_unused=True
    )
    expected = torch.cat([
        (torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(policy.model.parameters(), expected, strict=True)
    ])  # fmt: skip
    result = updater_of(policy, EVERYTHING).update([batch(groups)], [[WRITTEN] * 4])
    assert result.losses[0][0] == pytest.approx((total / tokens).item(), rel=1e-9)
    assert result.metrics["policy/sft_loss"] == pytest.approx(supervised.item(), rel=1e-9)
    assert (gradient(policy) - expected).norm() <= 1e-9 * expected.norm()


def test_mini_batches_share_one_old_policy_and_weigh_their_own_answers(policy, groups):
    objective = GrpoObjective(mini_batches=2, passes=2, reduction="token_mean")
    updater = updater_of(policy, objective)
    first = [r for group in groups[:2] for r in group.rollouts]
    chunks = updater._chunks(answer for group in updater._answers(0, groups) for answer in group)
    before = {}
    for chunk in chunks:
        rollouts = [answer.rollout for answer in chunk.answers]
        logps = policy.logps(chunk.rows).logps_T.detach().split([len(r.tokens) for r in rollouts])
        before |= {r.tokens: values for r, values in zip(rollouts, logps, strict=True)}
    result = updater.update([batch(groups)])
    terms = [term for group in result.terms[0] for term in group]
    rollouts = [r for group in groups for r in group.rollouts]
    for r, term in zip(rollouts, terms, strict=True):
        assert term.old_logps == pytest.approx(before[r.tokens].tolist(), abs=1e-12)
        assert (term.pass_logps[0] == pytest.approx(term.old_logps, abs=1e-12)) == (
            r in first
        )  # later ones have moved on
    assert terms[0].weight == pytest.approx(1 / sum(len(r.tokens) for r in first))
    assert updater.optimizer.done == 4
    by_hand = 0.0
    for term, a in zip(terms, [a for g in batch(groups).advantages_PG for a in g], strict=True):
        for logp, old in zip(term.pass_logps[1], term.old_logps, strict=True):
            ratio = torch.tensor(logp - old).exp().item()
            by_hand -= term.weight * min(ratio * a, min(max(ratio, 0.8), 1.2) * a) / 2
    assert result.losses[0][1] == pytest.approx(by_hand, rel=1e-5)


def test_a_prompt_without_signal_costs_no_backward_and_changes_no_gradient(policy, groups, monkeypatch):
    state = copy.deepcopy(policy.model.state_dict())
    still = batch(groups)
    still = replace(still, advantages_PG=((0.0, 0.0), (0.0, 0.0), *still.advantages_PG[2:]))
    calls = []
    original = policy.logps

    def counted(rows, **options):
        if not options.get("reference"):
            calls.append((len(rows), torch.is_grad_enabled()))
        return original(rows, **options)

    monkeypatch.setattr(policy, "logps", counted)
    result = updater_of(policy, GrpoObjective()).update([still])
    assert calls == [(1, False), (2, True)]
    found = gradient(policy)
    assert all(len(term.pass_logps[0]) == len(term.old_logps) > 0 for group in result.terms[0] for term in group)
    assert result.terms[0][0][0].weight > 0  # it stays in the denominator
    policy.model.load_state_dict(state)
    monkeypatch.setattr("oncurve.update.needs_every_answer", lambda objective: True)
    updater_of(policy, GrpoObjective()).update([still])
    assert calls[2:] == [(3, True)]
    assert (found - gradient(policy)).norm() <= 1e-10 * found.norm()


def test_truncated_answers_are_left_out_of_both_sides(policy, groups):
    result = updater_of(policy, GrpoObjective(truncated="mask")).update([batch(groups)])
    pairs = [
        (r, term)
        for group, terms in zip(groups, result.terms[0], strict=True)
        for r, term in zip(group.rollouts, terms, strict=True)
    ]
    kept = [r for r, _ in pairs if r.stop == "end"]
    assert 0 < len(kept) < len(pairs)
    for r, term in pairs:
        assert term.weight == (pytest.approx(1 / len(kept) / len(r.tokens)) if r.stop == "end" else 0)


def test_an_update_without_signal_leaves_the_weights(policy, groups):
    still = replace(batch(groups), advantages_PG=((0.0, 0.0),) * 4)
    before = copy.deepcopy(policy.model.state_dict())
    result = updater_of(policy, GrpoObjective()).update([still])
    assert result.metrics["policy/grad_norm/before_clip"] == 0
    torch.testing.assert_close(policy.model.state_dict(), before, rtol=0, atol=0)


def test_the_reference_moves_every_second_update(policy, groups):
    kl = KlConfig(beta=0.1, move_every=2, move_share=0.25)
    updater = updater_of(policy, GrpoObjective(kl=kl))
    name, start = next((n, p.clone()) for n, p in policy.reference.named_parameters() if "q_proj" in n)
    moved = dict(policy.reference.named_parameters())[name]
    updater.update([batch(groups)])
    assert torch.equal(moved, start)
    updater.update([batch(groups)])
    present = dict(policy.model.named_parameters())[name]
    torch.testing.assert_close(moved, 0.25 * present + 0.75 * start, rtol=0, atol=1e-12)
    other = Updater(policy, config(GrpoObjective(kl=kl)))
    saved = copy.deepcopy(updater.state_dict())
    with torch.no_grad():
        moved.zero_()
    other.load_state_dict(saved)
    torch.testing.assert_close(moved, 0.25 * present + 0.75 * start, rtol=0, atol=1e-12)
    assert other.done == 2


def test_the_critic_learns(policy, groups):
    """On the same answers again and again, with a policy that stands nearly still, the values find the returns."""
    critic = OptimizerConfig(learning_rate=3e-3, warmup_updates=0)
    objective = PpoObjective(type="ppo", critic=critic, value_clip=10.0, gae_lambda=1.0)
    updater = Updater(policy, config(objective, learning_rate=1e-9))
    one, found = batch(groups), []
    for _ in range(25):
        result = updater.update([one])
        found.append(updater.metrics(one, result.terms[0]))
    assert found[0]["critic/value/mean"] == 0
    assert found[0]["critic/return/mean"] == pytest.approx(
        sum(score.value * len(r.tokens) for g in groups for r, score in zip(g.rollouts, g.scores, strict=True))
        / sum(len(r.tokens) for g in groups for r in g.rollouts)
    )
    assert found[-1]["critic/loss"] < 0.3 * found[0]["critic/loss"]
    assert found[-1]["critic/explained_variance"] > 0.3
    saved = copy.deepcopy(updater.state_dict())
    other = Updater(policy, config(objective))  # with a critic of its own, at 0
    assert not policy.value_head.out.weight.any()
    other.load_state_dict(saved)
    assert policy.value_head.out.weight.any()
    assert other.critic.done == 25


def test_ppo_advantages_and_losses_by_hand(policy, groups):
    """GAE and whitening over all trained tokens, the reward at the last one and the KL penalty at every one."""
    updater = updater_of(policy, PPO)
    result = updater.update([batch(groups)])
    raw, owners = [], []
    for group, terms in zip(groups, result.terms[0], strict=True):
        for r, score, term in zip(group.rollouts, group.scores, terms, strict=True):
            penalties = [0.1 * (old - ref) for old, ref in zip(term.old_logps, term.reference_logps, strict=True)]
            rewards = [-p for p in penalties]
            rewards[-1] += score.value
            after, own = 0.0, []
            for t in reversed(range(len(r.tokens))):
                following = term.old_values[t + 1] if t + 1 < len(r.tokens) else 0.0
                after = rewards[t] + following - term.old_values[t] + 0.95 * after
                own.insert(0, after)
            assert term.returns == pytest.approx([a + v for a, v in zip(own, term.old_values, strict=True)], abs=1e-9)
            raw += own
            owners.append((term, len(raw) - len(own)))
    mean = sum(raw) / len(raw)
    std = (sum((a - mean) ** 2 for a in raw) / len(raw)) ** 0.5
    for term, begin in owners:
        count = len(term.old_logps)
        assert term.advantages == pytest.approx([(a - mean) / std for a in raw[begin : begin + count]], abs=1e-6)
    loss = -sum(term.weight * sum(term.advantages) for group in result.terms[0] for term in group)
    assert result.losses[0][0] == pytest.approx(loss, abs=1e-9)
    metrics = updater.metrics(batch(groups), result.terms[0])
    value_loss = sum((v - x) ** 2 / 2 for t, _ in owners for v, x in zip(t.old_values, t.returns, strict=True)) / len(
        raw
    )
    assert metrics["critic/loss"] == pytest.approx(value_loss, rel=1e-6)


def test_cispo_and_grpo_agree_on_policy(policy, groups):
    state = copy.deepcopy(policy.model.state_dict())
    updater_of(policy, CispoObjective(type="cispo")).update([batch(groups)])
    found = gradient(policy)
    policy.model.load_state_dict(state)
    updater_of(policy, GrpoObjective(reduction="token_mean")).update([batch(groups)])
    assert (found - gradient(policy)).norm() <= 1e-10 * found.norm()
