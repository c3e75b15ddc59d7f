"""One update on fixed answers: its loss and gradient against a reference by hand, however it is cut into micro-batches."""

import copy
import math
from dataclasses import replace

import pytest
import torch

from oncurve.config.groups import GroupsConfig, Supervise
from oncurve.config.schema import GrpoObjective, KlConfig, OptimizerConfig, SamplingConfig, TrainConfig
from oncurve.groups.assemble import Member, make_group
from oncurve.rollout.local import LocalSampler
from oncurve.types import Batch, Request, Score, Segment
from oncurve.update import Updater

RULES = "grounding/1 {}"
NEW_TOKENS = 6
BETA = 0.3
K3 = KlConfig(beta=BETA)
ADVANTAGES = ((1.0, -0.5, 0.25), (-1.5, 0.75, 0.8), (0.6, -0.6))


def config(*, micro_batch_tokens: int = 16_384, optimizer: OptimizerConfig | None = None, **objective) -> TrainConfig:
    return TrainConfig(
        sampling=SamplingConfig(max_new_tokens=NEW_TOKENS),
        objective=GrpoObjective(**objective),
        optimizer=optimizer or OptimizerConfig(learning_rate=0.003, warmup_updates=0, max_grad_norm=1e9),
        micro_batch_tokens=micro_batch_tokens,
    )


def scored(value: float) -> Score:
    return Score("scored", value, value >= 0.5, {"iou": value}, verifier="grounding/1")


def make_batch(policy, tasks, step: int = 1) -> Batch:
    """Two groups of three answers to one prompt, at two temperatures, and a group of two to another."""
    sampler = LocalSampler(policy, max_new_tokens=NEW_TOKENS)
    (first,), (second,) = (
        sampler.sample([Request(tasks[i], n, t)], step=step, seed=0) for i, n, t in ((0, 6, 1.0), (1, 2, 0.7))
    )
    answers = ((tasks[0], first[:3]), (tasks[0], first[3:]), (tasks[1], second))
    groups = [
        make_group([Member(task, r, scored(0.5 + i / 8), RULES) for i, r in enumerate(rs)]) for task, rs in answers
    ]
    return Batch(step, tuple(groups), ADVANTAGES)


@pytest.fixture(scope="module")
def sampled(make_policy, tasks) -> Batch:
    batch = make_batch(make_policy("float64"), tasks)
    assert len({len(r.tokens) for group in batch.groups for r in group.rollouts}) > 1
    return batch


@pytest.fixture
def policy(make_policy, perturb_weights):
    """In float64, a little off its reference."""
    made = make_policy("float64")
    made.freeze_reference()
    perturb_weights(made.model, 0.01)
    return made


def gradients(policy) -> dict[str, torch.Tensor]:
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in policy.model.named_parameters()}


def close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], bound: float = 1e-9) -> None:
    largest = max(g.norm() for g in expected.values())
    assert largest > 0
    for name, gradient in found.items():
        scale = expected[name].norm() if expected[name].norm() > 1e-5 * largest else largest
        assert (gradient - expected[name]).norm() <= bound * scale, name


def weights_by_hand(lengths: list[list[int]], reduction: str) -> list[list[float]]:
    answers = sum(n > 0 for group in lengths for n in group)
    by_reduction = {
        "sequence_mean": lambda n, group: 1 / answers / n,
        "group_mean": lambda n, group: 1 / len(lengths) / sum(m > 0 for m in group) / n,
        "token_mean": lambda n, group: 1 / sum(map(sum, lengths)),
        "constant": lambda n, group: 1 / answers / NEW_TOKENS,
    }
    return [[by_reduction[reduction](n, group) if n else 0.0 for n in group] for group in lengths]


