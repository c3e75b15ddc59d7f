"""The training loop: plan, sample, grade, assemble, update, sync, evaluate, record. It reads top to bottom."""

import json
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn, Protocol

import numpy as np
import torch

from oncurve.batches import answer_records, make_batches, written_answers
from oncurve.config.loader import overridden
from oncurve.config.schema import TrainConfig
from oncurve.errors import DataError, RunError, RunStopped
from oncurve.evaluate import Evaluation, evaluate
from oncurve.groups.assemble import Member, assemble
from oncurve.groups.planner import Planner
from oncurve.interrupt import Interrupt
from oncurve.monitor.guard import Guard
from oncurve.monitor.metrics import step_metrics
from oncurve.monitor.watch import Decision
from oncurve.policy.check import PrefixCheck, check_shared_prefix
from oncurve.policy.load import load_policy, load_weights, save_model
from oncurve.policy.policy import Policy
from oncurve.record import checkpoint
from oncurve.record.files import locked, numbered
from oncurve.record.reader import RunReader
from oncurve.record.trackers import TrackedRun, open_trackers
from oncurve.record.writer import RunWriter, fork_run
from oncurve.rewards.audit.run import refuse_broken
from oncurve.rewards.canary import Canaries
from oncurve.rewards.grader import LocalGrader
from oncurve.rollout.local import LocalSampler
from oncurve.sync import sync
from oncurve.tasks.sets import check_truths, load_tasks, parse_data
from oncurve.types import Request, TaskSet
from oncurve.update import Updater

GENERAL_TOKENS = 64  # room for an answer to a general question


class Reporter(Protocol):
    """What follows a run as it goes, such as the terminal."""

    def started(
        self, config: TrainConfig, folder: Path, check: PrefixCheck, tasks: TaskSet, heldout: TaskSet
    ) -> None: ...

    def stepped(self, step: int, metrics: dict[str, float]) -> None: ...

    def evaluated(self, step: int, evaluation: Evaluation) -> None: ...

    def noticed(self, message: str) -> None: ...


class Clock:
    """Seconds by stage since the last `reset`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begin

    def reset(self) -> None:
        self.seconds.clear()


def train(
    config: TrainConfig,
    command: str,
    reporter: Reporter,
    *,
    resume: Path | None = None,
    replace: bool = False,
    audit: bool = False,
    allow_unsafe: bool = False,
) -> Path:
    """Run `config` to its end and return the run's folder; `resume` goes on from that run's last intact checkpoint.

    `audit` attacks the reward first, quickly, and raises `BrokenReward` where it can be won without the task. Where
    `config.health` asks for it, a verdict ends the run (`RunStopped`) or sends it back: the folder is then that of the
    run that went on from an older checkpoint. Raises `DataError`, `ModelError` or `RunError` for what a user can mend, and
    `KeyboardInterrupt` that says how to go on after Ctrl-C: the first stops at the end of the update with a checkpoint,
    the second at once.
    """
    overridden(config, config.health.rollback_with)
    while True:
        try:
            with ExitStack() as held:
                return _train(
                    config, command, reporter, held,
                    resume=resume, replace=replace, audit=audit, allow_unsafe=allow_unsafe,
                )  # fmt: skip
        except _GoBack as back:
            resume, replace, audit = back.folder, False, False
            config = TrainConfig.model_validate_json(json.dumps(RunReader(resume).config))


class _GoBack(Exception):
    """A run goes on in `folder`, from an older checkpoint."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.folder = folder


