"""The worked example: one picture, 56 answers, one update, each number computed by the functions that training uses."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from oncurve.advantage import Deviation, advantages, deviation
from oncurve.geometry.boxes import iou
from oncurve.geometry.dialects import parse_box01
from oncurve.parsing import MalformedAnswer
from oncurve.types import Box

ABOUT = (
    "Numbers that follow from the worked example of the project's source notes, computed here in float64. "
    "Where the notes round or mix two conventions, 'as_noted' keeps the printed value and 'exact' the computed one; "
    "a test asserts 'exact'."
)
TRUTH: Box = (0.2, 0.3, 0.6, 0.7)
ANSWERS = {
    "tight": "<box>0.21,0.31,0.59,0.69</box>",
    "loose": "<box>0.15,0.25,0.50,0.65</box>",
    "dog": "<box>0.70,0.40,0.90,0.80</box>",
    "whole_image": "<box>0,0,1,1</box>",
    "exact": "<box>0.20,0.30,0.60,0.70</box>",
}
MALFORMED = "The cat is on the left."
FLOOR = 0.0  # the reward of an answer that does not pass the format gate
REWARDS = {
    "mixed": (0, 0, 0.04, 0.16, 0.36, 0.49, 0.72, 0.85),
    "all_good": (0.64, 0.68, 0.72, 0.76, 0.79, 0.81, 0.84, 0.88),
    "all_poor": (0, 0, 0.01, 0.04, 0.09, 0.12, 0.16, 0.2),
    "four_answers": (1.0, 0.0, 1.0, 0.0),
    "all_equal": (0.5,) * 8,
}
NOTED: dict[str, dict[str, float]] = {
    "mixed": {"mean": 0.328, "0.85": 1.63, "0.72": 1.22, "0.36": 0.1, "0": -1.02},
    "all_good": {"0.64": -1.64},
    "all_poor": {"0.20": 1.58},
}
"""What the notes print: a group's mean, and the advantage of a reward, to two decimals."""
CONVENTIONS: dict[str, tuple[Deviation, float]] = {
    "sample_std_eps_1e-4": ("sample", 1e-4),
    "population_std_eps_1e-4": ("population", 1e-4),
    "population_std_eps_1e-6": ("population", 1e-6),
}
TOKENS = {  # ratio and advantage
    "unclipped": (1.15, 1.63),
    "clipped": (1.15, 1.63),
    "clip_binds_above": (1.35, 1.63),
    "clip_binds_below": (0.7, -1.0),
    "pessimistic_side_not_clipped": (1.35, -1.0),
}
BETA, KL, CLIP = 0.01, 0.02, 0.2
LOGP, REFERENCE_LOGP = -1.2, -1.0
NUM_WORKERS, ANSWERS_PER_WORKER, GROUP_SIZE, ACCUMULATE_STEPS = 7, 8, 8, 2


def worked_example(
    *,
    truth: Box = TRUTH,
    answers: Mapping[str, str] = ANSWERS,
    rewards: Mapping[str, Sequence[float]] = REWARDS,
    tokens: Mapping[str, tuple[float, float]] = TOKENS,
    beta: float = BETA,
    kl: float = KL,
    clip: float = CLIP,
) -> dict[str, Any]:
    """Every number of the example as plain JSON. `answers` are well-formed texts, `tokens` pairs (ratio, advantage)."""
    boxes = {}
    for name, text in answers.items():
        box = parse_box01(text)
        boxes[name] = {"box": list(box), "iou": iou(box, truth), "iou_squared": reward(text, truth)}
    return {
        "about": ABOUT,
        "grounding": {"truth": list(truth), "boxes": boxes, "malformed_answer_reward": reward(MALFORMED, truth)},
        "advantages": {name: _group(rewards_G, NOTED.get(name)) for name, rewards_G in rewards.items()},
        "token_loss": {
            "beta": beta,
            "kl": kl,
            "kl_term": beta * kl,
            "clip_epsilon": clip,
            **{
                name: token_terms(*token, beta * kl, math.inf if name == "unclipped" else clip)
                for name, token in tokens.items()
            },
        },
        "counts": _counts(),
        "kl_estimators": _kl_estimators(),
    }


def reward(text: str, truth: Box) -> float:
    """The format gate, then IoU²."""
    try:
        return iou(parse_box01(text), truth) ** 2
    except MalformedAnswer:
        return FLOOR


def token_terms(ratio: float, advantage: float, kl_term: float, clip: float) -> dict[str, float]:
    """The policy term and the loss of one token."""
    import torch

    from oncurve.objective.grpo import policy_term

    ratio_T, advantages_T = (torch.tensor([value], dtype=torch.float64) for value in (ratio, advantage))
    term = policy_term(ratio_T, advantages_T, clip, clip).item()
    return {"ratio": ratio, "advantage": advantage, "policy_term": term, "total": term + kl_term}


def _group(rewards_G: Sequence[float], noted: Mapping[str, float] | None) -> dict[str, Any]:
    statistics = {
        name: {
            "mean": fmean(rewards_G),
            "std": deviation(rewards_G, std),
            "advantages": advantages(rewards_G, std=std, eps=eps).tolist(),
        }
        for name, (std, eps) in CONVENTIONS.items()
    }
    return {"rewards": list(rewards_G), **statistics, "as_noted": noted}


def _counts() -> dict[str, int]:
    answers_per_step = NUM_WORKERS * ANSWERS_PER_WORKER
    return {
        "workers": NUM_WORKERS,
        "answers_per_worker": ANSWERS_PER_WORKER,
        "prompts_per_step": 1,
        "answers_per_step": answers_per_step,
        "group_size": GROUP_SIZE,
        "groups_per_step": answers_per_step // GROUP_SIZE,
        "gradient_accumulation_steps": ACCUMULATE_STEPS,
        "prompts_per_update": ACCUMULATE_STEPS,
        "answers_per_update": answers_per_step * ACCUMULATE_STEPS,
    }


def _kl_estimators() -> dict[str, float]:
    import torch

    from oncurve.objective.grpo import kl_estimate

    logps_T, reference_T = (torch.tensor([logp], dtype=torch.float64) for logp in (LOGP, REFERENCE_LOGP))
    estimates = {name: kl_estimate(logps_T, reference_T, name).item() for name in ("k1", "k2", "k3")}
    return {"logp": LOGP, "ref_logp": REFERENCE_LOGP, **estimates}
