"""What a configuration would do, found out before it is run: data, reward, baseline, memory, time, and which method fits."""

import heapq
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import torch

from oncurve.config.schema import TrainConfig
from oncurve.errors import BrokenTruth, DataError, ModelError
from oncurve.evaluate import evaluate
from oncurve.groups.assemble import Member, assemble
from oncurve.groups.planner import Planner
from oncurve.monitor.metrics import step_metrics
from oncurve.policy.check import check_shared_prefix
from oncurve.policy.load import load_policy
from oncurve.policy.policy import Policy
from oncurve.rewards.audit.finding import Finding
from oncurve.rewards.audit.run import audit
from oncurve.rewards.grader import LocalGrader
from oncurve.rollout.local import LocalSampler
from oncurve.tasks.sets import load_tasks
from oncurve.train import peak_memory_bytes
from oncurve.types import Batch, Group, Request, Score, Task, TaskSet
from oncurve.update import Updater

MIN_PROMPTS = 16  # of the baseline
NUM_HELDOUT = 32
NUM_EXAMPLES = 12  # tasks for the contact sheet
MAX_LEFT_OUT = 0.05  # share of the prompts that may be too long
MIN_VALID = 0.1  # share of answers that parse, below which there is nothing to compare
MUCH_WITHOUT_SIGNAL, MOST_WITHOUT_SIGNAL = 0.5, 0.8  # share of groups: the guide hesitates, the check advises against
NO_TOKEN = -1  # ends nothing
NO_SCORE = Score("scored", 0.0)
CAUSES = "groups/no_signal/"


@dataclass(frozen=True, slots=True)
class Prompts:
    """The data as the model takes it. Lengths are in tokens."""

    num_tasks: int
    num_measured: int
    num_rejected_rows: int
    shortest: int
    median: float
    longest: int
    context: int
    beyond_context: tuple[str, ...]  # ids of tasks whose prompt and answer don't fit
    broken_truths: tuple[str, ...]  # what is wrong with them, in words


@dataclass(frozen=True, slots=True)
class Baseline:
    """The untrained model: answers sampled and graded as in training, and held-out tasks answered greedily."""

    num_groups: int
    num_answers: int
    reward: float | None  # None where the verifier failed on every answer
    std_in_group: float | None
    valid_format: float
    truncated: float
    verifier_errors: float
    no_signal: float
    causes: dict[str, float]  # shares of all groups
    heldout: dict[str, float]


@dataclass(frozen=True, slots=True)
class DryRun:
    """One update on the longest prompts with answers of full length."""

    prompt_tokens: int
    answer_tokens: int
    fits: bool
    peak_bytes: int
    available_bytes: int  # of the device in all


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds, measured and multiplied up."""

    sample_s: float  # of a step
    grade_s: float  # of a step
    update_s: float | None  # of a step's share of an update; None where an update does not fit into memory
    num_steps: int
    num_evaluations: int
    evaluation_s: float
    run_s: float | None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the run is not advised. `reason` is a slug of docs/evaluation.md."""

    reason: str
    words: str


@dataclass(frozen=True, slots=True)
class Guide:
    """The three questions, each with its answer in words, and the method that follows."""

    verifiable: bool
    rewards_discriminate: bool
    sampling_affordable: bool
    method: str  # "grpo", "ppo", "sft" or "sft_then_grpo"
    advice: str


@dataclass(frozen=True, slots=True)
class Report:
    prompts: Prompts
    audit: tuple[Finding, ...]
    baseline: Baseline
    dry_run: DryRun
    duration: Duration
    reasons: tuple[Reason, ...]
    guide: Guide
    shared_prefix: bool
    examples: tuple[
        tuple[Task, tuple[tuple[int, int], ...]], ...
    ]  # with the sizes in px in which the model sees their images

    @property
    def ready(self) -> bool:
        return not self.reasons