def loss_by_hand(policy, batches, plain_logps, reduction="sequence_mean", beta=0.0) -> torch.Tensor:
    """The on-policy loss from one plain row an answer: the ratio is 1 and has the gradient of the log-probability."""
    lengths = [
        [sum(r.mask) if s.status != "error" else 0 for r, s in zip(g.rollouts, g.scores, strict=True)]
        for batch in batches
        for g in batch.groups
    ]
    weights = iter(weights_by_hand(lengths, reduction))
    total = torch.zeros((), dtype=torch.float64)
    for batch in batches:
        for group, advantages in zip(batch.groups, batch.advantages_PG, strict=True):
            prompt = policy.encode(group.task)
            for r, weight, advantage in zip(group.rollouts, next(weights), advantages, strict=True):
                if not weight:
                    continue
                mask = torch.tensor(r.mask)
                logps = plain_logps(policy, prompt, r.tokens, r.temperature)[mask]
                loss = -advantage * (logps - logps.detach()).exp()
                if beta:
                    with torch.no_grad():
                        reference = plain_logps(policy, prompt, r.tokens, r.temperature, policy.reference)[mask]
                    loss = loss + beta * ((reference - logps).exp() - (reference - logps) - 1)
                total = total + weight * loss.sum()
    return total


def by_hand(policy, batches, plain_logps, **options) -> tuple[float, dict[str, torch.Tensor]]:
    named = list(policy.model.named_parameters())
    loss = loss_by_hand(policy, batches, plain_logps, **options)
    found = torch.autograd.grad(loss, [p for _, p in named], allow_unused=True)
    return loss.item(), {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(named, found, strict=True)}


@pytest.mark.parametrize("reduction", ["sequence_mean", "group_mean", "token_mean", "constant"])
def test_loss_and_gradient_by_hand(reduction, policy, sampled, plain_logps):
    loss, expected = by_hand(policy, [sampled], plain_logps, reduction=reduction, beta=BETA)
    result = Updater(policy, config(reduction=reduction, kl=K3)).update([sampled])
    assert result.losses[0][0] == pytest.approx(loss, rel=1e-10)
    close(gradients(policy), expected)
    norm = math.sqrt(sum(g.square().sum().item() for g in expected.values()))
    assert result.metrics["policy/grad_norm/before_clip"] == pytest.approx(norm)


@pytest.mark.parametrize("micro_batch_tokens", [1, 80, 90, 100, 250])
def test_every_micro_batch_gives_one_gradient(micro_batch_tokens, policy, sampled, plain_logps):
    loss, expected = by_hand(policy, [sampled], plain_logps, beta=BETA)
    updater = Updater(policy, config(micro_batch_tokens=micro_batch_tokens, kl=K3))
    answers = [answer for group in updater._answers(0, sampled.groups) for answer in group]
    chunks = updater._chunks(answers)
    assert {id(answer) for chunk in chunks for answer in chunk.answers} == set(map(id, answers))
    assert sum(len(chunk.answers) for chunk in chunks) == len(answers)
    assert len(chunks) == {1: 8, 250: 1}.get(micro_batch_tokens, len(chunks))
    result = updater.update([sampled])
    assert result.losses[0][0] == pytest.approx(loss, rel=1e-10)
    close(gradients(policy), expected)


def test_plain_rows_give_the_same_gradient(policy, sampled, plain_logps):
    _, expected = by_hand(policy, [sampled], plain_logps, beta=BETA)
    policy.why_plain = "asked by the test"
    Updater(policy, config(kl=K3)).update([sampled])
    close(gradients(policy), expected)


def test_two_accumulated_steps_are_one_update_over_both(policy, sampled, tasks, plain_logps):
    other = replace(make_batch(policy, tasks[2:], step=2), advantages_PG=((0.1, 0.2, -0.3), (1.0, 1.0, -2.0), (3, -3)))
    other = replace(other, groups=other.groups[1:], advantages_PG=other.advantages_PG[1:])
    loss, expected = by_hand(policy, [sampled, other], plain_logps, reduction="group_mean")
    result = Updater(policy, config(reduction="group_mean")).update([sampled, other])
    assert sum(losses[0] for losses in result.losses) == pytest.approx(loss, rel=1e-10)
    assert [[len(group) for group in step] for step in result.terms] == [[3, 3, 2], [3, 2]]
    close(gradients(policy), expected)


