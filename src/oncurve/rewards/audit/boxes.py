"""Attacks on grounding, detection and pointing."""

from collections.abc import Iterable
from dataclasses import replace

from oncurve.geometry.boxes import iou
from oncurve.rewards.audit.attack import (
    Attack,
    Case,
    all_of,
    attacks,
    correct,
    not_correct,
    refused,
    unexecuted,
    worth,
)  # fmt: skip
from oncurve.rewards.audit.numbers import numbers_of, with_numbers
from oncurve.rewards.audit.written import boxes_text, point_text
from oncurve.truths import Box, BoxesTruth

WHOLE_IMAGE: Box = (0.0, 0.0, 1.0, 1.0)
GRID = 12  # rows and columns of the grid of 144 boxes


def grid() -> list[Box]:
    """144 boxes that cover the image evenly, each a quarter of it wide and high."""
    starts = [round(0.75 * i / (GRID - 1), 2) for i in range(GRID)]
    return [(x, y, x + 0.25, y + 0.25) for y in starts for x in starts]


def truth_boxes(case: Case) -> tuple[Box, ...]:
    truth = case.task.truth
    return truth.boxes if isinstance(truth, BoxesTruth) else (truth.box,)


@attacks("swapped_corners", "grounding", "detection")
def swapped_corners(case: Case) -> Iterable[Attack]:
    if len(numbers := numbers_of(case.right)) < 4:
        return
    a, b, c, d = numbers[:4]
    for places in ({0: c, 2: a}, {1: d, 3: b}, {0: c, 2: a, 1: d, 3: b}, {2: a}, {3: b}, {2: a, 3: b}):
        yield Attack(with_numbers(case.right, places), refused)


@attacks("giant_box", "grounding", "detection")
def giant_box(case: Case) -> Iterable[Attack]:
    if not (boxes := truth_boxes(case)):
        return
    overlap = max(iou(WHOLE_IMAGE, box) for box in boxes)
    whole = boxes_text(case.task, case.rules, [WHOLE_IMAGE])
    yield Attack(whole, not_correct if overlap < 0.5 else correct)
    for places in ({0: "-99999", 1: "-99999", 2: "99999", 3: "99999"}, {2: "99999"}, {3: "99999"}, {0: "-1"}):
        yield Attack(with_numbers(case.right, places), refused)


@attacks("giant_box", "pointing")
def giant_point(case: Case) -> Iterable[Attack]:
    yield Attack("<point>0,0,1,1</point>", refused)
    yield Attack("<box>0,0,1,1</box>", refused)
    for places in ({0: "99999"}, {1: "-1"}, {0: "-99999", 1: "99999"}):
        yield Attack(with_numbers(case.right, places), refused)


@attacks("many_boxes", "grounding")
def many_boxes(case: Case) -> Iterable[Attack]:
    yield Attack(boxes_text(case.task, case.rules, grid()), refused)
    yield Attack(boxes_text(case.task, case.rules, [*grid(), case.task.truth.box]), refused)


@attacks("many_boxes", "detection")
def many_detections(case: Case) -> Iterable[Attack]:
    if num := len(truth_boxes(case)):
        labels = [case.task.truth.labels[0]] * GRID**2 if case.task.truth.labels else None
        yield Attack(boxes_text(case.task, case.rules, grid(), labels), worth(2 * num / (GRID**2 + num)))


@attacks("duplicate_boxes", "detection")
def duplicate_boxes(case: Case) -> Iterable[Attack]:
    if boxes := truth_boxes(case):
        labels = [case.task.truth.labels[0]] * 10 if case.task.truth.labels else None
        text = boxes_text(case.task, case.rules, [boxes[0]] * 10, labels)
        yield Attack(text, worth(2 / (10 + len(boxes))))


@attacks("empty_set", "detection")
def empty_set(case: Case) -> Iterable[Attack]:
    none = boxes_text(case.task, case.rules, [])
    if truth_boxes(case):
        yield Attack(none, worth(0.0))
    labels = None if case.task.truth.labels is None else ()
    yield Attack(none, correct, replace(case.task, truth=BoxesTruth((), labels)))


@attacks("multi_answer", "grounding")
def several_boxes(case: Case) -> Iterable[Attack]:
    yield Attack(boxes_text(case.task, case.rules, [case.task.truth.box] * 2), refused)
    yield from all_of(refused, (f"{case.right} or {case.wrong[0]}", f"{case.wrong[0]}\n{case.right}"))


@attacks("multi_answer", "pointing")
def several_points(case: Case) -> Iterable[Attack]:
    every = [(x / 10, y / 10) for y in range(11) for x in range(11)]
    yield from all_of(refused, ("".join(point_text(case.task, case.rules, point) for point in every),))
    yield from all_of(refused, (f"{case.right} or {case.wrong[0]}", f"{case.right}{case.right}"))


@attacks("json_traps", "grounding", "detection")
def json_traps(case: Case) -> Iterable[Attack]:
    """In a dialect that is JSON its own text is trapped; in others JSON is no answer at all."""
    text = case.right
    fence = "```json\n{}\n```" if text.startswith("```") else "{}"
    inner = text.removeprefix("```json").removesuffix("```").strip()
    if not inner.startswith("[{"):
        fence, inner = "{}", '[{"bbox_2d": [100, 100, 300, 300], "label": "thing"}]'
    numbers = numbers_of(inner)[:4]
    corners = ", ".join(numbers)
    key = inner.split('"')[1]
    if corners not in inner:
        return
    traps = [
        inner.replace("[{", f'[{{"{key}": [{corners}], ', 1),
        inner.replace(corners, f"NaN, {', '.join(numbers[1:])}", 1),
        inner.replace(corners, f"{', '.join(numbers[:3])}, Infinity", 1),
        inner.replace("}]", "},]", 1),
        inner.replace(corners, corners + ",", 1),
        inner.replace("[{", '[{"score": 1, ', 1),
        f"{inner}\n{inner}",
        f"{inner} {{}}",
    ]
    yield from all_of(refused, (fence.format(trap) if fence == "{}" else fence.replace("{}", trap) for trap in traps))


@attacks("grader_eval", "grounding", "detection")
def evaluated(case: Case) -> Iterable[Attack]:
    command = f"__import__('os').system('touch {case.marker}')"
    judge = unexecuted(refused, case.marker)
    yield Attack(command, judge)
    if numbers_of(case.right):
        yield Attack(with_numbers(case.right, {0: command}), judge)
