"""Evaluation: held-out tasks answered, graded by the rules of their kind, and summed up. It never touches training."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from oncurve.config.rewards import KIND_RULES, ComposeRules, KindsRules, PythonRules, RewardConfig
from oncurve.evaluate.measures import Graded, Measures, by_kind, measures_of, sampled_measures
from oncurve.rewards.grader import LocalGrader
from oncurve.rewards.kinds import rules_of
from oncurve.rollout.local import LocalSampler
from oncurve.truths import truth_json
from oncurve.types import Request, Rollout, Score, Task, TaskSet

NAMED = {"accuracy": "eval/accuracy/mean", "mean_iou": "eval/mean_iou/mean", "mean_value": "eval/value/mean"}
"""Measures of the held-out set that the record names apart; the others are `eval/heldout/<measure>`."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One greedy answer to each task, and its score. An answer whose verifier failed counts nowhere."""

    tasks: tuple[Task, ...]
    rollouts: tuple[Rollout, ...]
    scores: tuple[Score, ...]

    @property
    def graded(self) -> list[Graded]:
        return [one for one in map(Graded, self.tasks, self.rollouts, self.scores) if one.score.status != "error"]

    @property
    def boxed(self) -> bool:
        """Whether every task asks for one box, so that an IoU says it all."""
        return all(task.kind == "grounding" for task in self.tasks)

    @property
    def measures(self) -> Measures:
        return measures_of(self.graded)

    @property
    def summary(self) -> dict[str, float]:
        """The values of `measures`, and `num_tasks`."""
        return {name: one.value for name, one in self.measures.items()} | {"num_tasks": len(self.graded)}

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """95 % intervals: Wilson's for shares, a percentile bootstrap over tasks for the others."""
        return {name: one.interval for name, one in self.measures.items() if one.interval}

    @property
    def metrics(self) -> dict[str, float]:
        """The summary under the names of the record; of several kinds, each kind's as well."""
        found, graded = self.measures, self.graded
        metrics = {NAMED.get(name, f"eval/heldout/{name}"): one.value for name, one in found.items()}
        kinds = by_kind(graded)
        if len(kinds) > 1:
            metrics |= {f"eval/{k}/{name}": one.value for k, own in kinds.items() for name, one in own.items()}
        return metrics | {"eval/accuracy/num_tasks": len(graded)}

    def probes(self, count: int) -> list[dict]:
        """The first `count` tasks for people to read: question, truth, answer, score, images by hash."""
        kept = list(zip(self.tasks, self.rollouts, self.scores, strict=True))[:count]
        return [
            {
                "task_id": task.id,
                "kind": task.kind,
                "question": task.messages[-1].text,
                "images": [image.sha256 for image in task.images],
                "truth": truth_json(task.truth),
                "text": rollout.text,
                "score": asdict(score),
            }
            for task, rollout, score in kept
        ]


@dataclass(frozen=True, slots=True)
class SampledEvaluation:
    """Several sampled answers to each task, `_T` tasks, and their scores."""

    tasks: tuple[Task, ...]
    rollouts_T: tuple[tuple[Rollout, ...], ...]
    scores_T: tuple[tuple[Score, ...], ...]

    @property
    def graded_T(self) -> list[list[Graded]]:
        """The answers to each task whose verifier did not fail."""
        return [
            [Graded(task, rollout, score) for rollout, score in zip(*some, strict=True) if score.status != "error"]
            for task, *some in zip(self.tasks, self.rollouts_T, self.scores_T, strict=True)
        ]

    @property
    def measures(self) -> Measures:
        return sampled_measures(self.graded_T)


def evaluate(
    policy,
    tasks: TaskSet,
    *,
    num_tasks: int,
    batch_size: int,
    max_new_tokens: int,
    rules: RewardConfig | None = None,
    allow_unsafe: bool = False,
) -> Evaluation:
    """Answer the first `num_tasks` tasks greedily and grade them as `grade` does."""
    sampler = LocalSampler(policy, max_new_tokens=max_new_tokens, batch_size=batch_size)
    asked, answers_T = _answered(sampler, tasks, num_tasks)
    rollouts = [rollout for (rollout,) in answers_T]
    scores = grade(list(zip(asked, rollouts, strict=True)), rules, allow_unsafe=allow_unsafe)
    return Evaluation(tuple(asked), tuple(rollouts), tuple(scores))


def evaluate_sampled(
    policy,
    tasks: TaskSet,
    *,
    num_tasks: int,
    num_samples: int,
    temperature: float,
    batch_size: int,
    max_new_tokens: int,
    rules: RewardConfig | None = None,
    allow_unsafe: bool = False,
    seed: int = 0,
) -> SampledEvaluation:
    """Answer the first `num_tasks` tasks `num_samples` times each and grade them as `grade` does."""
    sampler = LocalSampler(policy, max_new_tokens=max_new_tokens, batch_size=batch_size)
    asked, answers_T = _answered(sampler, tasks, num_tasks, num_samples, temperature, seed)
    pairs = [(task, rollout) for task, some in zip(asked, answers_T, strict=True) for rollout in some]
    scores = iter(grade(pairs, rules, allow_unsafe=allow_unsafe))
    scores_T = tuple(tuple(next(scores) for _ in some) for some in answers_T)
    return SampledEvaluation(tuple(asked), tuple(answers_T), scores_T)


def _answered(
    sampler: LocalSampler, tasks: TaskSet, num_tasks: int, num_samples: int = 1, temperature: float = 0.0, seed: int = 0
) -> tuple[list[Task], list[tuple[Rollout, ...]]]:
    """The first `num_tasks` tasks and the answers to each, sampled in batches of the sampler's size."""
    count, size = min(num_tasks, len(tasks)), max(1, sampler.batch_size // num_samples)
    asked, answers_T = [], []
    for begin in range(0, count, size):
        batch = [tasks[i] for i in range(begin, min(begin + size, count))]
        answers_T += sampler.sample([Request(task, num_samples, temperature) for task in batch], step=0, seed=seed)
        asked += batch
    return asked, answers_T


def grade(
    pairs: Sequence[tuple[Task, Rollout]], rules: RewardConfig | None = None, *, allow_unsafe: bool = False
) -> list[Score]:
    """Score answers by the rules of their kind, whatever else training rewards.

    A kind's rules are those that `rules`, the reward of training, has for it, or else the kind's defaults. Parts that
    grade the text alone, and functions, only grade tasks of kind `text`, which have nothing else.
    """
    own = {kind: rules and rules_of(rules, kind) for kind in {task.kind for task, _ in pairs}}
    by_kinds = KindsRules(type="kinds", **{k: found or KIND_RULES[k](type=k) for k, found in own.items()})
    grader = LocalGrader(by_kinds, allow_unsafe=allow_unsafe)
    if "text" not in own or not isinstance(rules, PythonRules | ComposeRules):
        return grader.grade(pairs)
    by_text = iter(
        LocalGrader(rules, allow_unsafe=allow_unsafe).grade([pair for pair in pairs if pair[0].kind == "text"])
    )
    by_kind = iter(grader.grade([pair for pair in pairs if pair[0].kind != "text"]))
    return [next(by_text if task.kind == "text" else by_kind) for task, _ in pairs]