def test_the_second_pass_keeps_the_old_policy_of_the_first(policy, sampled):
    updater = Updater(policy, config(passes=2, clip_low=0.1, clip_high=0.2, kl=K3))
    result = updater.update([sampled])
    expected, furthest = [0.0, 0.0], 0.0
    lengths = [[len(r.tokens) for r in group.rollouts] for group in sampled.groups]
    weights = weights_by_hand(lengths, "sequence_mean")
    for g, advantages in enumerate(sampled.advantages_PG):
        for a, advantage in enumerate(advantages):
            term = result.terms[0][g][a]
            assert term.weight == pytest.approx(weights[g][a])
            assert term.old_logps == term.pass_logps[0]
            for number, logps in enumerate(term.pass_logps):
                for logp, old, reference in zip(logps, term.old_logps, term.reference_logps, strict=True):
                    r, d = math.exp(logp - old), reference - logp
                    furthest = max(furthest, abs(r - 1) if number else 0.0)
                    policy_term = -min(r * advantage, min(max(r, 0.9), 1.2) * advantage)
                    expected[number] += term.weight * (policy_term + BETA * (math.exp(d) - d - 1))
    assert furthest > 0.1
    assert result.losses[0] == pytest.approx(expected, rel=1e-9)
    metrics = updater.metrics(sampled, result.terms[0])
    assert metrics["policy/clip_low/share"] + metrics["policy/clip_high/share"] > 0


def test_an_answer_whose_verifier_failed_has_no_part_in_it(policy, sampled, failed, plain_logps):
    group = sampled.groups[0]
    scores = (group.scores[0], failed, group.scores[2])
    advantages = ((1.0, 0.0, -1.0), *ADVANTAGES[1:])
    batch = Batch(1, (replace(group, scores=scores), *sampled.groups[1:]), advantages)
    loss, expected = by_hand(policy, [batch], plain_logps, beta=BETA)
    updater = Updater(policy, config(kl=K3))
    state = copy.deepcopy(policy.model.state_dict())
    result = updater.update([batch])
    assert result.losses[0][0] == pytest.approx(loss, rel=1e-10)
    assert [term.weight > 0 for term in result.terms[0][0]] == [True, False, True]
    close(gradients(policy), expected)
    policy.model.load_state_dict(state)
    other = replace(group.rollouts[1], segments=(Segment((300, 301), (-1.0, -1.0), trained=True),))
    rollouts = (group.rollouts[0], other, group.rollouts[2])
    changed = replace(batch, groups=(replace(batch.groups[0], rollouts=rollouts), *batch.groups[1:]))
    Updater(policy, config(kl=K3)).update([changed])
    close(gradients(policy), expected)


def test_what_an_environment_wrote_is_not_trained_on(policy, sampled, plain_logps):
    """Its tokens may be banned for the model, with a log-probability of minus infinity; what follows sees them."""
    banned = policy.banned_ids[0].item()
    segments = (
        Segment((100, 101), (-1.0, -1.0), trained=True),
        Segment((banned, 110), (0.0, 0.0), trained=False),
        Segment((120, 1), (-1.0, -1.0), trained=True),
    )
    group = sampled.groups[2]
    group = replace(group, rollouts=(replace(group.rollouts[0], segments=segments), group.rollouts[1]))
    batch = Batch(1, (group,), ADVANTAGES[2:])
    loss, expected = by_hand(policy, [batch], plain_logps, reduction="token_mean", beta=BETA)
    updater = Updater(policy, config(reduction="token_mean", kl=K3))
    result = updater.update([batch])
    assert result.metrics["policy/skipped_updates/count"] == 0
    assert result.terms[0][0][0].weight == pytest.approx(1 / (4 + len(group.rollouts[1].tokens)))
    assert result.losses[0][0] == pytest.approx(loss, rel=1e-10)
    close(gradients(policy), expected)
    assert all(math.isfinite(value) for value in updater.metrics(batch, result.terms[0]).values())


def test_equal_rewards_without_kl_give_no_gradient(policy, sampled):
    batch = replace(sampled, advantages_PG=tuple((0.0,) * len(group.rollouts) for group in sampled.groups))
    result = Updater(policy, config()).update([batch])
    assert result.metrics["policy/grad_norm/before_clip"] == 0
    assert result.losses == [[0.0]]
    assert all(not gradient.any() for gradient in gradients(policy).values())


