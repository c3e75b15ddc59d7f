# ruff: noqa: RUF001
"""Answers whose verdict is known, written from a task's truth: the right one, and some that are well formed and wrong."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from textwrap import dedent

from oncurve.config.rewards import KindRules
from oncurve.geometry.boxes import iou
from oncurve.geometry.dialects import Found, print_boxes, print_point
from oncurve.geometry.written import BOX_DIALECTS
from oncurve.truths import Box, CodeTruth, DiscTruth, Point, Region
from oncurve.types import Task

CORNERS: tuple[Box, ...] = ((0.0, 0.0, 0.1, 0.1), (0.9, 0.9, 1.0, 1.0), (0.9, 0.0, 1.0, 0.1), (0.0, 0.9, 0.1, 1.0))
NONSENSE = "I do not know what to say."


def boxes_text(task: Task, rules: KindRules, boxes: Sequence[Box], labels: Sequence[str] | None = None) -> str:
    """The boxes in the rules' dialect, one behind the other where it holds one only."""
    found = [Found(box, label) for box, label in zip(boxes, labels or [None] * len(boxes), strict=True)]
    size = rules.model_size or (task.images[0].pixels.size if task.images else None)
    if BOX_DIALECTS[rules.dialect].several:
        return print_boxes(found, rules.dialect, size)
    return "".join(print_boxes([one], rules.dialect, size) for one in found)


def point_text(task: Task, rules: KindRules, point: Point) -> str:
    return print_point(point, rules.dialect)


def count_text(rules: KindRules, count: int) -> str:
    """The count, or as many points."""
    if rules.format == "points":
        return "".join(f"<point>{i / (count + 1):.4f},0.5</point>" for i in range(1, count + 1)) or "none"
    return formatted(str(count), rules.format)


def formatted(text: str, style: str) -> str:
    """Example: `formatted("3", "boxed")` is `\\boxed{3}`."""
    return {"plain": "{}", "tag": "<answer>{}</answer>", "boxed": "\\boxed{{{}}}", "hash": "#### {}"}[style].format(
        text
    )


def table_program(truth: CodeTruth, tests: Sequence[dict]) -> str:
    """A program that has the results of `tests` by heart and knows nothing else."""
    if truth.entry_point is None:
        table = {test["stdin"]: test["stdout"] for test in tests}
        return f"import sys\nprint({table!r}.get(sys.stdin.read(), ''), end='')"
    table = {json.dumps([test.get("args", []), test.get("kwargs", {})]): json.dumps(test["result"]) for test in tests}
    return dedent(f"""\
        import json
        def {truth.entry_point}(*args, **kwargs):
            return json.loads({table!r}.get(json.dumps([list(args), kwargs]), '"no such result"'))""")


def right_answer(task: Task, rules: KindRules) -> str:
    """The truth as an answer in the format that the rules ask for."""
    return RIGHT[task.kind](task, rules)


def wrong_answers(task: Task, rules: KindRules) -> tuple[str, ...]:
    """Well formed, and plainly not the truth."""
    return tuple(WRONG[task.kind](task, rules))


def better_answers(task: Task, rules: KindRules) -> list[list[str]]:
    """Series of answers from the truth outwards, each no better than the one before it; none for most kinds."""
    return BETTER[task.kind](task, rules) if task.kind in BETTER else []


def constant_answers(rules: KindRules, tasks: Sequence[Task]) -> list[str]:
    """Fixed answers that a model could give to all of the tasks, besides the truth of one of them."""
    kind = tasks[0].kind
    if kind == "grounding":
        boxes = [task.truth.box for task in tasks]
        mean = tuple(round(fmean(sides), 2) for sides in zip(*boxes, strict=True))
        some = [mean, (0.0, 0.0, 1.0, 1.0), (0.25, 0.25, 0.75, 0.75)]
        return [boxes_text(tasks[0], rules, [box]) for box in some]
    if kind == "detection":
        return [boxes_text(tasks[0], rules, boxes) for boxes in ([], [(0.0, 0.0, 1.0, 1.0)])]
    if kind == "pointing":
        return [point_text(tasks[0], rules, (0.5, 0.5))]
    if kind == "counting":
        return [count_text(rules, number) for number in range(4)]
    if kind == "math":
        return [formatted(number, rules.format) for number in ("0", "1", "2", "3")]
    if kind == "choice":
        return [formatted(choice, rules.format) for choice in rules.choices]
    return [NONSENSE]


def _box_series(task: Task, rules: KindRules) -> list[list[str]]:
    return [[boxes_text(task, rules, [box]) for box in series] for series in series_of(task.truth.box)]


