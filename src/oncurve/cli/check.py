"""Look before you train: data, reward, baseline, memory, time, and which method fits the task.

oncurve check recipes/cat_and_dog.toml
oncurve check recipes/cat_and_dog.toml --out sheet.png
oncurve check recipes/cat_and_dog.toml --json --hours 8

Exit status 0: ready. 1: not advised, with the reasons (docs/evaluation.md lists them). 2: it can't start.
"""

import argparse
import json
from pathlib import Path

from oncurve.cli.eval import positive, whole_number

TAKES_OVERRIDES = True
COLUMNS, CELL_PX, CAPTION_PX = 4, 240, 34
SHOWN = 3  # ids and faults
MARK = {True: "ok", False: "NO"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, help="a TOML file, such as recipes/cat_and_dog.toml")
    parser.add_argument("--out", type=Path, metavar="FILE.png", help="a contact sheet of tasks, their truths drawn")
    parser.add_argument("--hours", type=positive, default=24.0, help="how long the run may take at the most (24)")
    parser.add_argument("--limit", type=whole_number, metavar="N", help="measure N prompts, not every one")
    parser.add_argument("--allow-unsafe", action="store_true", help="run code without isolation")
    parser.add_argument("--json", action="store_true", help="one JSON document and nothing else")


def run(args: argparse.Namespace) -> int:
    from oncurve.config.loader import load
    from oncurve.config.schema import TrainConfig
    from oncurve.errors import ConfigError

    config = load(args.config, args.overrides, TrainConfig)
    if args.out and args.out.suffix.lower() not in (".png", ".jpg", ".jpeg"):
        raise ConfigError(f"--out {args.out}: the contact sheet is a picture; name a .png or .jpg file")

    from rich.console import Console

    from oncurve.check import check

    console = Console()
    with console.status("starting") if console.is_terminal and not args.json else _Quiet() as status:
        report = check(
            config, max_hours=args.hours, limit=args.limit, allow_unsafe=args.allow_unsafe, say=status.update
        )
    if args.out:
        _save_sheet(args.out, report.examples)
    if args.json:
        from oncurve.record.files import to_json

        print(to_json(document(report) | {"contact_sheet": args.out and str(args.out)}))
    else:
        _show(console, args, config, report)
    return 0 if report.ready else 1


class _Quiet:
    """A status that nobody sees."""

    def __enter__(self) -> "_Quiet":
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self, text: str) -> None: ...


def document(report) -> dict:
    from dataclasses import asdict

    broken = [finding.row() for finding in report.audit if not finding.ok]
    return {
        "ready": report.ready,
        "reasons": [asdict(reason) for reason in report.reasons],
        "prompts": asdict(report.prompts),
        "audit": {"num_applied": sum(finding.applies for finding in report.audit), "broken": broken},
        "baseline": asdict(report.baseline),
        "dry_run": asdict(report.dry_run),
        "duration": asdict(report.duration),
        "guide": asdict(report.guide),
        "shared_prefix": report.shared_prefix,
    }