QUIET = (ADVANTAGES[0], (0.0, 0.0, 0.0), ADVANTAGES[2])  # the second group has no signal


def updated(policy, batch, **options):
    """The update's result and gradient, and the forward's answers, as a policy of the same weights makes them."""
    fresh = copy.deepcopy(policy)
    ran, logps = [], fresh.logps
    fresh.logps = lambda rows, **given: ran.extend(a for row in rows for a in row.answers) or logps(rows, **given)
    result = Updater(fresh, config(**options)).update([batch])
    return result, gradients(fresh), ran


@pytest.mark.parametrize("mini_batches", [1, 2])
def test_a_skipped_group_gives_the_same_gradient_for_less(mini_batches, policy, sampled):
    kept = replace(sampled, advantages_PG=QUIET)
    skipped = replace(kept, roles_P=("train", "skip", "train"))
    (one, expected, all_of_them), (other, found, some) = (
        updated(policy, batch, mini_batches=mini_batches) for batch in (kept, skipped)
    )
    close(found, expected, bound=1e-12)
    assert other.losses[0][0] == pytest.approx(one.losses[0][0], abs=1e-12)
    quiet = {r.tokens for r in sampled.groups[1].rollouts}
    assert quiet <= set(all_of_them)
    assert not quiet & set(some)
    assert all(term.weight == 0 and term.pass_logps == [] for term in other.terms[0][1])
    assert [term.weight for term in other.terms[0][0]] == [term.weight for term in one.terms[0][0]]


def test_a_group_that_is_left_out_is_as_if_it_were_not_there(policy, sampled):
    without = Batch(1, sampled.groups[::2], ADVANTAGES[::2])
    left_out = replace(sampled, advantages_PG=QUIET, roles_P=("train", "leave_out", "train"))
    (one, expected, _), (other, found, _) = (updated(policy, batch, mini_batches=2) for batch in (without, left_out))
    close(found, expected, bound=1e-12)
    assert other.losses == one.losses
    assert [term.weight for term in other.terms[0][2]] == [term.weight for term in one.terms[0][1]]
    assert all(term.weight == 0 for term in other.terms[0][1])


def test_a_step_of_which_nothing_is_left_changes_nothing(policy, sampled):
    before = copy.deepcopy(policy.model.state_dict())
    updater = Updater(policy, config(mini_batches=2))
    batch = replace(sampled, roles_P=("leave_out",) * 3)
    result = updater.update([batch])
    assert result.losses == [[0.0]]
    assert updater.metrics(batch, result.terms[0]) == {}
    torch.testing.assert_close(policy.model.state_dict(), before, rtol=0, atol=0)


def test_a_task_with_more_answers_weighs_the_same_under_group_mean(policy, sampled):
    """By hand: 1 / (2 groups x answers x length), so that each group's weights sum to a half, whatever its size."""
    six = replace(sampled.groups[0], rollouts=sampled.groups[0].rollouts + sampled.groups[1].rollouts)
    six = replace(six, scores=sampled.groups[0].scores + sampled.groups[1].scores)
    batch = Batch(1, (six, sampled.groups[2]), ((1.0, -0.5, 0.25, -1.5, 0.75, 0.8), ADVANTAGES[2]))
    result = Updater(policy, config(reduction="group_mean")).update([batch])
    for group, terms in zip(batch.groups, result.terms[0], strict=True):
        lengths = [len(r.tokens) for r in group.rollouts]
        assert [t.weight for t in terms] == pytest.approx([1 / (2 * len(lengths) * n) for n in lengths])
        assert sum(t.weight * n for t, n in zip(terms, lengths, strict=True)) == pytest.approx(0.5)


