"""Evaluation: held-out tasks answered greedily, graded, and summed up with intervals. It never touches training."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from oncurve.config.rewards import KIND_RULES, GroundingRules, RewardConfig
from oncurve.rewards.grader import LocalGrader
from oncurve.rollout.local import LocalSampler
from oncurve.truths import truth_json
from oncurve.types import Request, Rollout, Score, Task, TaskSet

THRESHOLDS = (0.5, 0.75, 0.95)
Z95 = 1.959963984540054
NUM_RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was asked, answered and scored.

    An answer that does not parse counts with an IoU of 0; one whose verifier failed counts nowhere.
    """

    tasks: tuple[Task, ...]
    rollouts: tuple[Rollout, ...]
    scores: tuple[Score, ...]

    @property
    def graded(self) -> tuple[Score, ...]:
        return tuple(score for score in self.scores if score.status != "error")

    @property
    def ious(self) -> np.ndarray:
        return np.array([score.parts.get("iou", 0.0) for score in self.graded])

    @property
    def boxed(self) -> bool:
        """Whether every task asks for one box, so that an IoU says it all."""
        return all(task.kind == "grounding" for task in self.tasks)

    @property
    def values(self) -> np.ndarray:
        return np.array([score.value for score in self.graded])

    @property
    def summary(self) -> dict[str, float]:
        """Of boxes: `mean_iou`, `acc@0.5`, `acc@0.75`, `acc@0.95` (IoU at or above), `valid_format`, `num_tasks`.

        Of other kinds: `accuracy` (the share that is correct), `mean_value`, `valid_format`, `num_tasks`.
        """
        if not self.boxed:
            return {
                "mean_value": float(self.values.mean()),
                "accuracy": float(np.mean([score.correct is True for score in self.graded])),
                "valid_format": float(np.mean([score.status == "scored" for score in self.graded])),
                "num_tasks": len(self.graded),
            }
        return {
            "mean_iou": float(self.ious.mean()),
            **{f"acc@{t}": float((self.ious >= t).mean()) for t in THRESHOLDS},
            "valid_format": float(np.mean([score.status == "scored" for score in self.graded])),
            "num_tasks": len(self.graded),
        }

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """95 % intervals: a percentile bootstrap over tasks for the mean, Wilson's for the shares."""
        summary, n = self.summary, len(self.graded)
        shares = [name for name in summary if name not in ("mean_iou", "mean_value", "num_tasks")]
        mean = {"mean_iou": bootstrap(self.ious)} if self.boxed else {"mean_value": bootstrap(self.values)}
        return mean | {name: wilson(summary[name], n) for name in shares}

    @property
    def metrics(self) -> dict[str, float]:
        """The summary under the names of the record."""
        summary = self.summary
        if not self.boxed:
            return {
                "eval/accuracy/mean": summary["accuracy"],
                "eval/accuracy/num_tasks": summary["num_tasks"],
                "eval/value/mean": summary["mean_value"],
                "eval/heldout/valid_format": summary["valid_format"],
            }
        return {
            "eval/accuracy/mean": summary["acc@0.5"],
            "eval/accuracy/num_tasks": summary["num_tasks"],
            "eval/mean_iou/mean": summary["mean_iou"],
            **{f"eval/heldout/{name}": summary[name] for name in ("acc@0.75", "acc@0.95", "valid_format")},
        }

    def probes(self, count: int) -> list[dict]:
        """The first `count` tasks for people to read: question, truth, answer, score, images by hash."""
        kept = list(zip(self.tasks, self.rollouts, self.scores, strict=True))[:count]
        return [
            {
                "task_id": task.id,
                "question": task.messages[-1].text,
                "images": [image.sha256 for image in task.images],
                "truth": truth_json(task.truth),
                "text": rollout.text,
                "score": asdict(score),
            }
            for task, rollout, score in kept
        ]


def evaluate(
    policy, tasks: TaskSet, *, num_tasks: int, batch_size: int, max_new_tokens: int, rules: RewardConfig | None = None
) -> Evaluation:
    """Answer the first `num_tasks` tasks greedily and grade them.

    Boxes are graded by IoU, whatever the reward of training is; other kinds by `rules`, or by their kind's defaults.
    """
    sampler = LocalSampler(policy, max_new_tokens=max_new_tokens, batch_size=batch_size)
    asked: list[Task] = []
    answered: list[Rollout] = []
    count = min(num_tasks, len(tasks))
    for begin in range(0, count, batch_size):
        batch = [tasks[i] for i in range(begin, min(begin + batch_size, count))]
        rollouts = sampler.sample([Request(task, 1, 0.0) for task in batch], step=0, seed=0)
        asked.extend(batch)
        answered.extend(rollout for (rollout,) in rollouts)
    if all(task.kind == "grounding" for task in asked):
        rules = GroundingRules()
    grader = LocalGrader(rules or KIND_RULES[asked[0].kind](type=asked[0].kind))
    scores = grader.grade(list(zip(asked, answered, strict=True)))
    return Evaluation(tuple(asked), tuple(answered), tuple(scores))


def wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % score interval of a share of `n` (E. B. Wilson, 1927)."""
    middle = share + Z95**2 / (2 * n)
    spread = Z95 * math.sqrt(share * (1 - share) / n + Z95**2 / (4 * n**2))
    scale = 1 + Z95**2 / n
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def bootstrap(values: Sequence[float] | np.ndarray, seed: int = 0) -> tuple[float, float]:
    """The 95 % percentile interval of the mean over resampled tasks (B. Efron, 1979); seeded, so that it repeats."""
    values = np.asarray(values, np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(values), (NUM_RESAMPLES, len(values)))
    low, high = np.quantile(values[drawn].mean(1), [0.025, 0.975])
    return float(low), float(high)