def _show(console, args: argparse.Namespace, config, report) -> None:
    from rich.text import Text

    def say(label: str, text: str, style: str = "") -> None:
        console.print(Text(f"{label:<11}") + Text(text, style), soft_wrap=True)

    p, b, d, t, g = report.prompts, report.baseline, report.dry_run, report.duration, report.guide
    measured = "every prompt" if p.num_measured == p.num_tasks else f"{p.num_measured:,} of {p.num_tasks:,} prompts"
    say("data", f"{p.num_tasks:,} tasks, {p.num_rejected_rows:,} rows left out; {measured} measured")
    say("prompts", f"{p.shortest:,} to {p.longest:,} tokens, median {p.median:,.0f}; the context has {p.context:,}")
    if p.beyond_context:
        say("", f"{len(p.beyond_context):,} don't fit: {_some(p.beyond_context)}", "yellow")
    for fault in p.broken_truths[:SHOWN]:
        say("", fault, "red")
    if not report.shared_prefix:
        say("", "this model can't share a prompt: one plain row an answer, which is slower", "yellow")
    applied, broken = sum(f.applies for f in report.audit), [f for f in report.audit if not f.ok]
    if broken:
        say(
            "reward",
            f"{len(broken)} of {applied} attacks and checks break it: {_some([f.exploit for f in broken])}",
            "red",
        )
    else:
        say("reward", f"sound: {applied} attacks and checks, none breaks it (oncurve audit {args.config} says more)")
    console.print()
    reward = "-" if b.reward is None else f"{b.reward:.3f}"
    deviation = "-" if b.std_in_group is None else f"{b.std_in_group:.3f}"
    say("baseline", f"{b.num_answers} answers in {b.num_groups} groups, as the model is now")
    say("", f"reward {reward} ± {deviation} in a group; valid format {b.valid_format:.0%}; cut off {b.truncated:.0%}")
    causes = ", ".join(f"{name.replace('_', ' ')} {share:.0%}" for name, share in b.causes.items())
    say("", f"groups without signal {b.no_signal:.0%}" + (f" ({causes})" if causes else ""))
    shown = {name: b.heldout[name] for name in ("accuracy", "mean_iou", "mean_value") if name in b.heldout}
    greedy = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in shown.items())
    say("", f"held out, greedy: {greedy} over {b.heldout['num_tasks']} tasks".replace("mean iou", "mean IoU"))
    console.print()
    fits = "fits" if d.fits else "DOES NOT FIT"
    say(
        "memory",
        f"an update on the longest prompts ({d.prompt_tokens:,} tokens, answers of {d.answer_tokens:,}) {fits}: peak "
        f"{d.peak_bytes / 2**30:.1f} of {d.available_bytes / 2**30:.1f} GiB",
        "" if d.fits else "red",
    )
    if t.run_s is None:
        say(
            "time",
            f"unknown, since no update fits; to sample a step takes {t.sample_s:.2f} s, to grade it {t.grade_s:.2f} s",
        )
    else:
        step_s = t.sample_s + t.grade_s + t.update_s
        say("time", f"a step {step_s:.2f} s (sample {t.sample_s:.2f}, grade {t.grade_s:.2f}, update {t.update_s:.2f})")
        evaluations = f"{t.num_evaluations} evaluations of {t.evaluation_s:.1f} s"
        say("", f"{t.num_steps:,} steps and {evaluations}: about {_span(t.run_s)} in all")
    console.print()
    questions = {
        "can a program verify the answers?": g.verifiable,
        "do rewards tell answers apart?": g.rewards_discriminate,
        f"is sampling affordable (under {args.hours:g} hours)?": g.sampling_affordable,
    }
    for i, (question, yes) in enumerate(questions.items()):
        say("guide" if i == 0 else "", f"{question:<45}{'yes' if yes else 'no'}", "" if yes else "yellow")
    named = {"grpo": "GRPO", "ppo": "PPO", "sft": "SFT", "sft_then_grpo": "SFT, then GRPO"}[g.method]
    say("", f"so {named}: {g.advice}")
    if args.out:
        say("sheet", f"{args.out}, {len(report.examples)} tasks as the model sees them, truths drawn")
    console.print()
    if report.ready:
        say("READY", f"oncurve train {args.config}" + "".join(f" {o}" for o in args.overrides), "bold green")
    for i, reason in enumerate(report.reasons):
        say("NOT YET" if i == 0 else "", reason.words, "bold red")


def _some(names) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _save_sheet(path: Path, examples) -> None:
    from oncurve.errors import DataError, RunError

    if not examples:
        raise DataError(f"--out {path}: no task has an image, so there is nothing to draw; leave --out away")
    try:
        contact_sheet(examples).save(path)
    except OSError as error:
        raise RunError(f"{path}: the contact sheet can't be written: {error}") from error


def contact_sheet(examples):
    """Tasks in a grid: the question, and the first image at the size in which the model sees it, enlarged, the truth drawn."""
    from PIL import Image, ImageDraw, ImageFont

    from oncurve.cli.readout import TRUTH, draw_shapes, shapes
    from oncurve.truths import truth_json

    rows = -(-len(examples) // COLUMNS)
    sheet = Image.new("RGB", (min(len(examples), COLUMNS) * CELL_PX, rows * (CELL_PX + CAPTION_PX)), "#ffffff")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for i, (task, sizes) in enumerate(examples):
        seen = task.images[0].pixels.resize(sizes[0]) if sizes else task.images[0].pixels
        scale = (CELL_PX - 8) / max(seen.size)
        picture = seen.resize([max(1, round(side * scale)) for side in seen.size], Image.Resampling.NEAREST)
        truth = truth_json(task.truth)
        drawn = shapes(truth)
        draw_shapes(picture, drawn, TRUTH)
        left, top = i % COLUMNS * CELL_PX, i // COLUMNS * (CELL_PX + CAPTION_PX)
        sheet.paste(picture, (left + 4, top + CAPTION_PX))
        said = ", ".join(truth.get("labels", ())) if drawn else json.dumps(truth, ensure_ascii=False)
        for line, text in enumerate((task.messages[-1].text, f"{seen.width}x{seen.height} px  {said}")):
            pen.text((left + 4, top + 3 + 14 * line), fitted(text, font, CELL_PX - 8), "#333333", font)
    return sheet


def fitted(text: str, font, width_px: int) -> str:
    """The text in one line, cut where it would be wider."""
    line = " ".join(text.split())
    if font.getlength(line) <= width_px:
        return line
    while line and font.getlength(line + "…") > width_px:
        line = line[:-1]
    return line + "…"