def test_the_written_answers_of_some_groups_weigh_by_their_share(policy, sampled, plain_logps):
    """One of three groups is supervised: a third of the mean over its answer's tokens, times the weight."""
    given = config().model_copy(update={"groups": GroupsConfig(no_signal=Supervise(type="supervise", weight=0.5))})
    quiet = replace(sampled, advantages_PG=tuple((0.0,) * len(group.rollouts) for group in sampled.groups))
    tokens = (100, 101, 102, 1)
    logps = plain_logps(policy, policy.encode(sampled.groups[2].task), tokens)
    named = list(policy.model.named_parameters())
    expected = torch.autograd.grad(-0.5 * logps.sum() / 12, [p for _, p in named], allow_unused=True)
    result = Updater(policy, given).update([quiet], [[(), (), tokens]])
    assert result.metrics["policy/sft_loss"] == pytest.approx(-logps.sum().item() / (3 * 4), rel=1e-9)
    pairs = zip(named, expected, strict=True)
    close(gradients(policy), {n: torch.zeros_like(p) if g is None else g for (n, p), g in pairs})


def test_all_verifiers_failed(policy, sampled, failed):
    groups = tuple(replace(group, scores=(failed,) * len(group.scores)) for group in sampled.groups)
    batch = Batch(1, groups, tuple((0.0,) * len(group.rollouts) for group in groups))
    updater = Updater(policy, config(kl=K3))
    result = updater.update([batch])
    assert result.losses == [[0.0]]
    assert result.metrics["policy/grad_norm/before_clip"] == 0
    assert updater.metrics(batch, result.terms[0]) == {}


@pytest.mark.parametrize("poison", ["loss", "gradient"])
def test_what_is_not_finite_leaves_the_weights_and_is_counted(poison, policy, sampled):
    updater = Updater(policy, config())
    updater.update([sampled])
    parts = [part["state"] for part in updater.optimizer.state_dict()["parts"]]
    before = copy.deepcopy([policy.model.state_dict(), *parts])
    if poison == "loss":
        bad = replace(sampled, advantages_PG=((math.inf, -0.5, 0.25), *ADVANTAGES[1:]))
        result = updater.update([bad])
        assert not math.isfinite(result.losses[0][0])
    else:
        handle = policy.model.get_output_embeddings().weight.register_hook(lambda gradient: gradient * math.nan)
        result = updater.update([sampled])
        handle.remove()
        assert math.isfinite(result.losses[0][0])
    assert result.metrics["policy/skipped_updates/count"] == 1
    parts = [part["state"] for part in updater.optimizer.state_dict()["parts"]]
    torch.testing.assert_close([policy.model.state_dict(), *parts], before, rtol=0, atol=0)
    assert updater.update([sampled]).metrics["policy/skipped_updates/count"] == 0
    assert any(not torch.equal(p, before[0][name]) for name, p in policy.model.state_dict().items())


def test_the_kl_penalty_of_a_reward_by_hand(policy, sampled, plain_logps):
    kl = KlConfig(beta=BETA, estimator="k1", place="reward")
    segments = (Segment((100,), (-2.0,), True), Segment((101,), (-50.0,), False), Segment((102,), (-3.0,), True))
    group = sampled.groups[2]
    group = replace(group, rollouts=(replace(group.rollouts[0], segments=segments), group.rollouts[1]))
    penalties = Updater(policy, config(kl=kl)).kl_penalties([sampled.groups[0], group])
    for one, found in zip((sampled.groups[0], group), penalties, strict=True):
        prompt = policy.encode(one.task)
        for r, penalty in zip(one.rollouts, found, strict=True):
            reference = plain_logps(policy, prompt, r.tokens, r.temperature, policy.reference).tolist()
            k1 = [logp - ref for logp, ref, trained in zip(r.logps, reference, r.mask, strict=True) if trained]
            assert penalty == pytest.approx(BETA * sum(k1), abs=1e-9)
    assert max(map(abs, penalties[1])) > 0.1


def test_kl_in_the_reward_leaves_the_loss_alone(policy, sampled, plain_logps):
    loss, expected = by_hand(policy, [sampled], plain_logps)
    kl = KlConfig(beta=BETA, estimator="k1", place="reward")
    result = Updater(policy, config(kl=kl)).update([sampled])
    assert result.losses[0][0] == pytest.approx(loss, rel=1e-10)
    close(gradients(policy), expected)


