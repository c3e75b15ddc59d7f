"""Every objective's token loss against its paper's formula: numbers by hand, gradients by autograd of the formula as written."""

import math

import pytest
import torch
from torch import Tensor

from oncurve.config.schema import CispoObjective, GrpoObjective, KlConfig, PpoObjective
from oncurve.objective import grpo
from oncurve.objective.terms import TokenInputs, needs_every_answer, token_terms


def column(*numbers: float, grad: bool = False) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=grad)


ANSWER_T = torch.tensor([0, 0, 0, 1, 1])
OLD = column(-1.0, -2.0, -0.5, -1.5, -0.3)
SAMPLER = column(-1.1, -2.9, -0.5, -1.2, -0.3)
REFERENCE = column(-1.3, -1.6, -0.7, -1.0, -0.4)
ADVANTAGES = column(1.2, 1.2, 1.2, -0.7, -0.7)
ENTROPY = column(0.9, 0.4, 0.2, 0.8, 0.1)


def inputs(logps_T: Tensor, entropy_T: Tensor = ENTROPY) -> TokenInputs:
    return TokenInputs(logps_T, OLD, SAMPLER, ADVANTAGES, ANSWER_T, REFERENCE, entropy_T)


def test_the_sequence_ratio_by_hand():
    ratios = grpo.sequence_ratio(OLD + column(0.3, -0.1, 0.1, -0.4, 0.2), OLD, ANSWER_T)
    assert ratios.tolist() == pytest.approx([math.exp(0.1)] * 3 + [math.exp(-0.1)] * 2)


def test_gspo_by_hand_and_by_its_formula():
    """arXiv 2507.18071 eq. 5 and 7: the mean over answers of min(s A, clip(s) A)."""
    objective = GrpoObjective(ratio="sequence", clip_low=0.04, clip_high=0.05)
    logps = (OLD + column(0.30, -0.1, 0.01, -0.02, 0.03)).requires_grad_()
    terms = token_terms(objective, inputs(logps))
    assert terms.policy_T.tolist() == pytest.approx([-1.05 * 1.2] * 3 + [0.7 * math.exp(0.005)] * 2)
    assert terms.clipped_high_T.tolist() == [True] * 3 + [False] * 2
    weights = column(1 / 6, 1 / 6, 1 / 6, 1 / 4, 1 / 4)  # sequence_mean
    (found,) = torch.autograd.grad((weights * terms.loss_T).sum(), logps)
    written = []
    for first, last, advantage in ((0, 3, 1.2), (3, 5, -0.7)):
        s = (logps[first:last].sum() - OLD[first:last].sum()).div(last - first).exp()
        written.append(-torch.minimum(s * advantage, s.clamp(0.96, 1.05) * advantage))
    (expected,) = torch.autograd.grad(torch.stack(written).mean(), logps)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
    assert expected.abs().max() > 0.1


def test_an_answers_sequence_ratio_does_not_see_the_others():
    logps = OLD + column(0.3, -0.1, 0.1, -0.4, 0.2)
    alone = grpo.sequence_ratio(logps[:3], OLD[:3], ANSWER_T[:3])
    assert grpo.sequence_ratio(logps, OLD, ANSWER_T)[:3].tolist() == alone.tolist()


def test_cispo_by_hand_and_its_gradient_beyond_the_clip():
    """arXiv 2506.13585 eq. 4: the gradient is that of A logp, weighed by the clipped ratio, also beyond the clip."""
    logps = (OLD + torch.log(column(3.0, 0.1, 1.0, 3.0, 0.5))).requires_grad_()
    terms = token_terms(CispoObjective(type="cispo", clip_high=1.0), inputs(logps))
    factors = column(2.0, 0.1, 1.0, 2.0, 0.5)
    assert terms.loss_T.tolist() == pytest.approx((-factors * ADVANTAGES * logps).tolist())
    assert terms.clipped_high_T.tolist() == [True, False, False, True, False]
    assert not terms.clipped_low_T.any()
    (found,) = torch.autograd.grad(terms.loss_T.sum(), logps)
    torch.testing.assert_close(found, -factors * ADVANTAGES, rtol=0, atol=1e-14)


