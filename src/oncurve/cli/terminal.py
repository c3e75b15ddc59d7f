"""How a run shows itself: a line a step, with a progress bar on a terminal and plain lines elsewhere."""

import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from oncurve.config.schema import TrainConfig
from oncurve.evaluate import Evaluation
from oncurve.policy.check import PrefixCheck
from oncurve.record.reader import RunReader
from oncurve.tasks.sets import describe_rejections
from oncurve.types import TaskSet

LINES_UNDER_A_HEADING = 20
COLUMNS = (
    (
        "reward ± std",
        13,
        lambda m: f"{_show(m, 'reward/total/mean', '.3f')} ± {_show(m, 'reward/total/std_in_group', '.3f')}",
    ),
    ("no signal", 9, lambda m: _show(m, "groups/no_signal/share", ".2f")),
    ("valid", 5, lambda m: f"{1 - m['answers/invalid/share']:.2f}"),
    ("length", 6, lambda m: _show(m, "answers/length_tokens/mean", ".1f")),
    ("KL", 7, lambda m: _show(m, "policy/kl_reference/mean", ".4f")),
    ("|grad|", 6, lambda m: _show(m, "policy/grad_norm/before_clip", ".2f")),
    ("tok/s", 6, lambda m: _show(m, "throughput/tokens_per_s", ",.0f")),
    ("left", 5, lambda m: clock(m["left_s"])),
    *(
        (f"{stage} s", 8, lambda m, name=f"time/{stage}_s": _show(m, name, ".2f"))
        for stage in ("sample", "grade", "update", "record")
    ),
)  # what a step's line says, the most telling first: heading, width, text
PLAIN_ROWS = ("prefix", 10, lambda m: "plain rows")  # before the others, where answers to a prompt can't share its row
EVALUATED = {
    "mean IoU": "eval/mean_iou/mean",
    "Acc@0.5": "eval/accuracy/mean",
    "Acc@0.75": "eval/heldout/acc@0.75",
    "Acc@0.95": "eval/heldout/acc@0.95",
    "valid format": "eval/heldout/valid_format",
}
GRADED = {
    "value": "eval/value/mean",
    "correct": "eval/accuracy/mean",
    "valid format": "eval/heldout/valid_format",
    "COCO AP": "eval/heldout/coco_ap",
    "MAE": "eval/heldout/mae",
    "CER": "eval/heldout/cer",
    "WER": "eval/heldout/wer",
    "ANLS": "eval/heldout/anls",
}
GENERAL = {"general questions": "eval/general/accuracy"}


def evaluated_labels(*rows: Mapping[str, float]) -> dict[str, str]:
    """The lines of a table of evaluations, label to metric: of boxes by IoU, of other kinds by their value."""
    labels = (EVALUATED if all("eval/mean_iou/mean" in row for row in rows) else GRADED) | GENERAL
    return {label: name for label, name in labels.items() if all(name in row for row in rows)}


