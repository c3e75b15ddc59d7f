"""Follow one recorded step: every answer's reward, advantage and token losses, up to the loss that was logged."""

import argparse
import json
import math
import sys
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from oncurve.advantage import deviation
from oncurve.config.schema import AdvantageConfig, ObjectiveConfig
from oncurve.errors import RunError
from oncurve.record.files import to_json
from oncurve.record.reader import RunReader
from oncurve.record.schema import AnswerRecord

TOLERANCE = 1e-5  # of the sum of absolute terms: the loss was summed in float32, here it is in float64
Json = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="the run's folder")
    parser.add_argument("--step", type=int, required=True, metavar="N", help="the step to follow")
    parser.add_argument("--group", type=int, metavar="K", help="show this group only; the sums are still the step's")
    parser.add_argument("--json", action="store_true", help="print one JSON document with every term")


def run(args: argparse.Namespace) -> int:
    """Exit status 0 where the answers' losses add up to the logged loss, 1 where they do not."""
    traced = trace(RunReader(args.run_folder), args.step)
    adds_up = all(map(_adds_up, _totals(traced).values()))
    if args.group is not None:
        shown = [group for group in traced["groups"] if group["group"] == args.group]
        if not shown:
            last = len(traced["groups"]) - 1
            raise RunError(
                f"step {args.step} of {args.run_folder} has no group {args.group}; it has groups 0 to {last}"
            )
        traced["groups"] = shown
    if args.json:
        print(to_json(traced))
    else:
        _show(traced, adds_up)
    return 0 if adds_up else 1


def trace(reader: RunReader, step: int) -> Json:
    """The whole step as one document. A step's loss is what its own answers add to the loss of their update.

    An answer's loss in a pass is the sum over its trained tokens of weight times token loss (`oncurve.objective.terms`,
    in float64), over the pass's mini-batches; a pass's is the sum over answers; the step's is the mean over passes. PPO's
    value loss, which trains another network, is summed up the same way under `critic`. Raises `RunError` for a run
    without an objective.
    """
    try:
        objective = TypeAdapter(ObjectiveConfig).validate_python(reader.config["objective"])
        advantage = AdvantageConfig.model_validate(reader.config["advantage"])
    except (KeyError, ValidationError):
        raise RunError(f"{reader.folder} is no GRPO run: trace follows runs of `oncurve train`") from None
    rows = sorted(reader.step(step), key=lambda row: (row.group, row.answer))
    logged = {name: value for row in reader.metrics() if row["step"] == step for name, value in row.items()}
    answers = [_answer(row, objective) for row in rows]
    num_recorded = max((len(row.pass_logps) for row in rows), default=0)
    name = "policy/loss/pass/{}" if num_recorded > 1 else "policy/loss"
    weighted_PT = _weighted(answers, "weighted_loss", num_recorded)
    passes = [
        {"pass": index} | _total(logged.get(name.format(index)), math.fsum(terms), _absolute(terms))
        for index, terms in enumerate(weighted_PT)
    ]
    num_passes = max(1, len(passes))
    total = _total(
        logged.get("policy/loss"),
        math.fsum(one["sum_of_answers"] for one in passes) / num_passes,
        math.fsum(one["sum_of_absolute_terms"] for one in passes) / num_passes,
    )
    critic = {}
    if objective.type == "ppo":
        values_PT = _weighted(answers, "weighted_value_loss", num_recorded)
        sums = [fmean(map(add, values_PT)) if values_PT else 0.0 for add in (math.fsum, _absolute)]
        critic = {"critic": _total(logged.get("critic/loss"), *sums)}
    pairs = groupby(zip(rows, answers, strict=True), key=lambda pair: pair[0].group)
    groups = [_group(list(members), advantage) for _, members in pairs]
    return (
        {"step": step, "objective": objective.model_dump(mode="json")}
        | total
        | critic
        | {"passes": passes, "groups": groups}
    )