@pytest.mark.parametrize("objective", [GrpoObjective(), CispoObjective(type="cispo"), PpoObjective(type="ppo")])
def test_on_policy_every_token_objective_is_reinforce(objective):
    logps = OLD.clone().requires_grad_()
    (found,) = torch.autograd.grad(token_terms(objective, inputs(logps)).loss_T.sum(), logps)
    torch.testing.assert_close(found, -ADVANTAGES, rtol=0, atol=1e-14)


def test_importance_weights_by_hand():
    weights = grpo.importance_weights(OLD, SAMPLER, 2.0)
    assert weights.tolist() == pytest.approx([math.exp(0.1), 2.0, 1.0, math.exp(-0.3), 1.0])  # exp(0.9) is capped


def test_importance_weights_weigh_the_policy_term_alone():
    """The KL term is no part of them: it compares the policy with the reference, whoever wrote the token."""
    kl = KlConfig(beta=0.3)
    logps = OLD + 0.05
    plain = token_terms(GrpoObjective(kl=kl), inputs(logps))
    weighed = token_terms(GrpoObjective(kl=kl, importance_cap=2.0), inputs(logps))
    expected = grpo.importance_weights(OLD, SAMPLER, 2.0) * plain.policy_T + 0.3 * plain.kl_T
    torch.testing.assert_close(weighed.loss_T, expected, rtol=0, atol=1e-14)


def test_everything_at_once_has_the_gradient_of_the_written_formula():
    objective = GrpoObjective(clip_high=0.28, importance_cap=2.0, entropy=0.05, kl=KlConfig(beta=0.3, estimator="k2"))
    logits = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    tokens = torch.tensor([[1], [0], [6], [3], [2]])

    def quantities() -> tuple[Tensor, Tensor]:
        logps_TV = logits.log_softmax(-1)
        return logps_TV.gather(1, tokens)[:, 0], -(logps_TV.exp() * logps_TV).sum(-1)

    (found,) = torch.autograd.grad(token_terms(objective, inputs(*quantities())).loss_T.sum(), logits)
    logps, entropy = quantities()
    total = logits.new_zeros(())
    for t in range(5):
        r = torch.exp(logps[t] - OLD[t])
        w = min(math.exp(OLD[t] - SAMPLER[t]), 2.0)
        gain = torch.minimum(r * ADVANTAGES[t], r.clamp(0.8, 1.28) * ADVANTAGES[t])
        total = total - w * gain + 0.3 * (REFERENCE[t] - logps[t]) ** 2 / 2 - 0.05 * entropy[t]
    (expected,) = torch.autograd.grad(total, logits)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)
    assert expected.abs().max() > 0.1


def test_the_entropy_bonus_flattens_the_distribution():
    logits = column(2.0, 0.0, -1.0, grad=True)
    logps = logits.log_softmax(-1)
    entropy = -(logps.exp() * logps).sum()[None]
    given = TokenInputs(
        logps[:1], logps[:1].detach(), logps[:1].detach(), column(0.0), torch.tensor([0]), None, entropy
    )
    token_terms(GrpoObjective(entropy=0.1), given).loss_T.sum().backward()
    p = logits.detach().softmax(-1)
    by_hand = 0.1 * p * (p.log() + entropy.detach())  # -dH/dz = p (log p + H)
    torch.testing.assert_close(logits.grad, by_hand, rtol=0, atol=1e-14)
    assert logits.grad[0] > 0  # a step against it makes the likeliest token less likely


@pytest.mark.parametrize(
    ("objective", "needed"),
    [
        (GrpoObjective(), False),
        (CispoObjective(type="cispo"), False),
        (GrpoObjective(kl=KlConfig(beta=0.1)), True),
        (GrpoObjective(kl=KlConfig(beta=0.1, estimator="k1", place="reward")), False),
        (GrpoObjective(entropy=0.1), True),
        (PpoObjective(type="ppo"), True),
    ],
)
def test_who_needs_answers_without_advantage(objective, needed):
    assert needs_every_answer(objective) == needed
