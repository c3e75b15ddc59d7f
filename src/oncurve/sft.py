"""Supervised training: images and written answers, teacher forcing, the loss on the answer's tokens alone."""

import itertools
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from oncurve.config.schema import SftConfig, SftStage
from oncurve.evaluate import Evaluation, evaluate
from oncurve.objective.sft import sft_loss, soft_targets
from oncurve.optimizer import Optimizer
from oncurve.policy.load import load_policy, save_model
from oncurve.policy.policy import Policy
from oncurve.record import checkpoint
from oncurve.record.writer import RunWriter
from oncurve.tasks.labels import written
from oncurve.tasks.sets import load_tasks
from oncurve.types import Task, TaskSet

NUMBERS = [f"{i / 100:.2f}" for i in range(101)]
SECONDS_BETWEEN_LINES = 10
NUM_MEASURED = 8  # held-out answers whose length says how long an answer may get


@dataclass(frozen=True, slots=True)
class SftResult:
    """The run's folder, both evaluations on held-out tasks, and the seconds spent in training steps alone."""

    folder: Path
    before: Evaluation
    after: Evaluation
    seconds: float


def run_sft(config: SftConfig, command: str, *, replace: bool = False, show=print) -> SftResult:
    """Train through the stages in order; the last checkpoint is the result. `show` gets a line of text now and then."""
    policy = load_policy(config.model, seed=config.seed)
    folder = Path(config.runs_folder) / config.name
    heldout = load_tasks(config.heldout)
    writer = RunWriter.create(folder, config, command, replace=replace)
    numbers = _number_ids(policy)
    soft = soft_targets(len(NUMBERS), config.soften_std).to(policy.device)
    answer_tokens = max(
        len(written_answer(policy, written(heldout[i]))) for i in range(min(NUM_MEASURED, len(heldout)))
    )

    def held_out() -> Evaluation:
        found = evaluate(
            policy,
            heldout,
            num_tasks=config.evaluate.num_tasks,
            batch_size=config.evaluate.batch_size,
            max_new_tokens=answer_tokens + 2,
        )
        writer.metrics(step, found.metrics)
        mean = "mean_iou" if found.boxed else "mean_value"
        show(
            f"update {step}: held-out {mean.replace('_', ' ').replace('iou', 'IoU')} {found.summary[mean]:.3f}, "
            f"valid {found.summary['valid_format']:.3f}"
        )
        return found

    def save() -> None:
        checkpoint.save(folder, step, lambda path: save_model(policy, path / "model"), {"step": step}, keep_last=2)

    step, seconds = 0, 0.0
    before = after = held_out()
    for stage in config.stages:
        if config.max_seconds and seconds >= config.max_seconds:
            break
        optimizer = Optimizer(policy.model, stage.optimizer, stage.num_updates)
        tasks = load_tasks(stage.data)
        stream = _in_order(tasks, f"{config.seed}/{stage.name}")
        shown = time.monotonic()
        for update in range(stage.num_updates):
            begin = time.monotonic()
            batch = list(itertools.islice(stream, config.batch_size))
            loss = _train_step(policy, optimizer, batch, stage, numbers, soft)
            step += 1
            seconds += time.monotonic() - begin
            writer.metrics(step, {"policy/loss": loss, "time/update_s": time.monotonic() - begin})
            if time.monotonic() - shown > SECONDS_BETWEEN_LINES:
                shown = time.monotonic()
                show(f"{stage.name}: update {update + 1}/{stage.num_updates}, loss {loss:.3f}, {seconds:.0f} s")
            if config.evaluate.every_steps and step % config.evaluate.every_steps == 0:
                after = held_out()
                save()
            if config.max_seconds and seconds >= config.max_seconds:
                break
        save()
    if not config.evaluate.every_steps or step % config.evaluate.every_steps:
        after = held_out()
    return SftResult(folder, before, after, seconds)


def _in_order(tasks: TaskSet, seed: str) -> Iterator[Task]:
    """The tasks without end, every pass over them in an order of its own."""
    for epoch in itertools.count():
        order = list(range(len(tasks)))
        random.Random(f"{seed}/{epoch}").shuffle(order)
        yield from (tasks[i] for i in order)


def _train_step(
    policy: Policy, optimizer: Optimizer, batch: list[Task], stage: SftStage, numbers: Tensor, soft: Tensor
) -> float:
    looseness = stage.looseness if stage.labels == "loose" else 0.0
    labels = [written(task, looseness) for task in batch]
    rows = [
        policy.row(policy.encode(t), [written_answer(policy, label)], [1.0])
        for t, label in zip(batch, labels, strict=True)
    ]
    optimizer.zero_grad()
    logps_TV, targets_T = policy.distributions(rows)
    loss = sft_loss(logps_TV, targets_T, numbers, soft)
    loss.backward()
    return loss.item() if not optimizer.step(loss.item()).skipped else math.nan


def written_answer(policy: Policy, text: str) -> tuple[int, ...]:
    """The tokens of a written answer, its end token included."""
    tokens = policy.tokenizer(text, add_special_tokens=False).input_ids
    return (*tokens, policy.tokenizer.eos_token_id)


def _number_ids(policy: Policy) -> Tensor:
    """The ids of 0.00 … 1.00 where each is one token; none (plain cross-entropy) in other vocabularies."""
    ids = [policy.tokenizer(number, add_special_tokens=False).input_ids for number in NUMBERS]
    single = [tokens[0] for tokens in ids if len(tokens) == 1]
    return torch.tensor(single if len(single) == len(NUMBERS) else [], dtype=torch.long, device=policy.device)
