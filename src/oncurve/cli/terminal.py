"""How a run shows itself: a line a step, with a progress bar on a terminal and plain lines elsewhere."""

import time
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

SHOWN_STAGES = ("sample", "grade", "update", "record")
EVALUATED = {
    "mean IoU": "eval/mean_iou/mean",
    "Acc@0.5": "eval/accuracy/mean",
    "Acc@0.75": "eval/heldout/acc@0.75",
    "Acc@0.95": "eval/heldout/acc@0.95",
    "valid format": "eval/heldout/valid_format",
}


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
        self._num_steps, self._first_step, self._begin = 0, None, 0.0

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
            f"in groups of {s.answers_per_group}; an update takes {config.accumulate_steps} step(s)"
        )
        if check.shared:
            self._say(
                f"prefix    shared: one row a prompt; checked against plain rows: {check.max_logp_error:.0e} nats, "
                f"gradient {check.gradient_error:.0e} relative"
            )
        else:
            self._say(f"prefix    NOT shared, one plain row an answer, which is slower: {check.why_plain}")
        self._num_steps, self._begin = config.num_steps, time.monotonic()
        self._task = self._bar.add_task("steps", total=config.num_steps, left="")

    def stepped(self, step: int, metrics: dict[str, float]) -> None:
        if self._first_step is None:
            self._first_step = step
        done = step - self._first_step + 1
        left = (time.monotonic() - self._begin) / done * (self._num_steps - step)
        self._say(step_line(step, self._num_steps, metrics, left))
        self._bar.update(self._task, completed=step, left=f"{clock(left)} left")

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        found, (low, high) = evaluation.summary, evaluation.intervals["mean_iou"]
        self._say(
            f"held out  after step {step}: mean IoU {found['mean_iou']:.3f} [{low:.3f}, {high:.3f}]  "
            f"Acc@0.5 {found['acc@0.5']:.3f}  valid {found['valid_format']:.3f}  over {found['num_tasks']} tasks"
        )

    def noticed(self, message: str) -> None:
        self._say(f"note      {message}")

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def step_line(step: int, num_steps: int, metrics: dict[str, float], left_s: float) -> str:
    """One line that says how a step went; a dash where nothing was measured."""

    def show(name: str, form: str, missing: str = "-") -> str:
        return form.format(metrics[name]) if name in metrics else missing

    stages = " ".join(
        f"{stage} {metrics[f'time/{stage}_s']:.2f}" for stage in SHOWN_STAGES if f"time/{stage}_s" in metrics
    )
    return (
        f"{step:>{len(str(num_steps))}}/{num_steps}  reward {show('reward/total/mean', '{:.3f}')} ± "
        f"{show('reward/total/std_in_group', '{:.3f}')}  no signal {show('groups/no_signal/share', '{:.2f}')}  "
        f"valid {1 - metrics['answers/invalid/share']:.2f}  len {show('answers/length_tokens/mean', '{:.1f}')}  "
        f"KL {show('policy/kl_reference/mean', '{:.4f}')}  |g| {show('policy/grad_norm/before_clip', '{:.2f}')}  "
        f"{show('throughput/tokens_per_s', '{:,.0f}')} tok/s  {stages} s  left {clock(left_s)}"
    )


def clock(seconds: float) -> str:
    """`1:02:03` or `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def print_outcome(console: Console, folder: Path) -> None:
    """The table at a run's end, held-out before against after, and what to do next."""
    rows = [row for row in RunReader(folder).metrics() if "eval/mean_iou/mean" in row]
    before, after = rows[0], rows[-1]
    table = Table(title=f"Held out, {after['eval/accuracy/num_tasks']} tasks, greedy", title_justify="left")
    for name in ("", f"before (step {before['step']})", f"after (step {after['step']})", "change"):
        table.add_column(name, justify="left" if not name else "right")
    for label, name in EVALUATED.items():
        change = after[name] - before[name]
        table.add_row(label, f"{before[name]:.3f}", f"{after[name]:.3f}", f"{change:+.3f}")
    console.print(table)
    last = max(row["step"] for row in rows)
    for text in (
        f"run folder  {folder}",
        "next        " + f"oncurve trace {folder} --step {max(1, last)}",
        "            " + f"oncurve eval {folder} --data scenes:heldout",
        "            " + f'oncurve predict IMAGE "the cat" --model {folder} --out boxed.png',
    ):
        console.print(text, highlight=False, markup=False, soft_wrap=True)
