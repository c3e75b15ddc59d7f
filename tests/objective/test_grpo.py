import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oncurve.config.schema import GrpoObjective, KlConfig
from oncurve.objective.grpo import clipped, kl_estimate, policy_term, ratio
from oncurve.objective.terms import TokenInputs, token_terms

WORKED = json.loads((Path(__file__).parents[1] / "reference" / "worked_example.json").read_text())
CASES = {name: case for name, case in WORKED["token_loss"].items() if isinstance(case, dict)}
quick = settings(deadline=None, max_examples=50)


def column(*numbers: float, grad: bool = False) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=grad)


def token_loss(logps, old, advantages, reference=None, *, clip_low, clip_high, beta=0.0, estimator="k3") -> Tensor:
    """The loss of GRPO; a KL term in the loss with any estimator, also k1, which a configuration refuses."""
    kl = KlConfig.model_construct(beta=beta, estimator=estimator, place="loss")
    objective = GrpoObjective(clip_low=clip_low, clip_high=clip_high).model_copy(update={"kl": kl})
    answer_T = torch.zeros(len(logps), dtype=torch.long)
    return token_terms(objective, TokenInputs(logps, old, old, advantages, answer_T, reference)).loss_T


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_worked_example(case):
    term = policy_term(column(case["ratio"]), column(case["advantage"]), 0.2, 0.2)
    assert term.item() == pytest.approx(case["policy_term"], abs=1e-12)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_estimates_of_the_worked_example(estimator):
    expected = WORKED["kl_estimators"]
    estimate = kl_estimate(column(expected["logp"]), column(expected["ref_logp"]), estimator)
    assert estimate.item() == pytest.approx(expected[estimator], abs=1e-12)


def test_ratio_by_hand():
    assert ratio(column(math.log(0.3)), column(math.log(0.2))).item() == pytest.approx(1.5)


def test_the_two_clips_are_each_their_own():
    terms = policy_term(column(2, 2, 0.1, 0.1), column(1, -1, 1, -1), 0.3, 0.5)
    assert terms.tolist() == pytest.approx([-1.5, 2, -0.1, 0.7])


def test_token_loss_adds_beta_times_the_estimate():
    logps, old, reference = column(-1.0), column(-1.0 - math.log(1.15)), column(-0.8)
    for estimator, kl in (("k2", 0.02), ("k3", math.exp(0.2) - 1.2)):
        loss = token_loss(
            logps, old, column(1.63), reference, clip_low=0.2, clip_high=0.2, beta=0.01, estimator=estimator
        )
        assert loss.item() == pytest.approx(-1.15 * 1.63 + 0.01 * kl, abs=1e-12)


def test_beta_0_needs_no_reference():
    loss = token_loss(column(-1.0), column(-1.0), column(2.0), clip_low=0.2, clip_high=0.2)
    assert loss.tolist() == [-2.0]


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_gradient_is_that_of_the_written_formula(estimator):
    # Ratios 1.00, 1.65, 1.65, 0.61, 0.61 and 1.11: both sides of both clips, none on an edge.
    logps = column(-1.0, -0.5, -0.5, -2.0, -2.0, -0.9, grad=True)
    old, reference = column(-1.0, -1.0, -1.0, -1.5, -1.5, -1.0), column(-1.3, -0.2, -1.0, -2.5, -0.1, -0.9)
    advantages = column(0.7, 1.5, -1.5, 0.4, -0.4, -2.0)

    def loss(logps_T: Tensor) -> Tensor:
        return token_loss(
            logps_T, old, advantages, reference, clip_low=0.2, clip_high=0.2, beta=0.3, estimator=estimator
        )

    assert torch.autograd.gradcheck(loss, (logps,), eps=1e-6, atol=1e-8)
    by_hand = []
    for logp, before, ref, a in zip(*(x.tolist() for x in (logps, old, reference, advantages)), strict=True):
        r, d = math.exp(logp - before), ref - logp
        held = min(max(r, 0.8), 1.2)
        kl = {"k1": -d, "k2": d * d / 2, "k3": math.exp(d) - d - 1}[estimator]
        by_hand.append(-min(r * a, held * a) + 0.3 * kl)
    assert loss(logps).tolist() == pytest.approx(by_hand, abs=1e-12)


def test_on_policy_the_gradient_is_reinforce():
    logits = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(3, 5).requires_grad_()
    tokens, advantages = torch.tensor([[0], [3], [4]]), column(1.5, -0.5, -1.0)

    def logps() -> Tensor:
        return logits.log_softmax(-1).gather(1, tokens).squeeze(1)

    grpo = token_loss(logps(), logps(), advantages, clip_low=0.2, clip_high=0.2).sum()
    reinforce = -(advantages * logps()).sum()
    (a,), (b,) = torch.autograd.grad(grpo, logits), torch.autograd.grad(reinforce, logits)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-14)
    assert b.abs().max() > 0.1