class Terminal:
    """The reporter of `oncurve train`. Use it as a context, so that the bar is put away whatever happens."""

    def __init__(self, console: Console):
        self.console = console
        columns = [
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[left]}"),
            TimeElapsedColumn(),
        ]
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._num_steps, self._first_step, self._begin, self._num_lines = 0, None, 0.0, 0
        self._columns = COLUMNS

    def __enter__(self) -> "Terminal":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def started(self, config: TrainConfig, folder: Path, check: PrefixCheck, tasks: TaskSet, heldout: TaskSet) -> None:
        s = config.sampling
        self._say(f"run       {folder}")
        self._say(
            f"data      {tasks.name} ({len(tasks):,} tasks); held out {heldout.name} "
            f"({min(config.evaluate.num_tasks, len(heldout)):,} of {len(heldout):,})"
        )
        for data in (tasks, heldout):
            if text := describe_rejections(data.rejections, len(data)):
                self._say(f"          {data.name}: {text}")
        self._say(
            f"a step    {s.prompts_per_step} prompts x {s.answers_per_prompt} answers = {config.answers_per_step}, "
            f"in groups of {config.group_sizes}; an update takes {config.accumulate_steps} step"
            + "s"
            * (config.accumulate_steps > 1)
        )
        if check.shared:
            self._say(
                f"prefix    shared: one row a prompt; checked against plain rows: {check.max_logp_error:.0e} nats, "
                f"gradient {check.gradient_error:.0e} relative"
            )
        else:
            self._columns = (PLAIN_ROWS, *COLUMNS)
            self._say(f"prefix    NOT shared, one plain row an answer, which is slower: {check.why_plain}")
        self._num_steps, self._begin = config.num_steps, time.monotonic()
        self._task = self._bar.add_task("steps", total=config.num_steps, left="")

    def stepped(self, step: int, metrics: dict[str, float]) -> None:
        if self._first_step is None:
            self._first_step = step
        done = step - self._first_step + 1
        left = (time.monotonic() - self._begin) / done * (self._num_steps - step)
        width = self.console.width if self.console.is_terminal else None
        if self._num_lines % LINES_UNDER_A_HEADING == 0:
            self._say(heading(self._num_steps, width, self._columns))
        self._num_lines += 1
        self._say(step_line(step, self._num_steps, metrics | {"left_s": left}, width, self._columns))
        self._bar.update(self._task, completed=step, left=f"{clock(left)} left")

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        if self._first_step is None:
            self._begin = time.monotonic()  # the time left is of steps
        found = evaluation.summary
        if not found["num_tasks"]:
            self._say(f"held out  after step {step}: the verifier failed on every answer")
            return
        mean, label = ("mean_iou", "mean IoU") if evaluation.boxed else ("mean_value", "value")
        low, high = evaluation.intervals[mean]
        correct = (
            f"{'Acc@0.5' if evaluation.boxed else 'correct'} {found['accuracy']:.3f}  " if "accuracy" in found else ""
        )
        self._say(
            f"held out  after step {step}: {label} {found[mean]:.3f} [{low:.3f}, {high:.3f}]  "
            f"{correct}valid {found['valid_format']:.3f}  over {found['num_tasks']} tasks"
        )

    def noticed(self, message: str) -> None:
        self._say(f"note      {message}")

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def heading(num_steps: int, width: int | None = None, columns=COLUMNS) -> str:
    """The heading over `step_line`s."""
    return _line("step", num_steps, [text for text, _, _ in columns], width, columns)


def step_line(step: int, num_steps: int, metrics: dict[str, float], width: int | None = None, columns=COLUMNS) -> str:
    """One line that says how a step went, a dash where nothing was measured; of `columns` those that fit into `width`.

    `metrics` holds the record's names and `left_s`, the seconds left.
    """
    return _line(f"{step}/{num_steps}", num_steps, [show(metrics) for _, _, show in columns], width, columns)


def _line(first: str, num_steps: int, texts: list[str], width: int | None, columns) -> str:
    line = first.rjust(max(len("step"), 2 * len(str(num_steps)) + 1))
    for text, (_, column_width, _) in zip(texts, columns, strict=True):
        if width is not None and len(line) + 2 + column_width > width:
            break
        line += "  " + text.rjust(column_width)
    return line


def _show(metrics: dict[str, float], name: str, form: str) -> str:
    return format(metrics[name], form) if name in metrics else "-"


def clock(seconds: float) -> str:
    """`1:02:03` or `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def print_outcome(console: Console, folder: Path) -> None:
    """The table at a run's end, held-out before against after, and what to do next."""
    reader = RunReader(folder)
    rows = [row for row in reader.metrics() if "eval/accuracy/num_tasks" in row]
    before, after = rows[0], rows[-1]
    table = Table(title=f"Held out, {after['eval/accuracy/num_tasks']} tasks, greedy", title_justify="left")
    for name in ("", f"before (step {before['step']})", f"after (step {after['step']})", "change"):
        table.add_column(name, justify="left" if not name else "right")
    for label, name in evaluated_labels(before, after).items():
        change = after[name] - before[name]
        table.add_row(label, f"{before[name]:.3f}", f"{after[name]:.3f}", f"{change:+.3f}")
    console.print(table)
    steps = reader.steps()  # none after supervised training
    if steps:
        next_ones = [
            f"oncurve readout {folder}",
            f"oncurve trace {folder} --step {steps[-1]}",
            f"oncurve eval {folder}",
        ]
    else:
        train = f"oncurve train recipes/cat_and_dog.toml --model.path={folder}"
        next_ones = [train, f"oncurve eval {folder} --data scenes:heldout"]
    if "eval/mean_iou/mean" in after:
        next_ones.append(f'oncurve predict IMAGE "the cat" --model {folder} --out boxed.png')
    for label, text in zip(["run folder", "next", *[""] * len(next_ones)], [str(folder), *next_ones], strict=False):
        console.print(f"{label:<12}{text}", highlight=False, markup=False, soft_wrap=True)
