"""Write a run out for people to read: the same questions before, halfway and after, and the key curves.

oncurve readout runs/cat_and_dog
oncurve readout runs/cat_and_dog --out docs/cat_and_dog

Markdown (README.md) with small pictures beside it, as GitHub shows it. Everything comes from the run's record, so no model is
loaded. Without --out it goes into the folder `readout` of the run.
"""

import argparse
import html
import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from oncurve.errors import RunError
from oncurve.record.files import put, writing
from oncurve.record.reader import RunReader

PANEL_PX, GAP_PX, CAPTION_PX = 224, 8, 18  # a picture's longer side; between pictures; the line above one
TRUTH, ANSWER, CASING, INK, PALE = "#00a676", "#e4572e", "#ffffff", "#333333", "#dddddd"
CHART_PX, MAX_CHARTS, MAX_POINTS = (400, 190), 6, 300
MAX_CHARACTERS, MAX_HEADING = 1200, 72  # of an answer; of a question that is a heading
CURVES = {
    "eval/mean_iou/mean": "Held out: mean IoU",
    "eval/accuracy/mean": "Held out: accuracy",
    "eval/value/mean": "Held out: value",
    "eval/general/accuracy": "General questions: accuracy",
    "reward/total/mean": "Reward of training",
    "groups/no_signal/share": "Groups without signal",
    "answers/length_tokens/mean": "Length of answers, tokens",
    "policy/kl_reference/mean": "KL to the reference, nats",
    "answers/invalid/share": "Invalid answers",
    "policy/grad_norm/before_clip": "Gradient norm",
}  # the most telling first; those that the run has are drawn, up to MAX_CHARTS
Json = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="the run's folder")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (RUN/readout)")


def run(args: argparse.Namespace) -> int:
    reader = RunReader(args.run_folder)
    print(write_readout(reader, args.out or args.run_folder / "readout"))
    return 0


def write_readout(reader: RunReader, out: Path) -> Path:
    """Write README.md and its pictures into `out`, and return its path. Raises `RunError` for a run without probes."""
    probes = reader.probes()
    if not any(probes.values()):
        raise RunError(
            f"{reader.folder} has no probes to read: they are written at evaluations, evaluate.num_probes each"
        )
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    steps = chosen(list(probes))
    metrics = reader.metrics()
    lines = [f"# {out.name if out.name != 'readout' else reader.folder.name}: read out", "", *_about(reader, steps)]
    lines += ["", "## Held out", "", *_results(metrics, steps)]
    if charts := [(title, points) for name, title in CURVES.items() if len(points := series(metrics, name)) > 1]:
        put(out / "curves.svg", svg(charts[:MAX_CHARTS]).encode())
        lines += ["", "## Curves", "", "![curves](curves.svg)"]
    lines += ["", "## The same questions", ""]
    if any(probe["images"] for probe in probes[steps[-1]]):
        lines.append("Truth in green, the answer in orange.")
    for number, probe in enumerate(probes[steps[-1]], 1):
        asked = {step: _of_task(probes[step], probe["task_id"]) for step in steps}
        lines += ["", *_question(number, probe["question"]), ""]
        if probe["images"]:
            name = f"question-{number}.jpg"
            put(out / name, _jpeg(panels(reader.image(probe["images"][0]), asked)))
            lines += [f"![question {number}]({name})", ""]
        lines += [*_answers(probe, asked)]
    put(out / "README.md", "\n".join(lines).encode() + b"\n")
    return out / "README.md"


def chosen(steps: Sequence[int]) -> list[int]:
    """The first evaluated step, the one nearest to halfway, and the last, each once."""
    middle = min(steps, key=lambda step: abs(step - (steps[0] + steps[-1]) / 2))
    return list(dict.fromkeys([steps[0], middle, steps[-1]]))