def _train(
    config: TrainConfig,
    command: str,
    reporter: Reporter,
    held: ExitStack,
    *,
    resume: Path | None,
    replace: bool,
    audit: bool,
    allow_unsafe: bool,
) -> Path:
    trackers = open_trackers(config.trackers)
    tasks, heldout = load_tasks(config.data), load_tasks(config.heldout)
    grader = LocalGrader(config.reward, allow_unsafe=allow_unsafe)
    check_truths(tasks, grader.check)
    if audit:
        refuse_broken(grader, config.reward, tasks)
    policy = load_policy(config.model, seed=config.seed)
    if config.objective.kl.beta > 0:
        policy.freeze_reference()
    planner = Planner(tasks, config)
    sampler = LocalSampler(policy, max_new_tokens=config.sampling.max_new_tokens)
    updater = Updater(policy, config)
    check = check_shared_prefix(policy, tasks[0])
    folder = resume or Path(config.runs_folder) / config.name
    held.enter_context(locked(folder))
    if resume and (fork := _fork(folder, config, command, grader.rules, reporter)):
        folder = fork
        held.enter_context(locked(folder))
    interrupt = held.enter_context(Interrupt(folder))
    if resume is None:
        writer = RunWriter.create(folder, config, command, replace=replace, reward_rules=grader.rules)
        step = 0
    else:
        writer, step = _resume(folder, config, policy, updater, planner, reporter)
    if grader.isolation:
        writer.event(step, "isolation", level=grader.isolation)
    reader = RunReader(folder)
    rollbacks = (reader.info.get("forked_from") or {}).get("num_rollbacks", 0)
    guard = Guard(config.health, writer, reporter.noticed, past=reader.metrics(), num_rollbacks=rollbacks)
    reporter.started(config, folder, check, tasks, heldout)
    if step == config.num_steps:
        reporter.noticed(f"all {step} steps of this run are done, so nothing is left to go on with")
    elif step:
        reporter.noticed(f"goes on after step {step}, the last checkpoint")
    elif resume:
        reporter.noticed("no checkpoint had been saved yet, so the run begins again")
    if config.heldout == config.data:
        reporter.noticed("held-out and training tasks are the same: the evaluation shows memory, not ability")
    clock, was_short = Clock(), False
    first_verdicts = next((event["first"] for event in reader.events() if event["kind"] == "canaries"), None)
    canaries = Canaries(grader, config.reward, tasks, first_verdicts)
    if first_verdicts is None:
        writer.event(step, "canaries", first=canaries.first)
    kept_step = (step or -1) if resume else None
    trackers.start(TrackedRun(reader.config["name"], folder, reader.info["started"], reader.config, kept_step))

    def note_faults() -> None:
        for tracker, why in trackers.faults():
            writer.event(step, "tracker_failed", tracker=tracker, why=why)
            reporter.noticed(f"{tracker} failed, and training goes on without it; the run's folder has it all: {why}")

    held.callback(note_faults)
    held.callback(trackers.finish)

    def measured(step: int, metrics: dict[str, float]) -> None:
        writer.metrics(step, metrics)
        trackers.metrics(step, metrics)
        note_faults()
        guard.observe(step, metrics)

    def evaluate_now() -> None:
        with clock("evaluate"):
            found = evaluate(
                policy,
                heldout,
                num_tasks=config.evaluate.num_tasks,
                batch_size=config.evaluate.batch_size,
                max_new_tokens=config.sampling.max_new_tokens,
                rules=config.reward,
                allow_unsafe=allow_unsafe,
            )
            forgotten = _general(policy, config) if config.evaluate.general else {}
        measured(step, found.metrics | forgotten | {"time/evaluate_s": clock.seconds["evaluate"]})
        writer.images(image for task in found.tasks[: config.evaluate.num_probes] for image in task.images)
        writer.probes(step, found.probes(config.evaluate.num_probes))
        reporter.evaluated(step, found)
        if forgotten:
            reporter.noticed(f"general questions after step {step}: {forgotten['eval/general/accuracy']:.3f} are right")

    def save_now() -> None:
        state = {"step": step, "policy_version": policy.version, "planner": planner.state_dict()}
        kept = config.checkpoint.keep_last, _scores(folder, config)
        checkpoint.save(folder, step, lambda path: _write_model(path, policy, updater), state, *kept)

    if step == 0:
        evaluate_now()
    if interrupt.asked:
        interrupt.leave(step)
    while step < config.num_steps:
        first, assembled, seconds, graded = step + 1, [], [], []
        for number in range(first, first + config.accumulate_steps):
            clock.reset()
            with clock("grade"):
                flips = canaries.flipped()
            for flip in flips:
                writer.event(number, "canary_flip", **flip)
            answers, latencies_ms, rounds = [], [], 0
            with clock("plan"):
                requests = _that_fit(number, planner.plan(number), policy, config, writer, reporter, needed=True)
            while requests:
                with clock("sample"):
                    rollouts_PG = sampler.sample(requests, step=number, seed=config.seed)
                with clock("grade"):
                    pairs = [(request.task, r) for request, rs in zip(requests, rollouts_PG, strict=True) for r in rs]
                    scores = grader.grade(pairs)
                    latencies_ms += grader.latencies_ms
                with clock("assemble"):
                    found = zip(pairs, scores, strict=True)
                    answers += [Member(task, rollout, score, grader.rules) for (task, rollout), score in found]
                    groups = assemble(answers, config.sampling.group_size)
                    writer.images(image for request in requests for image in request.task.images)
                with clock("plan"):
                    requests = _that_fit(number, planner.more(groups), policy, config, writer, reporter)
                rounds += 1
            with clock("plan"):
                planner.learn(groups)
            if missing := planner.missing(groups):
                writer.event(number, "groups_missing", missing=missing, rounds=rounds)
                if not was_short:
                    reporter.noticed(_short_of(number, missing, rounds, config))
            was_short = bool(missing)
            assembled.append((number, groups, planner.roles(groups)))
            seconds.append(dict(clock.seconds))
            p95_ms = float(np.quantile(latencies_ms, 0.95))
            graded.append({"groups/rounds/num": rounds, "verifier/latency_ms/p95": p95_ms})
            if canaries.first:
                graded[-1]["verifier/canary/flips"] = len(flips)
        clock.reset()
        with clock("update"):
            batches = make_batches(assembled, updater, config)
            result = updater.update(batches, written_answers(batches, policy, config))
        with clock("sync"):
            sync(policy, config.objective.optimizer_steps)
        update_seconds = dict(clock.seconds)
        for batch, terms, losses, own_seconds, own in zip(
            batches, result.terms, result.losses, seconds, graded, strict=True
        ):
            step = batch.step
            last = step == batches[-1].step
            metrics = step_metrics(batch, config.advantage.tolerance) | updater.metrics(batch, terms)
            metrics |= _loss_metrics(losses) | own | (result.metrics if last else {})
            with clock("record"):
                writer.step(step, answer_records(batch, terms, policy, config.objective))
            spent = own_seconds | (update_seconds if last else {}) | {"record": clock.seconds.pop("record")}
            metrics |= _speed_metrics(metrics, spent)
            measured(step, metrics)
            if metrics.get("policy/skipped_updates/count"):
                file = f"steps/step-{step:06d}.parquet"
                writer.event(step, "skipped_update", file=file)
                reporter.noticed(f"step {step}: loss or gradient is not finite; the weights stay. The batch: {file}")
            reporter.stepped(step, metrics)
        clock.reset()
        if _due(config.evaluate.every_steps, step, config):
            evaluate_now()
        if decision := guard.decide(step, list(numbered(folder / "checkpoints"))):
            if decision.action == "pause":
                save_now()
            _act(decision, step, folder, config, command, grader.rules, rollbacks, reporter)
        leaving = interrupt.asked
        if leaving or _due(config.checkpoint.every_steps, step, config):
            save_now()
        if leaving and step < config.num_steps:
            interrupt.leave(step)
    return folder