def _weighted(answers: list[Json], name: str, num_passes: int) -> list[list[float]]:
    """One term of every token that was in the update, pass by pass."""
    return [
        [token["passes"][index][name] for answer in answers for token in answer["tokens"] if token["passes"]]
        for index in range(num_passes)
    ]


def _absolute(terms: list[float]) -> float:
    return math.fsum(map(abs, terms))


def _total(logged: float | None, summed: float, absolute: float) -> Json:
    """`relative_difference` is to the sum of absolute terms (to 1 where all are 0); None without a logged loss."""
    return {
        "logged_loss": logged,
        "sum_of_answers": summed,
        "sum_of_absolute_terms": absolute,
        "relative_difference": None if logged is None else abs(logged - summed) / (absolute or 1.0),
    }


def _adds_up(total: Json) -> bool:
    return total["relative_difference"] is not None and total["relative_difference"] <= TOLERANCE


def _group(members: list[tuple[AnswerRecord, Json]], advantage: AdvantageConfig) -> Json:
    row = members[0][0]
    rewards = [row.value for row, _ in members if row.status != "error"]
    return {
        "group": row.group,
        "task_id": row.task_id,
        "prompt": row.prompt,
        "truth": json.loads(row.truth),
        "images": row.images,
        "reward_mean": math.fsum(rewards) / len(rewards) if rewards else None,
        "reward_std": deviation(rewards, advantage.std),
        "fingerprint": row.fingerprint,
        "answers": [answer for _, answer in members],
    }


def _answer(row: AnswerRecord, objective: ObjectiveConfig) -> Json:
    passes = _passes(row, objective) if row.trained else []
    return {
        "answer": row.answer,
        "text": row.text,
        "status": row.status,
        "reward": None if row.status == "error" else row.value,
        "parts": json.loads(row.parts),
        "correct": row.correct,
        "extracted": json.loads(row.extracted),
        "reason": row.reason,
        "evidence": row.evidence,
        "advantage": row.advantage,
        "weight": row.weight,
        "loss": math.fsum(term["weighted_loss"] for terms in passes for term in terms) / max(1, len(passes)),
        "tokens": [
            {
                "token": token,
                "text": row.token_texts[index],
                "trained": row.trained and row.mask[index],
                "sampler_logp": row.sampler_logps[index],
                "old_logp": row.old_logps[index] if row.old_logps else None,
                "reference_logp": row.reference_logps[index] if row.reference_logps else None,
                "advantage": row.token_advantages[index] if row.token_advantages else row.advantage,
                **({"old_value": row.old_values[index], "return": row.returns[index]} if row.returns else {}),
                "passes": [terms[index] for terms in passes],
            }
            for index, token in enumerate(row.tokens)
        ],
    }


def _passes(row: AnswerRecord, objective: ObjectiveConfig) -> list[list[Json]]:
    """The terms of every token in every pass, as `[pass][token]`; a token that was not trained has a log-probability only."""
    import torch

    from oncurve.objective.critic import value_loss
    from oncurve.objective.terms import TokenInputs, token_terms

    mask_T = torch.tensor(row.mask)

    def trained(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)[mask_T]

    advantages = row.token_advantages or [row.advantage] * len(row.tokens)
    weight = row.weight / objective.mini_batches
    passes = []
    for number, logps in enumerate(row.pass_logps):
        terms = token_terms(
            objective,
            TokenInputs(
                trained(logps),
                trained(row.old_logps),
                trained(row.sampler_logps),
                trained(advantages),
                torch.zeros(sum(row.mask), dtype=torch.long),
                trained(row.reference_logps) if row.reference_logps else None,
                trained(row.pass_entropies[number]) if row.pass_entropies else None,
            ),
        )
        columns = {
            "ratio": terms.ratio_T,
            "kl": terms.kl_T,
            "policy_term": terms.policy_T,
            "loss": terms.loss_T,
            "weighted_loss": weight * terms.loss_T,
        }
        if row.pass_values:
            values = [trained(column) for column in (row.pass_values[number], row.old_values, row.returns)]
            value_loss_T = value_loss(*values, objective.value_clip)
            columns |= {"value": values[0], "value_loss": value_loss_T, "weighted_value_loss": weight * value_loss_T}
        lists = {
            name: iter([None] * len(logps) if column is None else column.tolist()) for name, column in columns.items()
        }
        untrained = {name: 0.0 if name.startswith("weighted") else None for name in columns}
        passes.append(
            [
                {"logp": logp} | ({name: next(column) for name, column in lists.items()} if kept else untrained)
                for logp, kept in zip(logps, row.mask, strict=True)
            ]
        )
    return passes


