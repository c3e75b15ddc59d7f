"""A run's health afterwards: its rows through the rules that follow it on-line, and the answers that show each verdict."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from oncurve.config.health import HealthConfig
from oncurve.errors import DataError
from oncurve.monitor.watch import Verdict, Watch
from oncurve.record.reader import RunReader
from oncurve.record.schema import AnswerRecord

NUM_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Shown:
    """Answers that show a verdict: what they have in common, and where each is (`oncurve trace RUN --step STEP`)."""

    what: str
    answers: tuple[tuple[int, int, int], ...]  # step, group, answer


def diagnose(rows: Sequence[dict[str, Any]], config: HealthConfig) -> list[Verdict]:
    """All verdicts of a run's rows, those that ended included, in the order in which they began."""
    watch = Watch(config)
    watch.observe(sorted(rows, key=lambda row: row["step"]))
    missing = watch.missing()
    return watch.verdicts + ([missing] if missing else [])


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file of any trainer. Raises `DataError` with the line that is none."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise DataError(f"can't read {path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError:
        raise DataError(f"{path} is no text in UTF-8; a metrics file has one JSON object a line") from None
    return [_row(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]


def _row(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise DataError(f'{where} is no JSON object; a row looks like {{"step": 1, "reward/total/mean": 0.4}}')
    step = row.get("step")
    if isinstance(step, bool) or not isinstance(step, int | float) or step != step // 1:
        raise DataError(f'{where} has no whole number "step", which says what the row belongs to')
    return row | {"step": int(step)}


def answers_that_show(reader: RunReader, verdict: Verdict) -> Shown | None:
    """The recorded answers to look at for a verdict, from its onset to where it ended; None where none tell of it."""
    if verdict.verdict not in _PICK:
        return None
    end = verdict.cleared_step or max(verdict.detected_step, *reader.steps()[-1:])
    steps = [step for step in reader.steps() if verdict.onset_step <= step <= end]
    what, pick = _PICK[verdict.verdict]
    found = [row for step in steps[:: max(1, len(steps) // 50)] for row in reader.step(step)]
    rows = pick(found)[:NUM_SHOWN]
    if not rows:
        return None
    text = f"the {len(rows)} {what} since step {verdict.onset_step}{_in_common([row.text for row in rows])}"
    return Shown(text, tuple((row.step, row.group, row.answer) for row in rows))


def _best_paid(rows: Sequence[AnswerRecord]) -> list[AnswerRecord]:
    return sorted((row for row in rows if row.status == "scored"), key=lambda row: -row.value)


def _longest(rows: Sequence[AnswerRecord]) -> list[AnswerRecord]:
    return sorted(rows, key=lambda row: -len(row.tokens))


def _repeated(rows: Sequence[AnswerRecord]) -> list[AnswerRecord]:
    num = Counter((row.step, row.group, row.text) for row in rows)
    return sorted(rows, key=lambda row: -num[row.step, row.group, row.text])


_PICK = {
    "reward_hacking": ("best-paid answers", _best_paid),
    "auxiliary_dominates": ("best-paid answers", _best_paid),
    "padding": ("longest answers", _longest),
    "looping": ("longest answers", _longest),
    "cap_hit": ("answers cut off first", lambda rows: [row for row in rows if row.stop == "length"]),
    "format": ("answers that don't parse", lambda rows: [row for row in rows if row.status == "invalid"]),
    "verifier_broken": (
        "answers that could not be graded",
        lambda rows: [row for row in rows if row.status == "error"],
    ),
    "duplicates": ("most repeated answers", _repeated),
    "no_diversity": ("most repeated answers", _repeated),
    "entropy_collapse": ("most repeated answers", _repeated),
}


def _in_common(texts: Sequence[str]) -> str:
    """The prefix or suffix that they share, where that says something."""
    if len(set(texts)) == 1:
        return f" are all {_quoted(texts[0])}"
    prefix = _start(texts)
    suffix = _start([text[::-1] for text in texts])[::-1]
    if max(len(prefix), len(suffix)) < 3:
        return f", the first of them {_quoted(texts[0])}"
    which, shared = ("begin", prefix) if len(prefix) >= len(suffix) else ("end", suffix)
    return f" all {which} with {_quoted(shared)}, the first of them {_quoted(texts[0])}"


def _start(texts: Sequence[str]) -> str:
    return "".join(
        letters[0] for letters in takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    )


def _quoted(text: str) -> str:
    return json.dumps(text if len(text) <= 60 else text[:57] + "…", ensure_ascii=False)


def health_of(reader: RunReader) -> HealthConfig:
    """The run's own health section; the defaults for a run that was begun before there was one."""
    return HealthConfig.model_validate(reader.config.get("health") or {})


def exit_status(verdicts: Sequence[Verdict]) -> int:
    """0 for nothing above info, 1 for a warning, 3 for what is critical; ended verdicts count (2 is bad input)."""
    return (0, 1, 3)[max((verdict.rank for verdict in verdicts), default=0)]


ADVICE = {  # what to do about each verdict
    "reward_hacking": "audit the verifier (oncurve audit), read the best-paid answers, go back to before the onset",
    "auxiliary_dominates": "gate by the part instead of adding it, or lower its weight",
    "drift": "raise beta, lower the learning rate, evaluate general ability",
    "too_easy": "take harder tasks, or larger groups",
    "too_hard": "take easier tasks or larger groups, or warm up on written answers",
    "duplicates": "raise the temperature; look at the seeds",
    "padding": "change the loss reduction, add an overlong penalty or a repetition part",
    "cap_hit": "raise sampling.max_new_tokens, or leave truncated answers out of the loss",
    "looping": "add a repetition part; check the stop token",
    "format": "warm up with supervised training first",
    "entropy_collapse": "raise clip_high to 0.28 (DAPO) or the temperature",
    "entropy_explosion": "lower the learning rate or the entropy bonus",
    "gradient_spike": "look at the batch of that step; lower the learning rate",
    "gradient_dead": "look at the groups without signal",
    "stale_logprobs": "compare template, temperature, dtype and weight sync of sampler and trainer",
    "step_too_big": "fewer passes, or a lower learning rate",
    "mismatch": "align temperature and top-p; cap the importance weights at 2",
    "verifier_broken": "mend the verifier, then grade the record again (oncurve rescore)",
    "no_diversity": "raise the temperature; check that seeds differ",
    "insufficient_data": "log more, or evaluate more often",
}