def _fork(folder: Path, config: TrainConfig, command: str, rules: str, reporter: Reporter) -> Path | None:
    """A new run's folder from the last checkpoint of `folder` where its answers were graded by other rules, else None.

    Answers graded by two sets of rules are never in one record. The run in `folder` stays as it is.
    """
    then = RunReader(folder).info.get("reward_rules") or rules
    found = checkpoint.latest(folder)
    if then == rules or (found and found.step == config.num_steps):
        return None
    fork = fork_run(folder, found, config, command, rules)
    was, now = (text.partition(" {")[0] for text in (then, rules))
    reporter.noticed(
        f"the reward rules have changed since {folder} began: then {was}, now {now}. Answers graded by two sets of rules "
        f"don't mix, so the run goes on as {fork}, and {folder} stays as it is"
    )
    return fork


def _act(
    decision: Decision,
    step: int,
    folder: Path,
    config: TrainConfig,
    command: str,
    rules: str,
    num_rollbacks: int,
    reporter: Reporter,
) -> NoReturn:
    """End the run, or send it back to an older checkpoint with a changed setting, as a run of its own."""
    if decision.action != "rollback":
        saved = f"step {step} is saved" if decision.action == "pause" else "the last checkpoint stays as it is"
        raise RunStopped(
            f"{decision.why}: the run ends after step {step}; {saved}\n    look at it with   oncurve doctor {folder}\n"
            f"    and go on with    oncurve train --resume {folder}"
        )
    found, changed = checkpoint.latest(folder, decision.to_step), overridden(config, decision.overrides)
    fork = fork_run(folder, found, changed, command, rules, num_rollbacks=num_rollbacks + 1)
    reporter.noticed(
        f"{decision.why}: back to step {found.step} with {', '.join(decision.overrides)}. The run goes on as {fork}, and "
        f"{folder} stays as it is"
    )
    raise _GoBack(fork)