def _show(traced: Json, adds_up: bool) -> None:
    console = Console(width=None if sys.stdout.isatty() else 100, markup=False, emoji=False, highlight=False)
    console.print(f"Step {traced['step']}", style="bold")
    console.print(_formula(traced["objective"]), style="dim")
    for group in traced["groups"]:
        console.print()
        _show_group(console, group)
    spread = max(traced["groups"], key=lambda group: group["reward_std"], default=None)
    if spread is not None:
        ranked = [answer for answer in _ranked(spread) if answer["tokens"] and answer["tokens"][0]["passes"]]
        for answer, which in zip(ranked[:1] + ranked[1:][-1:], ("best", "worst"), strict=False):
            console.print()
            _show_tokens(console, answer, f"Tokens of the {which} answer of group {spread['group']}")
        if len(traced["groups"]) > 1:
            console.print("  --group K shows the tokens of another group, --json those of all", style="dim")
    console.print()
    _show_sums(console, traced)
    if traced["logged_loss"] is None:
        console.print("✗ metrics.jsonl has no finite policy/loss for this step, so there is nothing to compare with")
    elif adds_up:
        console.print(
            f"✓ the answers' losses add up to the logged loss, to {TOLERANCE:g} of the absolute terms", style="green"
        )
    else:
        console.print(
            f"✗ the answers' losses miss the logged loss by more than {TOLERANCE:g} of the absolute terms", style="red"
        )


def _formula(objective: Json) -> str:
    high = 1 + objective["clip_high"]
    if objective["type"] == "cispo":
        term = f"-min(ratio, {high:g}) A logp, that factor held constant"
    else:
        term = f"-min(ratio A, clip(ratio, {1 - objective['clip_low']:g}, {high:g}) A)"
    if objective.get("ratio") == "sequence":
        term += ", ratio: the geometric mean over the answer"
    if objective["importance_cap"] is not None:
        term = f"min(exp(old - sampler), {objective['importance_cap']:g}) x {term}"
    kl, entropy = objective["kl"], objective["entropy"]
    if kl["beta"] and kl["place"] == "loss":
        term += f" + {kl['beta']:g} KL ({kl['estimator']})"
    if entropy:
        term += f" - {entropy:g} entropy"
    share = f" / {objective['mini_batches']} mini-batches" if objective["mini_batches"] > 1 else ""
    return (
        f"token loss = {term}\n"
        f"answer's loss = weight{share} x sum over its trained tokens; the weight makes the {objective['reduction']}"
    )


def _ranked(group: Json) -> list[Json]:
    """Best first; answers without a reward last."""
    return sorted(group["answers"], key=lambda answer: (answer["reward"] is None, -(answer["reward"] or 0)))