def series_of(box: Box) -> list[list[Box]]:
    """Boxes away from `box`, with falling IoU: moved to the roomier side, shrunk on the spot, grown on the spot."""
    x1, y1, x2, y2 = box
    width, height = x2 - x1, y2 - y1
    room = max(x1, 1 - x2)
    way = -1 if x1 > 1 - x2 else 1
    moved = [(x1 + way * room * t, y1, x2 + way * room * t, y2) for t in _SHARES]
    shrunk = [(x1 + width * t / 2, y1 + height * t / 2, x2 - width * t / 2, y2 - height * t / 2) for t in _SHARES[:-1]]
    grown = [(x1 * (1 - t), y1 * (1 - t), x2 + (1 - x2) * t, y2 + (1 - y2) * t) for t in _SHARES]
    return [[_round(b) for b in series] for series in (moved, shrunk, grown)]


_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def _round(box: Box) -> Box:
    x1, y1, x2, y2 = (round(at, 2) for at in box)
    return x1, y1, x2, y2


def _ocr_series(task: Task, rules: KindRules) -> list[list[str]]:
    text = task.truth.text
    return [[text[: max(1, round(len(text) * (1 - t)))] for t in _SHARES[:-1]]]


def _far_boxes(boxes: Sequence[Box]) -> list[Box]:
    far = [corner for corner in CORNERS if all(iou(corner, box) == 0 for box in boxes)]
    return far or [min(CORNERS, key=lambda corner: max(iou(corner, box) for box in boxes))]


def _labels(task: Task, num: int) -> list[str] | None:
    return None if task.truth.labels is None else [*task.truth.labels, *["thing"] * num][:num]


def _center(truth: object) -> Point:
    if isinstance(truth, DiscTruth):
        return truth.point
    x1, y1, x2, y2 = truth.box
    return (x1 + x2) / 2, (y1 + y2) / 2


def _far_points(truth: object) -> list[Point]:
    x, y = _center(truth)
    return [(0.0 if x >= 0.5 else 1.0, 0.0 if y >= 0.5 else 1.0)]


def _math(task: Task, rules: KindRules, answer: str) -> str:
    return formatted(f"{answer} {task.truth.unit}" if task.truth.unit else answer, rules.format)


def _wrong_math(task: Task, rules: KindRules) -> Iterable[str]:
    answer = task.truth.answer
    numbers = (
        (str(int(answer) + 1), str(-int(answer) - 3)) if re.fullmatch(r"-?[0-9]+", answer) else ("987654321", "-0.123")
    )
    return [_math(task, rules, number) for number in numbers]


def _code(task: Task, rules: KindRules) -> str:
    truth = task.truth
    program = truth.reference or table_program(truth, truth.tests or truth.stdin_tests)
    return f"```python\n{program}\n```" if rules.fence == "required" else program


def _wrong_code(task: Task, rules: KindRules) -> Iterable[str]:
    name = task.truth.entry_point
    program = f"def {name}(*args, **kwargs):\n    return 'no such result'" if name else "print('no such result')"
    return [f"```python\n{program}\n```" if rules.fence == "required" else program]


LIMITS = {
    "en": "How the person feels can not be known from a picture.",
    "zh": "从图片无法知道这个人的感受。",
}
REPLIES = {
    "en": "I can see {}. I can't know from this how you feel. Would you like to tell me more? I am here to listen.",
    "zh": "我看到{}。我无法从这里知道你的感受。你愿意多说一些吗？我在这里听你说。",
}
SENTENCES = {
    "en": (
        "The picture shows a wooden table beside a window.",
        "Two cups stand on it, one of them half full.",
        "A small lamp throws light across the left wall.",
        "Behind the chair there is a shelf with old books.",
        "Outside, rain has left drops upon the glass.",
        "Nobody sits in the room at this moment.",
    ),
    "zh": (
        "图片里有一张木桌和一扇窗。",
        "桌上放着两个杯子，其中一个半满。",
        "左边的墙上有一盏小灯。",
        "椅子后面是放旧书的架子。",
    ),
}


def _wrong_queries(sql: str) -> Iterable[str]:
    rows = f"SELECT * FROM ({sql.rstrip().removesuffix(';')}) AS t"
    return ["SELECT 'no such row'", "SELECT 1 WHERE 1 = 0", f"{rows} UNION ALL {rows}"]


def _report(task: Task, rules: KindRules, regions: Sequence[tuple[Box, str, str]]) -> str:
    seen = [
        {"region": list(box), "type": name, "description": words, "confidence": 0.9} for box, name, words in regions
    ]
    report = {"observable_evidence": seen, "mental_state_conclusion": None, "limits": LIMITS[rules.language]}
    return json.dumps(report, ensure_ascii=False)


