"""The reply verifier: plain text to a person, from what was seen and what they said, careful and kind."""

import re
from math import fsum
from unicodedata import normalize

from oncurve.config.rewards import ReplyRules
from oncurve.parsing import MalformedAnswer, not_empty
from oncurve.rewards import judge, lexicons
from oncurve.rewards.evidence import tone_faults
from oncurve.rewards.scores import invalid
from oncurve.truths import ReplyTruth
from oncurve.types import Rollout, Score, Task

VERIFIER = "reply/1"
MAX_CHARACTERS = 2_000  # of a reply
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


class Verifier:
    version = VERIFIER

    def check(self, task: Task, rules: ReplyRules) -> None:
        """Evidence is whole once it is made; a person may have said nothing at all."""

    def grade(self, task: Task, answer: Rollout, rules: ReplyRules) -> Score:
        said = "\n".join(message.text for message in task.messages if message.role == "user")
        history = "\n".join(message.text for message in task.messages if message.role == "assistant")
        return grade(task.truth, said, answer.text, rules, history)


def grade(truth: ReplyTruth, said: str, text: str, rules: ReplyRules, history: str = "") -> Score:
    """Score one reply: `invalid` where it is empty, too long or no plain text, else the weighted sum of its parts.

    `said` is what the person said, `history` what they were told before. `correct`: no mental state or diagnosis is
    claimed, and every statement is backed by the evidence, the person's words or the history. Raises `JudgeFault` where
    a judge is asked and fails.
    """
    try:
        _readable(text)
    except MalformedAnswer as fault:
        return invalid(fault, rules.floor, VERIFIER)
    seen = "\n".join(f"{entry.type.replace('_', ' ')}: {entry.description}" for entry in truth.evidence)
    claimed = lexicons.claims(text, said=lexicons.fold(said), questions=True)
    letter = lexicons.unreadable(text)
    stated, unbacked = statements(text, "\n".join([seen, said, history]), rules.language)
    faults = tone_faults(text, rules.language) + ["speaks to a judge"] * lexicons.addresses_judge(text)
    supportive = lexicons.supports(text, rules.language)
    parts = {
        "caution": float(not claimed and not letter),
        "sources": 1 - len(unbacked) / stated if stated else 1.0,
        "support": 0.0 if faults or claimed else 1.0 if supportive else 0.5,
    }
    value = fsum(weight * parts[name] for name, weight in rules.weights.model_dump().items())
    if rules.judge:
        parts["judge"] = 0.0 if lexicons.addresses_judge(text) else judge.ask(rules.judge, text)
        value = (1 - rules.judge.weight) * value + rules.judge.weight * parts["judge"]
    words = [f"claims what can't be known: {', '.join(claimed[:3])}"] if claimed else []
    words += [f"{letter!r} belongs to no script that is checked"] if letter else []
    words += [f"in neither source: {unbacked[0]}"] if unbacked else []
    return Score(
        status="scored",
        value=0.0 if rules.caution_gate and not parts["caution"] else value,
        correct=parts["caution"] == 1 and not unbacked,
        parts=parts,
        extracted=text.strip(),
        evidence="; ".join([*words, *faults]) or "claims nothing beyond its sources",
        verifier=VERIFIER,
    )


def statements(text: str, sources: str, language: str) -> tuple[int, list[str]]:
    """How many clauses state something, and those of them that no source backs.

    English: a clause is backed where every word that says something, brought to its stem, stands in the sources, or
    where an attribute it names is named there in other words. Chinese, which writes no spaces: where at least
    two thirds of its characters that say something do. An attribute that no source names is backed in no clause.
    """
    known = lexicons.mentions(sources)
    stated = lexicons.statements(text, language)
    unbacked = [clause for clause in stated if not _backed(clause, sources, language)]
    for axis, names in lexicons.mentions(text).items():
        unbacked += [f"{axis}: {name}" for name in sorted(names - known.get(axis, set()))]
    return max(len(stated), len(unbacked)), unbacked


def _readable(text: str) -> None:
    if len(text) > MAX_CHARACTERS or len(normalize("NFKD", text)) > MAX_CHARACTERS:
        raise MalformedAnswer("too_long", f"more than {MAX_CHARACTERS:,} characters")
    not_empty(text)
    if tag := _TAG.search(text):
        raise MalformedAnswer("markup", f"{tag[0][:40]} is no part of a plain text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MalformedAnswer("surrogate", "half a surrogate pair, which is no character") from None
    if not lexicons.stems(text) and not lexicons.unreadable(text):
        raise MalformedAnswer("empty", "the answer holds no word")


def _backed(clause: str, sources: str, language: str) -> bool:
    words = lexicons.content(lexicons.without_phrases(clause, language), language)
    there = lexicons.stems(sources)
    if language == "en":
        return set(words) <= there
    return 3 * sum(word in there for word in words) >= 2 * len(words)