@given(
    r=st.floats(0.3, 3).filter(lambda r: min(abs(r - 0.8), abs(r - 1.3)) > 1e-6),
    a=st.sampled_from([-2.0, -0.5, 0.0, 0.5, 2.0]),
)
@quick
def test_the_gradient_is_0_just_where_the_clip_binds(r, a):
    logps = column(math.log(r), grad=True)
    token_loss(logps, column(0.0), column(a), clip_low=0.2, clip_high=0.3).sum().backward()
    low, high = clipped(ratio(logps.detach(), column(0.0)), column(a), 0.2, 0.3)
    assert low.item() == (r < 0.8 and a < 0)
    assert high.item() == (r > 1.3 and a > 0)
    assert logps.grad.item() == pytest.approx(0 if low or high else -r * a, abs=1e-12)


def test_no_gradient_reaches_the_old_or_the_reference_policy():
    logps, old, reference = (column(-value, grad=True) for value in (1.0, 1.1, 0.9))
    token_loss(logps, old, column(1.0), reference, clip_low=0.2, clip_high=0.2, beta=0.1).sum().backward()
    assert old.grad is None
    assert reference.grad is None
    assert logps.grad.item() != 0


@given(st.floats(-8, 0), st.floats(-8, 0))
@quick
def test_k2_and_k3_are_never_negative(logp, reference):
    for estimator in ("k2", "k3"):
        assert kl_estimate(column(logp), column(reference), estimator).item() >= 0


def test_k3_keeps_its_digits_near_0():
    assert kl_estimate(column(-1.0), column(-1.0 + 1e-6), "k3").item() == pytest.approx(5e-13, rel=1e-6, abs=0)


LOGITS = (0.3, -1.2, 0.8, 0.0, -0.4)
REFERENCE_LOGITS = (-0.5, 0.9, 0.1, -0.2, 0.6)


def exact_kl(a_logps: Tensor, b_logps: Tensor) -> Tensor:
    return (a_logps.exp() * (a_logps - b_logps)).sum()


def expected_gradient(logits: Tensor, reference_logps: Tensor, estimator: str) -> Tensor:
    """The gradient of the estimate, expected over tokens of the policy: all of a vocabulary of five."""
    logps = logits.log_softmax(-1)
    estimate = kl_estimate(logps, reference_logps, estimator)
    return torch.autograd.grad((logps.detach().exp() * estimate).sum(), logits)[0]


def policy_and_reference() -> tuple[Tensor, Tensor]:
    return column(*LOGITS, grad=True), column(*REFERENCE_LOGITS).log_softmax(-1)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_k1_and_k3_have_the_exact_kl_as_expected_value(estimator):
    logits, reference = policy_and_reference()
    logps = logits.log_softmax(-1)
    expected = (logps.exp() * kl_estimate(logps, reference, estimator)).sum()
    assert expected.item() == pytest.approx(exact_kl(logps, reference).item(), abs=1e-12)
    assert expected.item() > 0.1


def test_k2_has_the_gradient_of_the_exact_kl():
    logits, reference = policy_and_reference()
    exact = torch.autograd.grad(exact_kl(logits.log_softmax(-1), reference), logits)[0]
    torch.testing.assert_close(expected_gradient(logits, reference, "k2"), exact, rtol=0, atol=1e-14)
    assert exact.abs().max() > 0.1


def test_k1_has_no_gradient():
    logits, reference = policy_and_reference()
    assert expected_gradient(logits, reference, "k1").abs().max() < 1e-15


def test_k3_has_the_gradient_of_the_kl_the_other_way_round():
    logits, reference = policy_and_reference()
    forward = torch.autograd.grad(exact_kl(reference, logits.log_softmax(-1)), logits)[0]
    torch.testing.assert_close(expected_gradient(logits, reference, "k3"), forward, rtol=0, atol=1e-14)
    assert not torch.allclose(forward, expected_gradient(logits, reference, "k2"), atol=0.05)


def test_k3_agrees_with_the_exact_kl_to_first_order_only():
    logits = column(*LOGITS, grad=True)
    errors = []
    for distance in (1e-2, 5e-3, 2.5e-3):
        reference = (logits.detach() + distance * column(*REFERENCE_LOGITS)).log_softmax(-1)
        exact = torch.autograd.grad(exact_kl(logits.log_softmax(-1), reference), logits)[0]
        errors.append(((expected_gradient(logits, reference, "k3") - exact).norm() / exact.norm()).item())
    assert errors[0] < 0.02
    assert [errors[0] / errors[1], errors[1] / errors[2]] == pytest.approx([2, 2], rel=0.02)