def series(metrics: Sequence[Json], name: str) -> list[tuple[int, float]]:
    """Step and value wherever the metric was measured, averaged in pieces down to 300 points."""
    points = [(row["step"], row[name]) for row in metrics if name in row]
    size = -(-len(points) // MAX_POINTS)
    pieces = [points[i : i + size] for i in range(0, len(points), max(size, 1))]
    return [(piece[-1][0], sum(value for _, value in piece) / len(piece)) for piece in pieces]


# Words


def escaped(text: str) -> str:
    """The text as it is, whatever Markdown or HTML would make of it."""
    shown = text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} … ({len(text):,} characters)"
    safe = re.sub(r"[^\w\s.,;:'\"?%/()=]|_|://|www\.", lambda m: "".join(f"&#{ord(c)};" for c in m[0]), shown)
    return re.sub(r"\r?\n", "<br>", safe)


def _about(reader: RunReader, steps: Sequence[int]) -> Iterator[str]:
    config = reader.config
    reward = config.get("reward", {}).get("type", "none: supervised")
    yield f"`{reader.info['command']}`"
    yield ""
    yield (
        f"Model `{config['model']['path']}`, data `{config.get('data', config['heldout'])['type']}`, held out "
        f"`{config['heldout']['type']}`, reward `{reward}`; evaluated greedily after step {', '.join(map(str, steps))}."
    )


def _results(metrics: Sequence[Json], steps: Sequence[int]) -> Iterator[str]:
    from oncurve.cli.terminal import evaluated_labels

    rows = {row["step"]: row for row in metrics if "eval/accuracy/num_tasks" in row}
    shown = [rows[step] for step in steps if step in rows]
    yield "| " + " | ".join(["", *(f"step {row['step']}" for row in shown)]) + " |"
    yield "|---|" + "---:|" * len(shown)
    for label, name in evaluated_labels(*shown).items():
        yield "| " + " | ".join([label, *(f"{row[name]:.3f}" for row in shown)]) + " |"
    yield ""
    yield f"Over {shown[-1]['eval/accuracy/num_tasks']} tasks."


def _question(number: int, question: str) -> Iterator[str]:
    """A heading, and the question below it where it is too long for one."""
    short = textwrap.shorten(question, MAX_HEADING, placeholder=" …")
    yield f"### {number}. {escaped(short)}"
    if short != question:
        yield ""
        yield f"> {escaped(question)}"


def _answers(probe: Json, asked: Mapping[int, Json | None]) -> Iterator[str]:
    if not shapes(probe["truth"]):
        yield f"Truth: {escaped(_plain(probe['truth']))}"
        yield ""
    yield "| after step | answer | score |"
    yield "|---:|---|---|"
    for step, one in asked.items():
        if one:
            yield f"| {step} | {escaped(one['text']) or '(empty)'} | {escaped(_verdict(one['score']))} |"


def _verdict(score: Json) -> str:
    if score["status"] == "error":
        return f"verifier failed: {score['reason']}"
    if score["status"] == "invalid":
        return f"invalid: {score['reason'].replace('_', ' ')}"
    word = {True: "right, ", False: "wrong, ", None: ""}[score["correct"]]
    return f"{word}{score['value']:.3f}. {score['evidence']}"


def _plain(truth: Json) -> str:
    values = list(truth.values())
    return str(values[0]) if len(values) == 1 and isinstance(values[0], str | int) else json.dumps(truth)


def _of_task(probes: Sequence[Json], task_id: str) -> Json | None:
    return next((probe for probe in probes if probe["task_id"] == task_id), None)


# Pictures


def shapes(value: Any, key: str = "box") -> list[tuple[float, ...]]:
    """The boxes (four numbers) and points (two) in a truth or in an extracted answer, in 0..1 of the image."""
    if isinstance(value, Mapping):
        return [shape for key, part in value.items() for shape in shapes(part, key)]
    if not isinstance(value, list | tuple):
        return []
    if len(value) in (2, 4) and all(type(number) in (int, float) for number in value):
        return [tuple(value)] if key in ("box", "boxes", "region", "point") else []
    return [shape for part in value for shape in shapes(part, key)]


