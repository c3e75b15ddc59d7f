"""Policy and mismatch metrics by hand."""

import math

import pytest
import torch

from oncurve.config.schema import GrpoObjective, KlConfig
from oncurve.objective.diagnostics import mismatch_metrics, policy_metrics
from oncurve.objective.terms import TokenInputs, token_terms


def column(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


OLD = column(-1.0, -1.0, -1.0, -1.0)
ADVANTAGES = column(1.0, 1.0, -1.0, -1.0)
SECOND = OLD + torch.log(column(1.5, 0.5, 1.5, 0.5))  # clipped above: the first token; below: the last


def found(passes, reference=None, estimator="k3"):
    objective = GrpoObjective(clip_high=0.3, kl=KlConfig(estimator=estimator))
    answer_T = torch.arange(4)
    terms = [token_terms(objective, TokenInputs(p, OLD, OLD, ADVANTAGES, answer_T, reference)) for p in passes]
    return policy_metrics(terms, column(0.1, 0.2, 0.3, 0.4))


def test_one_pass_has_a_ratio_of_1():
    assert found([OLD]) == {
        "policy/entropy/mean": pytest.approx(0.25),
        "policy/ratio/mean": 1.0,
        "policy/clip_low/share": 0.0,
        "policy/clip_high/share": 0.0,
    }


def test_two_passes_by_hand():
    metrics = found([OLD, SECOND + math.log(1.1)])
    assert metrics["policy/ratio/mean"] == pytest.approx((4 * 1.0 + 2 * 1.65 + 2 * 0.55) / 8)
    assert metrics["policy/clip_low/share"] == 1 / 8
    assert metrics["policy/clip_high/share"] == 1 / 8


@pytest.mark.parametrize(
    ("estimator", "of_log_2"), [("k1", -math.log(2)), ("k2", math.log(2) ** 2 / 2), ("k3", 1 - math.log(2))]
)
def test_kl_is_the_mean_over_tokens_and_passes(estimator, of_log_2):
    reference = OLD + math.log(2)
    metrics = found([OLD, reference], reference, estimator)
    assert metrics["policy/kl_reference/mean"] == pytest.approx(of_log_2 / 2)


def test_mismatch_by_hand():
    sampler = column(-1.0, -2.0, -3.0)
    trainer = sampler + torch.log(column(1.0, 2.0, 0.5))
    metrics = mismatch_metrics(sampler, trainer)
    assert metrics == {
        "sampler/mismatch_kl/mean": pytest.approx(((2 - math.log(2) - 1) + (0.5 + math.log(2) - 1)) / 3),
        "sampler/importance/mean": pytest.approx(3.5 / 3),
        "sampler/effective_sample/share": pytest.approx(3.5**2 / (3 * 5.25)),
        "policy/ratio/first_pass_max_deviation": pytest.approx(1.0),
    }


def test_the_share_of_capped_weights():
    sampler = column(-1.0, -2.0, -3.0)
    metrics = mismatch_metrics(sampler, sampler + torch.log(column(1.0, 2.1, 0.5)), cap=2.0)
    assert metrics["sampler/importance/capped/share"] == pytest.approx(1 / 3)


def test_no_mismatch():
    metrics = mismatch_metrics(OLD, OLD)
    assert list(metrics.values()) == [0, 1, 1, 0]