def _table(*columns: str, left: tuple[str, ...]) -> Table:
    table = Table(box=None, padding=(0, 1), collapse_padding=True, pad_edge=False, header_style="bold")
    for column in columns:
        words = column in left
        table.add_column(column, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    return table


def _show_group(console: Console, group: Json) -> None:
    mean = "none" if group["reward_mean"] is None else f"{group['reward_mean']:.4f}"
    console.print(f"Group {group['group']}  {group['task_id']}", style="bold cyan")
    console.print(f"  prompt  {group['prompt']}")
    console.print(f"  truth   {_plain(group['truth'])}")
    console.print(f"  reward  mean {mean}, deviation {group['reward_std']:.4f}")
    parts = list(dict.fromkeys(name for answer in group["answers"] for name in answer["parts"]))
    table = _table("#", "answer", *parts, "reward", "advantage", "loss", left=("answer",))
    for answer in _ranked(group):
        scored = answer["status"] == "scored"
        table.add_row(
            str(answer["answer"]),
            answer["text"] if scored else f"{answer['text']} ({answer['status']}: {answer['reason']})",
            *(_number(answer["parts"].get(name), 3) for name in parts),
            _number(answer["reward"], 4),
            f"{answer['advantage']:+.4f}",
            f"{answer['loss']:+.6f}",
            style=None if scored else "yellow",
        )
    console.print(Padding(table, (0, 0, 0, 2)))


def _show_tokens(console: Console, answer: Json, title: str) -> None:
    console.print(
        f"{title}: #{answer['answer']}, A = {answer['advantage']:+.4f}, weight = {answer['weight']:.6g}", style="bold"
    )
    first = answer["tokens"][0]
    fixed, moving = {"old": "old_logp"}, {"logp": "logp", "ratio": "ratio"}
    if "return" in first:
        fixed |= {"A": "advantage", "return": "return"}
        moving |= {"value": "value", "value loss": "value_loss"}
    elif first["reference_logp"] is not None:
        fixed |= {"reference": "reference_logp"}
        moving |= {"KL": "kl"}
    moving |= {"policy term": "policy_term", "loss": "loss", "x weight": "weighted_loss"}
    digits = {"ratio": 5, "KL": 6, "policy term": 5, "loss": 5, "x weight": 8}
    table = _table("token", *fixed, "pass", *moving, left=("token",))
    for token in answer["tokens"]:
        before = [token["text"].replace("\n", "\\n"), *(_number(token[name], 4) for name in fixed.values())]
        for index, term in enumerate(token["passes"]):
            table.add_row(
                *(before if index == 0 else [""] * len(before)),
                str(index),
                *(_number(term[name], digits.get(title, 4)) for title, name in moving.items()),
                style=None if token["trained"] else "dim",
            )
    console.print(Padding(table, (0, 0, 0, 2)))
    num_passes = len(answer["tokens"][0]["passes"])
    sums = [math.fsum(token["passes"][i]["weighted_loss"] for token in answer["tokens"]) for i in range(num_passes)]
    each = ", ".join(f"pass {index} {value:.8f}" for index, value in enumerate(sums))
    console.print(f"  sum of x weight: {each}, mean {answer['loss']:.8f}")


def _totals(traced: Json) -> dict[str, Json]:
    """All sums that must meet what was logged, by what they are."""
    passes = {f"pass {one['pass']}": one for one in traced["passes"]} if len(traced["passes"]) > 1 else {}
    critic = {"value loss (mean)": traced["critic"]} if "critic" in traced else {}
    return {**passes, "step (mean)": traced, **critic}


def _show_sums(console: Console, traced: Json) -> None:
    table = _table("", "logged", "sum of answers", "absolute terms", "relative difference", "", left=("",))
    for name, total in _totals(traced).items():
        table.add_row(
            name,
            _number(total["logged_loss"], 9),
            _number(total["sum_of_answers"], 9),
            _number(total["sum_of_absolute_terms"], 9),
            "-" if total["relative_difference"] is None else f"{total['relative_difference']:.1e}",
            "✓" if _adds_up(total) else "✗",
        )
    console.print("Loss", style="bold")
    console.print(Padding(table, (0, 0, 0, 2)))


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _plain(value: Any) -> str:
    """Short and readable: a list of numbers as they are, anything else as JSON."""
    if isinstance(value, dict) and len(value) == 1:
        return " ".join((*value, _plain(*value.values())))
    if isinstance(value, list) and all(isinstance(item, int | float) for item in value):
        return " ".join(f"{item:.4g}" for item in value)
    return json.dumps(value)