def check(
    config: TrainConfig,
    *,
    max_hours: float,
    limit: int | None = None,
    allow_unsafe: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Try out all that a run of `config` needs; nothing is written, and the weights on disk stay as they are.

    `limit` measures that many prompts, evenly over the data, rather than every one. `say` hears what comes next. Raises
    what `train` raises for a configuration that can't start.
    """
    tasks, heldout = load_tasks(config.data), load_tasks(config.heldout)
    Planner(tasks, config)  # refuses too few tasks
    grader = LocalGrader(config.reward, allow_unsafe=allow_unsafe)
    say("loading the model")
    policy = load_policy(config.model, seed=config.seed)
    if config.objective.kl.beta > 0:
        policy.freeze_reference()
    shared = check_shared_prefix(policy, tasks[0]).shared
    indices = range(0, len(tasks), max(1, -(-len(tasks) // limit)) if limit else 1)
    say(f"measuring {len(indices):,} prompts")
    prompts, longest, fitting = measure_prompts(policy, tasks, indices, config, grader)
    say("attacking the reward")
    found = tuple(audit(grader, config.reward, tasks, quick=True))
    say("sampling the baseline")
    asked_SP = _spread(tasks, fitting, config)
    steps, sample_s, grade_s = _sampled(policy, grader, asked_SP, config)
    begin = time.perf_counter()
    evaluation = evaluate(
        policy,
        heldout,
        num_tasks=min(NUM_HELDOUT, config.evaluate.num_tasks),
        batch_size=config.evaluate.batch_size,
        max_new_tokens=config.sampling.max_new_tokens,
        rules=config.reward,
        allow_unsafe=allow_unsafe,
    )
    per_task_s = (time.perf_counter() - begin) / len(evaluation.tasks)
    groups = [group for groups in steps for group in groups]
    baseline = baseline_of(groups, evaluation.summary, config.advantage.tolerance)
    say("trying the longest prompts")
    dry_run = _dry_run(policy, [tasks[i] for i in longest], config)
    say("timing an update")
    update_s = _timed_update(Updater(policy, config), steps, config) if dry_run.fits else None
    duration = duration_of(config, sample_s, grade_s, update_s, per_task_s, len(heldout))
    guide = guide_of(config, found, prompts, baseline, duration, max_hours)
    examples = {task.id: task for asked in asked_SP for task in asked if task.images}
    return Report(
        prompts,
        found,
        baseline,
        dry_run,
        duration,
        tuple(reasons_of(prompts, found, baseline, dry_run, duration, max_hours)),
        guide,
        shared,
        tuple((task, policy.encode(task).model_image_sizes) for task in list(examples.values())[:NUM_EXAMPLES]),
    )


def measure_prompts(
    policy: Policy, tasks: TaskSet, indices: Sequence[int], config: TrainConfig, grader: LocalGrader
) -> tuple[Prompts, list[int], list[int]]:
    """The prompts at `indices`, the longest that fit, and all that fit. Raises `DataError` where none does.

    A prompt's length follows from its texts and its images' sizes, so that each such pair is encoded once.
    """
    known: dict[tuple, int] = {}
    lengths: dict[int, int] = {}
    beyond, broken = [], []
    room = policy.context_tokens - config.sampling.max_new_tokens
    for index in indices:
        task = tasks[index]
        try:
            grader.check([task])
        except BrokenTruth as error:
            broken.append(f"{task.id}: {error}")
        key = tuple((m.role, m.text, *(image.pixels.size for image in m.images)) for m in task.messages)
        if key not in known:
            known[key] = len(policy.family.encode(policy.model, policy.processor, task))
        lengths[index] = known[key]
        if known[key] > room:
            beyond.append(task.id)
    fitting = [index for index, length in lengths.items() if length <= room]
    if not fitting:
        raise DataError(
            f"data set {tasks.name}: no prompt fits into the model's context of {policy.context_tokens:,} tokens with "
            f"{config.sampling.max_new_tokens:,} new ones; the shortest has {min(lengths.values()):,}. Use smaller images, "
            "shorter prompts or a smaller sampling.max_new_tokens"
        )
    longest = heapq.nlargest(config.sampling.prompts_per_step, fitting, key=lengths.__getitem__)
    sizes = list(lengths.values())
    measured = Prompts(
        len(tasks),
        len(sizes),
        len(tasks.rejections),
        min(sizes),
        median(sizes),
        max(sizes),
        policy.context_tokens,
        tuple(beyond),
        tuple(broken),
    )
    return measured, longest, fitting


def baseline_of(groups: Sequence[Group], heldout: dict[str, float], tolerance: float = 0.0) -> Baseline:
    """The groups as `metrics.jsonl` would have them."""
    found = step_metrics(Batch(0, tuple(groups), tuple((0.0,) * len(group.rollouts) for group in groups)), tolerance)
    causes = {
        name.removeprefix(CAUSES).removesuffix("/share"): value
        for name, value in found.items()
        if name.startswith(CAUSES) and name != f"{CAUSES}share"
    }
    return Baseline(
        num_groups=len(groups),
        num_answers=int(found["answers/num"]),
        reward=found.get("reward/total/mean"),
        std_in_group=found.get("reward/total/std_in_group"),
        valid_format=1 - found["answers/invalid/share"],
        truncated=found["answers/truncated/share"],
        verifier_errors=found["verifier/error/share"],
        no_signal=found[f"{CAUSES}share"],
        causes=causes,
        heldout=heldout,
    )


def duration_of(
    config: TrainConfig, sample_s: float, grade_s: float, update_s: float | None, per_task_s: float, num_heldout: int
) -> Duration:
    """The whole run: its steps, and an evaluation before, every `evaluate.every_steps` and at the end."""
    every, num_steps = config.evaluate.every_steps, config.num_steps
    num_evaluations = 1 + (-(-num_steps // every) if every else 1)
    evaluation_s = per_task_s * min(config.evaluate.num_tasks, num_heldout)
    run_s = None
    if update_s is not None:
        run_s = num_steps * (sample_s + grade_s + update_s) + num_evaluations * evaluation_s
    return Duration(sample_s, grade_s, update_s, num_steps, num_evaluations, evaluation_s, run_s)


def reasons_of(
    prompts: Prompts,
    findings: Sequence[Finding],
    baseline: Baseline,
    dry_run: DryRun,
    duration: Duration,
    max_hours: float,
) -> list[Reason]:
    """Why the run is not advised; none where it is."""
    found = []
    if (share := len(prompts.beyond_context) / prompts.num_measured) > MAX_LEFT_OUT:
        found.append(Reason("prompts_beyond_context", f"{share:.0%} of the prompts are too long and would be left out"))
    if prompts.broken_truths:
        found.append(Reason("broken_truths", f"{len(prompts.broken_truths)} tasks can't be graded rightly"))
    if broken := [finding.exploit for finding in findings if not finding.ok]:
        found.append(Reason("reward_broken", f"the reward can be won without the task: {', '.join(broken)}"))
    if baseline.verifier_errors:
        found.append(Reason("verifier_errors", f"the verifier failed on {baseline.verifier_errors:.0%} of the answers"))
    if baseline.valid_format < MIN_VALID:
        found.append(
            Reason(
                "format_unknown",
                f"{baseline.valid_format:.0%} of the answers have the right format: say more in the prompt, or warm up first",
            )
        )
    if baseline.no_signal > MOST_WITHOUT_SIGNAL:
        found.append(Reason("no_signal", f"{baseline.no_signal:.0%} of groups have no signal: {_mend(baseline)}"))
    if not dry_run.fits:
        found.append(
            Reason(
                "out_of_memory",
                "an update on the longest prompts does not fit into memory: lower micro_batch_tokens, or set "
                "model.gradient_checkpointing or model.lora",
            )
        )
    if not _affordable(duration, max_hours):
        found.append(
            Reason(
                "too_long", f"the run would take {duration.run_s / 3600:.1f} hours, more than {max_hours:g} (--hours)"
            )
        )
    return found


def guide_of(
    config: TrainConfig,
    findings: Sequence[Finding],
    prompts: Prompts,
    baseline: Baseline,
    duration: Duration,
    max_hours: float,
) -> Guide:
    """Is the task verifiable, do rewards tell answers apart, is sampling affordable: so SFT, GRPO or PPO."""
    verifiable = all(f.ok for f in findings) and not prompts.broken_truths and not baseline.verifier_errors
    discriminates = baseline.no_signal <= MUCH_WITHOUT_SIGNAL
    affordable = _affordable(duration, max_hours)
    formatted = baseline.valid_format >= MIN_VALID
    method = "ppo" if config.objective.type == "ppo" else "grpo"
    if not verifiable:
        method, advice = "sft", "the reward can't be trusted yet: mend it, or train on written answers (oncurve sft)"
    elif not formatted or (not discriminates and _too_hard(baseline)):
        method, advice = (
            "sft_then_grpo",
            "teach format and a first success with written answers (oncurve sft), then GRPO",
        )
    elif not discriminates:
        advice = f"the method fits, the sampling does not: {_mend(baseline)}"
    elif not affordable:
        method, advice = (
            "ppo",
            "groups are too dear here: PPO's critic learns from two answers a prompt (objective.type, "
            "sampling.answers_per_prompt), or shorten the answers",
        )
    elif method == "ppo":
        advice = "as configured; GRPO would need no critic, since the rewards tell the answers of a group apart"
    else:
        advice = "answers to one prompt can be compared, and a program says which is better"
    return Guide(verifiable, discriminates, affordable, method, advice)


def _affordable(duration: Duration, max_hours: float) -> bool:
    return duration.run_s is None or duration.run_s <= 3600 * max_hours


def _too_hard(baseline: Baseline) -> bool:
    causes = baseline.causes
    return causes.get("all_wrong", 0) + causes.get("all_invalid", 0) > baseline.no_signal / 2


def _mend(baseline: Baseline) -> str:
    """What to do about groups without signal, by what most of them are."""
    most = max(baseline.causes, key=baseline.causes.get)
    return {
        "all_wrong": "warm up first, or take easier tasks",
        "all_invalid": "warm up first, or say more of the format in the prompt",
        "all_right": "the tasks are solved already; take harder ones",
        "identical": "raise sampling.temperature",
        "equal_rewards": "the reward does not tell answers apart; grade more finely",
        "too_few_scored": "mend the verifier first",
    }[most]


# Trying it out


def _spread(tasks: TaskSet, fitting: Sequence[int], config: TrainConfig) -> list[list[Task]]:
    """Tasks for the baseline by step, evenly over those that fit: at least two steps, none of which asks a task twice."""
    size = min(config.sampling.prompts_per_step, len(fitting))
    num_steps = max(2, -(-MIN_PROMPTS // size))
    stride = max(1, len(fitting) // (size * num_steps))
    places = [[(step * size + i) * stride % len(fitting) for i in range(size)] for step in range(num_steps)]
    return [[tasks[fitting[place]] for place in some] for some in places]


def _sampled(
    policy: Policy, grader: LocalGrader, asked_SP: Sequence[Sequence[Task]], config: TrainConfig
) -> tuple[list[tuple[Group, ...]], float, float]:
    """Each step's groups; seconds to sample and to grade a step, without the first one's warming up."""
    s, sampler = config.sampling, LocalSampler(policy, max_new_tokens=config.sampling.max_new_tokens)
    steps, sample_s, grade_s = [], [], []
    for number, asked in enumerate(asked_SP, 1):
        requests = [_request(task, s.answers_per_prompt, config) for task in asked]
        start = time.perf_counter()
        try:
            rollouts_PG = sampler.sample(requests, step=number, seed=config.seed)
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            raise ModelError(
                f"model {config.model.path}: {len(asked)} x {s.answers_per_prompt} answers can't be sampled in the memory "
                "that there is; lower sampling.prompts_per_step or sampling.answers_per_prompt"
            ) from None
        sample_s.append(time.perf_counter() - start)
        start = time.perf_counter()
        pairs = [(task, r) for task, some in zip(asked, rollouts_PG, strict=True) for r in some]
        scores = grader.grade(pairs)
        grade_s.append(time.perf_counter() - start)
        members = [Member(task, r, score, grader.rules) for (task, r), score in zip(pairs, scores, strict=True)]
        steps.append(assemble(members, s.group_size))
    return steps, fmean(sample_s[1:]), fmean(grade_s[1:])


def _request(task: Task, num_answers: int, config: TrainConfig) -> Request:
    ladder = config.sampling.ladder
    return Request(task, num_answers, ladder[0], 0, ladder if len(ladder) > 1 else ())


def _timed_update(updater: Updater, steps: Sequence[Sequence[Group]], config: TrainConfig) -> float:
    """Seconds of an update for each of its steps, the second of two."""
    count = config.accumulate_steps
    for _ in range(2):
        start = time.perf_counter()
        updater.update([_batch(number, steps[number % len(steps)]) for number in range(count)])
        spent = time.perf_counter() - start
    return spent / count


def _batch(number: int, groups: Sequence[Group]) -> Batch:
    """Every other answer better than its neighbour, so that no row is left out of the backward."""
    return Batch(
        number, tuple(groups), tuple(tuple(1.0 - 2.0 * (i % 2) for i in range(len(g.rollouts))) for g in groups)
    )


def _is_out_of_memory(error: Exception) -> bool:
    """On a CPU torch raises a plain RuntimeError: "DefaultCPUAllocator: can't allocate memory"."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _dry_run(policy: Policy, longest: Sequence[Task], config: TrainConfig) -> DryRun:
    s, size = config.sampling, config.groups.size
    num_answers = size.max if size.type == "adaptive" else s.answers_per_prompt
    once = config.objective.model_copy(update={"passes": 1, "mini_batches": 1, "truncated": "keep"})
    prompt_tokens = max(len(policy.encode(task)) for task in longest)
    on_gpu = policy.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(policy.device)
    ends, policy.eos_ids, fits = policy.eos_ids, frozenset({NO_TOKEN}), True
    try:
        sampler = LocalSampler(policy, max_new_tokens=s.max_new_tokens)
        rollouts_PG = sampler.sample([_request(task, num_answers, config) for task in longest], step=0, seed=0)
        groups = [
            Group(task, rollouts, (NO_SCORE,) * len(rollouts), "")
            for task, rollouts in zip(longest, rollouts_PG, strict=True)
        ]
        Updater(policy, config.model_copy(update={"objective": once})).update([_batch(1, groups)])
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        fits = False
    finally:
        policy.eos_ids = ends
    if on_gpu:
        available = torch.cuda.get_device_properties(policy.device).total_memory
    else:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return DryRun(prompt_tokens, s.max_new_tokens, fits, peak_memory_bytes(), available)