def _general(policy: Policy, config: TrainConfig) -> dict[str, float]:
    """What the policy still knows outside its task, as `eval/general/<measure>`."""
    found = evaluate(
        policy,
        load_tasks(parse_data("general")),
        num_tasks=config.evaluate.num_tasks,
        batch_size=config.evaluate.batch_size,
        max_new_tokens=max(config.sampling.max_new_tokens, GENERAL_TOKENS),
    )
    return {f"eval/general/{name}": value for name, value in found.summary.items()}


def _resume(
    folder: Path, config: TrainConfig, policy: Policy, updater: Updater, planner: Planner, reporter: Reporter
) -> tuple[RunWriter, int]:
    """The writer and the step of the last intact checkpoint, whose weights, optimizer and plan are taken over.

    Where the run was stopped before its first one, it begins again.
    """
    found = checkpoint.latest(folder)
    if found is None:
        ends = range(config.accumulate_steps, config.num_steps + 1, config.accumulate_steps)
        first = next(step for step in ends if _due(config.checkpoint.every_steps, step, config))
        if any(row["step"] > first for row in RunReader(folder).metrics()):
            raise RunError(f"{folder}: there is no intact checkpoint to go on from; start the run anew with --replace")
        return RunWriter.resume(folder, -1), 0
    for message in found.passed_over:
        reporter.noticed(message)
    load_weights(policy, found.folder / "model")
    updater.load_state_dict(torch.load(found.folder / "optimizer.pt", weights_only=True))
    planner.load_state_dict(found.state.get("planner"), found.step)
    policy.version = found.state["policy_version"]
    writer = RunWriter.resume(folder, found.step)
    checkpoint.prune(folder, config.checkpoint.keep_last, _scores(folder, config))
    return writer, found.step


def _scores(folder: Path, config: TrainConfig) -> dict[int, float]:
    """The evaluations by step that `checkpoint.keep_best` chooses by."""
    name = config.checkpoint.keep_best
    return {row["step"]: row[name] for row in RunReader(folder).metrics() if name in row} if name else {}


def _write_model(path: Path, policy: Policy, updater: Updater) -> None:
    save_model(policy, path / "model")
    torch.save(updater.state_dict(), path / "optimizer.pt")


def _that_fit(
    step: int,
    requests: list[Request],
    policy: Policy,
    config: TrainConfig,
    writer: RunWriter,
    reporter: Reporter,
    *,
    needed: bool = False,
) -> list[Request]:
    """The requests whose prompts fit into the model's context; the others are left out, counted and named.

    Raises `DataError` where none of them fits and one is `needed`.
    """
    kept, fault = [], None
    for request in requests:
        try:
            policy.encode(request.task, config.sampling.max_new_tokens)
            kept.append(request)
        except DataError as error:
            fault = error
            writer.event(step, "task_left_out", task_id=request.task.id, why=str(error))
            reporter.noticed(f"left out: {error}")
    if needed and not kept:
        raise fault
    return kept


def _short_of(step: int, missing: int, rounds: int, config: TrainConfig) -> str:
    """What is said when `resample` ends without having filled a step."""
    wanted = config.sampling.prompts_per_step
    return (
        f"step {step}: {missing} of {wanted} groups with a signal are missing after {rounds} rounds; it trains on "
        f"the {wanted - missing} that there are. Events `groups_missing` count on; most tasks may be too hard or too easy"
    )


def _loss_metrics(losses: Sequence[float]) -> dict[str, float]:
    passes = {f"policy/loss/pass/{i}": loss for i, loss in enumerate(losses)}
    return {"policy/loss": sum(losses) / len(losses), **passes}


def _speed_metrics(metrics: dict[str, float], seconds: dict[str, float]) -> dict[str, float]:
    tokens = metrics["answers/length_tokens/mean"] * metrics["answers/num"]
    return {
        "throughput/tokens_per_s": tokens / sum(seconds.values()),
        **{f"time/{stage}_s": spent for stage, spent in seconds.items()},
        "memory/peak_bytes": peak_memory_bytes(),
    }


def peak_memory_bytes() -> int:
    """The highest memory of this process so far: of the GPU where there is one, else resident."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _due(every_steps: int, step: int, config: TrainConfig) -> bool:
    """At the end, and wherever the last update passed a multiple of `every_steps`."""
    passed = bool(every_steps) and step // every_steps > (step - config.accumulate_steps) // every_steps
    return passed or step == config.num_steps