def test_metrics_of_an_on_policy_step(make_policy, tasks):
    policy = make_policy()
    batch = make_batch(policy, tasks)
    updater = Updater(policy, config())
    result = updater.update([batch])
    metrics = updater.metrics(batch, result.terms[0])
    assert metrics["policy/ratio/mean"] == 1
    assert metrics["policy/clip_low/share"] == metrics["policy/clip_high/share"] == 0
    assert metrics["policy/ratio/first_pass_max_deviation"] < 1e-4
    assert metrics["sampler/effective_sample/share"] == pytest.approx(1, abs=1e-6)
    assert "policy/kl_reference/mean" not in metrics
    entropies = [e for group in result.terms[0] for term in group for e in term.pass_entropies[0]]
    assert metrics["policy/entropy/mean"] == pytest.approx(sum(entropies) / len(entropies))
    answers = [r for group in batch.groups for r in group.rollouts]
    assert len(entropies) == sum(len(r.tokens) for r in answers)
    first, second = (len(policy.encode(task)) for task in tasks[:2])
    distinct, plain = first + second + len(entropies), 6 * first + 2 * second + len(entropies)
    assert metrics["tokens/distinct_share"] == pytest.approx(distinct / plain)
    assert result.metrics["sampler/policy_lag/max"] == 0


def test_the_lag_is_that_of_the_oldest_answer(policy, sampled):
    policy.version = 3
    rollouts = tuple(replace(r, policy_version=2) for r in sampled.groups[1].rollouts)
    groups = (replace(sampled.groups[0], rollouts=tuple(replace(r, policy_version=3) for r in rollouts)),)
    groups += (replace(sampled.groups[1], rollouts=rollouts),)
    result = Updater(policy, config()).update([Batch(4, groups, ADVANTAGES[:2])])
    assert result.metrics["sampler/policy_lag/max"] == 1


def test_the_rate_follows_the_updates_of_the_run(policy, sampled):
    optimizer = OptimizerConfig(learning_rate=0.004, warmup_updates=2, schedule="linear")
    settings = config(optimizer=optimizer, passes=2).model_copy(update={"num_steps": 8, "accumulate_steps": 2})
    updater = Updater(policy, settings)
    assert updater.optimizer.num_updates == 8
    rates = [updater.update([sampled]).metrics["policy/learning_rate"] for _ in range(2)]
    assert rates == pytest.approx([0.004, 0.004 * 5 / 6])


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_updates_raise_the_good_answers_and_lower_the_bad(kind, policy, sampled, plain_logps):
    optimizer = OptimizerConfig(type=kind, learning_rate=1e-4, warmup_updates=0)
    before = weighted_logps(policy, sampled, plain_logps)
    Updater(policy, config(optimizer=optimizer)).update([sampled])
    assert weighted_logps(policy, sampled, plain_logps) > before + 1e-4


@torch.no_grad()
def weighted_logps(policy, batch, plain_logps) -> float:
    """The mean over answers of advantage times the mean log-probability."""
    total = 0.0
    for group, advantages in zip(batch.groups, batch.advantages_PG, strict=True):
        for r, advantage in zip(group.rollouts, advantages, strict=True):
            logps = plain_logps(policy, policy.encode(group.task), r.tokens, r.temperature)
            total += advantage * logps.mean().item()
    return total / 8


def test_bfloat16_is_near_float32(make_policy, sampled):
    found = {}
    for dtype in ("float32", "bfloat16"):
        policy = make_policy(dtype)
        policy.freeze_reference()
        result = Updater(policy, config(kl=K3)).update([sampled])
        assert all(p.dtype == torch.float32 for p in policy.model.parameters())
        flat = torch.cat([g.flatten() for g in gradients(policy).values()])
        found[dtype] = (result.losses[0][0], flat, result.terms[0][0][0].old_logps)
    (loss, gradient, logps), (loss16, gradient16, logps16) = found.values()
    assert loss16 == pytest.approx(loss, abs=0.02)
    assert torch.cosine_similarity(gradient, gradient16, dim=0) > 0.99
    assert logps16 == pytest.approx(logps, abs=0.1)
    assert logps16 != logps
