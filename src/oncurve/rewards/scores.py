"""Scores that every verifier gives in the same way."""

from oncurve.parsing import MalformedAnswer
from oncurve.types import Score

NOT_GRADED = "not_graded"
"""Reason of a score whose function said None: it has no opinion of this answer, as in TRL."""


def invalid(fault: MalformedAnswer, floor: float, verifier: str) -> Score:
    """The answer broke its format: it gets the floor, and is counted by reason."""
    return Score("invalid", floor, False, {"format": 0.0}, evidence=str(fault), reason=fault.reason, verifier=verifier)


def failed(error: BaseException, verifier: str) -> Score:
    """The verifier itself failed: no value, and no wrong answer."""
    words = f"{type(error).__name__}: {error}"[:500]
    return Score("error", float("nan"), evidence=words, reason="verifier", verifier=verifier)