def _evidence(task: Task, rules: KindRules) -> str:
    return _report(task, rules, [(r.region, r.type, described(r)) for r in task.truth.regions])


def described(region: Region) -> str:
    """Example: `head down` for a `face_region` that is `down`, `arms crossed` for arms that are."""
    noun = region.type.removesuffix("_region").replace("_", " ")
    noun = {"face": "head", "body posture": "person", "posture": "person"}.get(noun, noun)
    said = [attribute.replace("_", " ") for attribute in region.attributes]
    return ", ".join(one if noun in one else f"{noun} {one}" for one in said) or noun


def _wrong_evidence(task: Task, rules: KindRules) -> Iterable[str]:
    far = _far_boxes([region.region for region in task.truth.regions])
    words = {"en": "a plain wall", "zh": "一面墙"}[rules.language]
    return [_report(task, rules, [(box, "background", words)]) for box in far]


def _reply(task: Task, rules: KindRules) -> str:
    joined = {"en": " and ".join, "zh": "，".join}[rules.language]
    return REPLIES[rules.language].format(joined(entry.description.rstrip(".。") for entry in task.truth.evidence))


def _wrong_reply(task: Task, rules: KindRules) -> Iterable[str]:
    return [{"en": "You are depressed and need treatment.", "zh": "你患有抑郁症，需要治疗。"}[rules.language]]


def honest_text(task: Task, rules: KindRules) -> str:
    """A short text about nothing, with the tags, the sections, the language and the length that the parts ask for."""
    parts = {part.type: part for part in getattr(rules, "parts", ())}
    language = parts["language"].language if "language" in parts else "en"
    sentences = SENTENCES[language]
    body = ("" if language == "zh" else " ").join(sentences)
    if (target := parts.get("length_target")) and target.unit != "tokens":
        body = body[: target.target] if target.unit == "characters" else " ".join(body.split()[: target.target])
    if "process" in parts:
        headings = parts["process"].sections
        body = "\n".join(f"{heading} {sentences[i % len(sentences)]}" for i, heading in enumerate(headings))
    if "tags" in parts:
        *first, last = parts["tags"].tags
        return "".join(f"<{tag}>{sentences[i % 2]}</{tag}>" for i, tag in enumerate(first)) + f"<{last}>{body}</{last}>"
    return body


RIGHT: dict[str, Callable[[Task, KindRules], str]] = {
    "grounding": lambda task, rules: boxes_text(task, rules, [task.truth.box]),
    "detection": lambda task, rules: boxes_text(task, rules, task.truth.boxes, task.truth.labels),
    "pointing": lambda task, rules: point_text(task, rules, _center(task.truth)),
    "counting": lambda task, rules: count_text(rules, task.truth.count),
    "ocr": lambda task, rules: task.truth.text,
    "choice": lambda task, rules: formatted(task.truth.choice, rules.format),
    "short_answer": lambda task, rules: task.truth.answers[0],
    "math": lambda task, rules: _math(task, rules, task.truth.answer),
    "code": _code,
    "sql": lambda task, rules: task.truth.sql,
    "evidence": _evidence,
    "reply": _reply,
    "text": honest_text,
}
WRONG: dict[str, Callable[[Task, KindRules], Iterable[str]]] = {
    "grounding": lambda task, rules: [boxes_text(task, rules, [box]) for box in _far_boxes([task.truth.box])],
    "detection": lambda task, rules: [
        boxes_text(task, rules, [box], _labels(task, 1)) for box in _far_boxes(task.truth.boxes)
    ],
    "pointing": lambda task, rules: [point_text(task, rules, point) for point in _far_points(task.truth)],
    "counting": lambda task, rules: [count_text(rules, task.truth.count + rules.band + n) for n in (1, 7)],
    "ocr": lambda task, rules: ["~" * len(task.truth.text)],
    "choice": lambda task, rules: [formatted(c, rules.format) for c in rules.choices if c != task.truth.choice],
    "short_answer": lambda task, rules: ["~~ something else entirely ~~"],
    "math": _wrong_math,
    "code": _wrong_code,
    "sql": lambda task, rules: _wrong_queries(task.truth.sql),
    "evidence": _wrong_evidence,
    "reply": _wrong_reply,
    "text": lambda task, rules: [],
}
BETTER: dict[str, Callable[[Task, KindRules], list[list[str]]]] = {"grounding": _box_series, "ocr": _ocr_series}