def panels(image: Image.Image, asked: Mapping[int, Json | None]) -> Image.Image:
    """The image once for each step, side by side, with truth and answer drawn."""
    scale = PANEL_PX / max(image.size)
    size = tuple(max(1, round(side * scale)) for side in image.size)
    sheet = Image.new("RGB", (len(asked) * (size[0] + GAP_PX) - GAP_PX, size[1] + CAPTION_PX), CASING)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(12)
    for i, (step, one) in enumerate(asked.items()):
        picture, left = image.resize(size, Image.Resampling.BICUBIC), i * (size[0] + GAP_PX)
        if one:
            draw_shapes(picture, shapes(one["truth"]), TRUTH)
            draw_shapes(picture, shapes(one["score"]["extracted"]), ANSWER)
        sheet.paste(picture, (left, CAPTION_PX))
        pen.text((left + 1, 1), f"step {step}", INK, font)
    return sheet


def draw_shapes(picture: Image.Image, found: Sequence[tuple[float, ...]], color: str) -> None:
    """Outline boxes and mark points of 0..1 on the picture, in the color with a light edge."""
    pen, (width, height) = ImageDraw.Draw(picture), picture.size
    for shape in found:
        at = [number * (side - 1) for number, side in zip(shape, (width, height) * 2, strict=False)]
        for line, hue in ((4, CASING), (2, color)):
            if len(at) == 4:
                x1, x2, y1, y2 = *sorted(at[::2]), *sorted(at[1::2])
                pen.rectangle((x1, y1, x2, y2), outline=hue, width=line)
            else:
                pen.ellipse(
                    (at[0] - 3 - line, at[1] - 3 - line, at[0] + 3 + line, at[1] + 3 + line), outline=hue, width=2
                )


def _jpeg(picture: Image.Image) -> bytes:
    file = BytesIO()
    picture.save(file, "JPEG", quality=85, optimize=True)
    return file.getvalue()


# Curves


def svg(charts: Sequence[tuple[str, list[tuple[int, float]]]]) -> str:
    """Charts in two columns, dark on white whatever the page around them is."""
    width, height = CHART_PX
    rows = -(-len(charts) // 2)
    body = "".join(
        f'<g transform="translate({i % 2 * width},{i // 2 * height})">{_chart(title, points)}</g>'
        for i, (title, points) in enumerate(charts)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * width}" height="{rows * height}" '
        f'font-family="sans-serif" font-size="11" fill="{INK}"><rect width="100%" height="100%" fill="{CASING}"/>{body}</svg>'
    )


def _chart(title: str, points: Sequence[tuple[int, float]]) -> str:
    left, top, right, bottom = 48, 30, CHART_PX[0] - 16, CHART_PX[1] - 24
    xs, ys = zip(*points, strict=True)
    low, high = min(ys), max(ys)
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)

    def at(x: float, y: float) -> str:
        across = left + (x - xs[0]) / max(xs[-1] - xs[0], 1) * (right - left)
        return f"{across:.1f},{bottom - (y - low) / (high - low) * (bottom - top):.1f}"

    line = " ".join(at(x, y) for x, y in points)
    few = "".join('<circle cx="{}" cy="{}" r="2.5"/>'.format(*at(*point).split(",")) for point in points)
    grid = "".join(
        f'<path d="M{left} {y}H{right}" stroke="{PALE}"/><text x="{left - 5}" y="{y + 4}" text-anchor="end">{value:.3g}</text>'
        for y, value in ((bottom, low), ((top + bottom) / 2, (low + high) / 2), (top, high))
    )
    return (
        f'<text x="{left}" y="16" font-size="12" font-weight="bold">{html.escape(title)}</text>{grid}'
        f'<text x="{left}" y="{bottom + 15}">{xs[0]}</text>'
        f'<text x="{right}" y="{bottom + 15}" text-anchor="end">step {xs[-1]}</text>'
        f'<polyline points="{line}" fill="none" stroke="#0072b2" stroke-width="1.6"/>'
        f'<g fill="#0072b2">{few if len(points) <= 30 else ""}</g>'
    )
