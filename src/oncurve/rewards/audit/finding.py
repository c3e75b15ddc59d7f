"""What an audit says."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from oncurve.types import Score


@dataclass(frozen=True, slots=True)
class Example:
    """One answer in full, and what it got."""

    task_id: str
    text: str
    score: Score


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one exploit, or of one check, on the tasks of one kind."""

    exploit: str
    kind: str
    does: str  # the attack or the check, in words
    right: str  # what a sound reward says, in words
    applies: bool = True
    verdict: str = ""  # what the worst attack got
    ok: bool = True
    example: Example | None = None  # the worst attack
    num_attacks: int = 0  # or answers, or pairs of parts
    num_wrong: int = 0  # verdicts among them

    def row(self) -> dict[str, Any]:
        """As `oncurve audit --json` prints it."""
        named = {name: getattr(self, name) for name in ("exploit", "kind", "applies", "verdict", "right", "ok")}
        return named | {"example": self.example and _plain(self.example)}


def _plain(example: Example) -> dict[str, Any]:
    score = asdict(replace(example.score, parts=dict(example.score.parts)))
    if not math.isfinite(example.score.value):
        score["value"] = None
    return {"task_id": example.task_id, "text": example.text, "score": score}


def words(score: Score) -> str:
    """Example: `scored 0.0256, not correct`, `invalid (text_around)`, `error (timeout)`."""
    if score.status != "scored":
        return f"{score.status} ({score.reason})"
    return f"scored {score.value:.4g}" + {True: ", correct", False: ", not correct", None: ""}[score.correct]
