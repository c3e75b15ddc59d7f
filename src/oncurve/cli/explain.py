"""Walk one GRPO update by hand: every formula with its numbers put in.

The example: a picture of a cat and a dog, "box the cat", 56 answers. Your own numbers can take the place of any part.
"""

import argparse
import json
import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from oncurve import explain
from oncurve.errors import ConfigError
from oncurve.geometry.boxes import area, intersection_and_union
from oncurve.geometry.dialects import parse_box01
from oncurve.parsing import MalformedAnswer
from oncurve.types import Box

BOX_IS = "a box is x1,y1,x2,y2 with 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1, for example 0.1,0.1,0.5,0.4"
BOX_TOKENS, SENTENCE_TOKENS, MAX_NEW_TOKENS = 10, 7, 16  # <box> 0.21 , 0.31 , 0.59 , 0.69 </box> and the end token
ANSWERS_A_ROW = 8
LARGEST = 1e100  # of a reader's numbers, so that products stay finite
REDUCTIONS = {
    "sequence_mean": "the mean over answers of each answer's mean (GRPO)",
    "group_mean": "that of each group, then the mean over groups; here there is one",
    "token_mean": "the mean over all tokens (DAPO)",
    "constant": f"an answer's sum / {MAX_NEW_TOKENS} allowed tokens, then the mean over answers (Dr. GRPO)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="all numbers, unrounded, as one JSON document")
    own = parser.add_argument_group("your own numbers", "A value that begins with a minus takes a =: --rewards=-1,0.")
    own.add_argument("--truth", metavar="BOX", help="the truth, x1,y1,x2,y2 in 0..1")
    own.add_argument("--boxes", metavar="BOXES", action="append", help="answered boxes, apart by ; or given again")
    own.add_argument("--rewards", metavar="NUMBERS", help="rewards of one group, apart by commas")
    own.add_argument("--ratio", metavar="NUMBER", help="probability of a token now over that when it was sampled")
    own.add_argument("--advantage", metavar="NUMBER", help="advantage of the token's answer")
    own.add_argument("--beta", metavar="NUMBER", help="coefficient of the KL term")
    own.add_argument("--kl", metavar="NUMBER", help="KL estimate at the token, in nats")
    own.add_argument("--clip", metavar="NUMBER", help="clip range on either side of 1")


def run(args: argparse.Namespace) -> int:
    own = _own_numbers(args)
    example = explain.worked_example(**own)
    if args.json:
        print(json.dumps(example, indent=1))
    else:
        _walk(Console(width=100, highlight=False), example, own.get("answers", explain.ANSWERS))
    return 0


def _own_numbers(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `worked_example` that the reader gives. Raises `ConfigError` for a number that can't be used."""
    own: dict[str, Any] = {}
    if args.truth is not None:
        own["truth"] = _box("--truth", args.truth)[1]
    if args.boxes is not None:
        texts = [text for part in args.boxes for text in part.split(";")]
        own["answers"] = {str(i): _box(f"--boxes, box {i}", text)[0] for i, text in enumerate(texts)}
    if args.rewards is not None:
        own["rewards"] = {"own": _numbers("--rewards", args.rewards)}
        if len(own["rewards"]["own"]) < 2:
            raise ConfigError("--rewards: a group has at least 2 rewards, apart by commas, for example 1,0,0.5")
    for name in ("beta", "kl", "clip"):
        if getattr(args, name) is not None:
            own[name] = _number(f"--{name}", getattr(args, name))
    ratio, advantage = explain.TOKENS["clipped"]
    if args.ratio is not None:
        ratio = _number("--ratio", args.ratio)
    if args.advantage is not None:
        advantage = _number("--advantage", args.advantage)
    if ratio <= 0:
        raise ConfigError(f"--ratio {ratio:g}: a ratio of two probabilities is above 0, for example 1.15")
    if own.get("beta", 0) < 0:
        raise ConfigError(f"--beta {own['beta']:g}: the coefficient is 0 or more, for example 0.01")
    if not 0 < own.get("clip", explain.CLIP) < 1:
        raise ConfigError(f"--clip {own['clip']:g}: the clip range is between 0 and 1, for example 0.2")
    if any(getattr(args, name) is not None for name in ("ratio", "advantage", "beta", "kl", "clip")):
        own["tokens"] = {"own": (ratio, advantage)}
    return own


def _box(where: str, text: str) -> tuple[str, Box]:
    answer = f"<box>{','.join(part.strip() for part in text.split(','))}</box>"
    try:
        return answer, parse_box01(answer)
    except MalformedAnswer as error:
        raise ConfigError(f"{where}: {text!r}: {error}; {BOX_IS}") from None


def _numbers(where: str, text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(map(float, text.split(",")))
    except ValueError:
        numbers = (math.nan,)
    if not all(abs(number) <= LARGEST for number in numbers):
        raise ConfigError(f"{where}: {text!r} is no number, or list of numbers apart by commas, within ±{LARGEST:g}")
    return numbers


def _number(where: str, text: str) -> float:
    numbers = _numbers(where, text)
    if len(numbers) != 1:
        raise ConfigError(f"{where}: {text!r} is {len(numbers)} numbers; one is asked for")
    return numbers[0]


def _walk(console: Console, example: dict[str, Any], answers: dict[str, str]) -> None:
    console.print("[bold]One GRPO update, by hand.[/] All numbers are computed in float64 and rounded only for show.")
    _sample(console, example["grounding"]["truth"], example["counts"])
    _gate_and_grade(console, example["grounding"], answers)
    _advantages(console, example["advantages"])
    if "own" not in example["advantages"]:
        _as_noted(console, example["advantages"])
    _token_losses(console, example["token_loss"])
    _kl(console, example["kl_estimators"], example["token_loss"])
    name, group = next(iter(example["advantages"].items()))
    _reduction(console, name, group["sample_std_eps_1e-4"]["advantages"], example["token_loss"])
    _counted(console, example["counts"])


def _section(console: Console, title: str) -> None:
    console.print()
    console.rule(f"[bold cyan]{title}", align="left", style="dim")


def _sample(console: Console, truth: Sequence[float], counts: dict[str, int]) -> None:
    _section(console, "One sample, many answers")
    console.print('picture  a room with a cat and a dog\nprompt   "box the cat", answered as <box>x1,y1,x2,y2</box>')
    console.print(f"truth    {_list(truth)}, in 0..1 of the picture; it grades answers, the policy never sees it")
    workers, each, total = counts["workers"], counts["answers_per_worker"], counts["answers_per_step"]
    console.print(
        f"answers  {workers} workers x {each} answers = {total} answers to 1 prompt, drawn at random from the policy;\n"
        f"         compared in {total} / {counts['group_size']} = {counts['groups_per_step']} groups"
    )


def _gate_and_grade(console: Console, grounding: dict[str, Any], answers: dict[str, str]) -> None:
    _section(console, "Format gate, then IoU²")
    console.print("reward = IoU(box, truth)² where the whole answer parses, else the floor\n")
    table = _table("", "answer", "gate", "intersection", "union", "IoU", "reward", left=3)
    truth = tuple(grounding["truth"])
    for name, graded in grounding["boxes"].items():
        overlap, union = intersection_and_union(tuple(graded["box"]), truth)
        numbers = (overlap, union, graded["iou"], graded["iou_squared"])
        table.add_row(_words(name), answers[name], "passes", *map(_show, numbers))
    floor = _show(grounding["malformed_answer_reward"])
    table.add_row("malformed", f'"{explain.MALFORMED}"', "[red]stops[/]", "", "", "", floor)
    console.print(table)
    name, graded = next(iter(grounding["boxes"].items()))
    overlap, union = intersection_and_union(tuple(graded["box"]), truth)
    console.print(
        f"\n{_words(name)}: IoU = {_show(overlap)} / ({_show(area(tuple(graded['box'])))} + {_show(area(truth))} - "
        f"{_show(overlap)}) = {_show(overlap)} / {_show(union)} = {_show(graded['iou'])},"
        f" reward = {_show(graded['iou'])}² = {_show(graded['iou_squared'])}"
    )


def _advantages(console: Console, groups: dict[str, Any]) -> None:
    _section(console, "Advantage: an answer against its own group")
    console.print(
        "A = (reward - mean) / (deviation + eps); the deviation divides by n-1 (sample) or by n (population)\n"
        "A group of equal rewards has A = 0 throughout: it teaches nothing."
    )
    for name, group in groups.items():
        rewards, sample, population = group["rewards"], group["sample_std_eps_1e-4"], group["population_std_eps_1e-4"]
        n, mean = len(rewards), sample["mean"]
        squares = sum((reward - mean) ** 2 for reward in rewards)
        console.print(f"\n[bold]{_words(name)}[/]  n = {n}")
        console.print(f"  mean       = ({' + '.join(map(_show, rewards))}) / {n} = {_show(mean)}")
        console.print(f"  sample     = sqrt({_show(squares)} / {n - 1}) = {_show(sample['std'])}")
        console.print(f"  population = sqrt({_show(squares)} / {n}) = {_show(population['std'])}")
        best = max(range(n), key=rewards.__getitem__)
        for std, statistics in (("sample", sample), ("population", population)):
            console.print(
                f"  A of {_show(rewards[best])}, {std} = ({_show(rewards[best])} - {_show(mean)}) / "
                f"({_show(statistics['std'])} + 0.0001) = {statistics['advantages'][best]:+.4f}"
            )
        for start in range(0, n, ANSWERS_A_ROW):
            part = slice(start, start + ANSWERS_A_ROW)
            table = _table("reward", *map(_show, rewards[part]), left=1)
            for convention in explain.CONVENTIONS:
                row = (f"{advantage:+.4f}" for advantage in group[convention]["advantages"][part])
                table.add_row(f"A, {convention.replace('_std_eps_', ', eps ')}", *row)
            console.print(table)


def _as_noted(console: Console, groups: dict[str, Any]) -> None:
    """Which deviation gives each advantage that the notes print to two decimals."""
    _section(console, "Which deviation the notes used")
    table = _table("group", "reward", "printed", "sample", "population", "printed fits", "deviation it implies", left=1)
    rounded = {name: group["as_noted"].get("mean") for name, group in groups.items() if group["as_noted"]}
    fits: dict[str, list[str]] = {}
    implied_by_neither = []
    for name, rounded_mean in rounded.items():
        group = groups[name]
        for reward, printed in group["as_noted"].items():
            if reward == "mean":
                continue
            at = group["rewards"].index(float(reward))
            exact = {std: group[f"{std}_std_eps_1e-4"]["advantages"][at] for std in ("sample", "population")}
            fitting = [std for std, advantage in exact.items() if abs(advantage - printed) <= 0.005]
            fit = {0: "neither", 1: "".join(fitting), 2: "both"}[len(fitting)]
            mean = group["sample_std_eps_1e-4"]["mean"]
            implied = [(float(reward) - m) / printed for m in (mean, rounded_mean or mean)]
            if not fitting:
                implied_by_neither += implied
            fits.setdefault(fit, []).append(f"{printed:+.2f}")
            values = (f"{value:+.4f}" for value in exact.values())
            table.add_row(_words(name), reward, f"{printed:+.2f}", *values, fit, f"{implied[0]:.4f}")
    console.print(table)
    console.print("\n" + "; ".join(f"{fit}: {', '.join(printed)}" for fit, printed in fits.items()))
    sample, population = (groups["mixed"][f"{std}_std_eps_1e-4"] for std in ("sample", "population"))
    console.print(
        f"The notes print the mean {_show(sample['mean'])} as {rounded['mixed']}. "
        "With either mean, the numbers that fit neither ask for\n"
        f"a deviation of {min(implied_by_neither):.3f} to {max(implied_by_neither):.3f}, "
        f"between the population's {population['std']:.4f} and the sample's {sample['std']:.4f}."
    )


def _token_losses(console: Console, losses: dict[str, Any]) -> None:
    _section(console, "Ratio, clip, token loss")
    clip, kl_term = losses["clip_epsilon"], losses["kl_term"]
    low, high = 1 - clip, 1 + clip
    console.print(
        "r           = exp(logp - logp when sampled)\n"
        "policy term = -min(r A, clip(r) A)\n"
        "loss        = policy term + beta KL\n"
        f"clip(r) holds r in {_show(low)} .. {_show(high)}; "
        f"beta KL = {_show(losses['beta'])} x {_show(losses['kl'])} = {_show(kl_term)}\n"
    )
    table = _table("token", "r", "A", "r A", "clip(r) A", "policy term", "loss", "policy gradient", left=1)
    cases = {name: case for name, case in losses.items() if isinstance(case, dict)}
    for name, case in cases.items():
        r, a = case["ratio"], case["advantage"]
        held = "" if name == "unclipped" else _show(min(max(r, low), high) * a)
        flows = "flows" if name == "unclipped" or not ((r > high and a > 0) or (r < low and a < 0)) else "[red]0[/]"
        numbers = map(_show, (case["policy_term"], case["total"]))
        table.add_row(_words(name), *map(_show, (r, a, r * a)), held, *numbers, flows)
    console.print(table)
    case = cases.get("own", cases.get("clipped"))
    r, a, held = case["ratio"], case["advantage"], min(max(case["ratio"], low), high)
    console.print(
        f"\nr = exp({_show(math.log(r))}) = {_show(r)}\n"
        f"policy term = -min({_show(r)} x {_show(a)}, {_show(held)} x {_show(a)}) = {_show(case['policy_term'])}\n"
        f"loss = {_show(case['policy_term'])} + {_show(kl_term)} = {_show(case['total'])}\n"
        "The clip only ever takes away a gain: a bad answer that became likelier keeps its full gradient."
    )


def _kl(console: Console, estimators: dict[str, float], losses: dict[str, Any]) -> None:
    _section(console, "KL: how far from the frozen reference")
    logp, reference = estimators["logp"], estimators["ref_logp"]
    d = _show(reference - logp)
    console.print(
        f"d = reference logp - logp = {_show(reference)} - ({_show(logp)}) = {d}\n"
        f"k1 = -d             = {_show(estimators['k1'])}\n"
        f"k2 = d² / 2         = {d}² / 2 = {_show(estimators['k2'])}\n"
        f"k3 = exp(d) - d - 1 = exp({d}) - {d} - 1 = {_show(estimators['k3'])}\n"
        f"The token above has KL {_show(losses['kl'])}, so beta KL = {_show(losses['beta'])} x {_show(losses['kl'])} = "
        f"{_show(losses['kl_term'])}."
    )


def _reduction(console: Console, name: str, advantages_G: Sequence[float], losses: dict[str, Any]) -> None:
    from oncurve.objective.reduction import token_weights

    _section(console, "Reduction: an answer's mean, then the mean over answers")
    console.print(
        "Only an answer's own tokens count, up to and including its end token. Right after sampling r = 1,\n"
        f"so each token has the loss -A + beta KL. The group '{_words(name)}' with sample deviation; say that\n"
        f"its first answer is a sentence of {SENTENCE_TOKENS} tokens and the others are boxes of {BOX_TOKENS}.\n"
    )
    lengths_G = [SENTENCE_TOKENS] + [BOX_TOKENS] * (len(advantages_G) - 1)
    kl_term, clip = losses["kl_term"], losses["clip_epsilon"]
    losses_G = [explain.token_terms(1.0, advantage, kl_term, clip)["total"] for advantage in advantages_G]
    weights = {reduction: token_weights([lengths_G], reduction, MAX_NEW_TOKENS)[0] for reduction in REDUCTIONS}
    table = _table("answer", "A", "token loss", "tokens", "weight of a token", "share of the loss", left=1)
    rows = zip(advantages_G, losses_G, lengths_G, weights["sequence_mean"], strict=True)
    for i, (advantage, loss, length, weight) in enumerate(rows, 1):
        fraction, share = f"1 / ({len(lengths_G)} x {length})", f"{weight * length * loss:+.5f}"
        table.add_row(str(i), f"{advantage:+.4f}", f"{loss:+.4f}", str(length), fraction, share)
    console.print(table)
    console.print()
    for reduction, weights_G in weights.items():
        total = sum(w * n * loss for w, n, loss in zip(weights_G, lengths_G, losses_G, strict=True))
        console.print(f"{reduction:13} {total:+.6f}  {REDUCTIONS[reduction]}")
    console.print(
        f"\nThe advantages of a group sum to 0, so sequence_mean leaves the value beta KL = {_show(kl_term)}.\n"
        "The gradient does not vanish: it makes answers with A > 0 likelier and those with A < 0 less likely."
    )


def _counted(console: Console, counts: dict[str, int]) -> None:
    from oncurve.objective.reduction import token_weights

    _section(console, "Accumulation: what one update has seen")
    steps, groups, size = counts["gradient_accumulation_steps"], counts["groups_per_step"], counts["group_size"]
    weight = token_weights([[BOX_TOKENS] * size] * groups * steps, "sequence_mean", MAX_NEW_TOKENS)[0][0]
    table = _table("", "prompts", "answers", "groups", left=1)
    table.add_row("a step", str(counts["prompts_per_step"]), str(counts["answers_per_step"]), str(groups))
    update = counts["prompts_per_update"], counts["answers_per_update"], groups * steps
    table.add_row(f"an update, {steps} steps", *map(str, update))
    console.print(table)
    console.print(
        f"\nStep 1: backward. Step {steps}: backward, then the optimizer moves the weights, once.\n"
        f"The denominator is counted over the whole update: a token of a {BOX_TOKENS}-token answer weighs\n"
        f"1 / ({counts['answers_per_update']} x {BOX_TOKENS}) = {weight:.6f} in either step."
    )


def _table(*columns: str, left: int) -> Table:
    """A table whose first `left` columns hold words and the others numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < left else "right", no_wrap=True)
    return table


def _show(number: float) -> str:
    return f"{number + 0.0:.5g}"


def _list(numbers: Sequence[float]) -> str:
    return escape("[" + ", ".join(map(_show, numbers)) + "]")


def _words(name: str) -> str:
    return f"box {name}" if name.isdecimal() else name.replace("_", " ")
