"""The evidence verifier: JSON of what can be seen in a picture, and nothing of what can't."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from statistics import fmean
from typing import Annotated, Any
from unicodedata import normalize

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from oncurve.config.rewards import EvidenceRules
from oncurve.errors import BrokenTruth
from oncurve.geometry.boxes import iou
from oncurve.parsing import MalformedAnswer, strict_json
from oncurve.rewards import judge, lexicons
from oncurve.rewards.scores import invalid
from oncurve.truths import CheckedBox, EvidenceTruth, Region, Text
from oncurve.types import Rollout, Score, Task

VERIFIER = "evidence/1"
MATCH_IOU = 0.5
MAX_CHARACTERS = 10_000  # of an answer
MAX_REGIONS = 32
KEY_FAULTS = {
    "extra_forbidden": ("unknown_key", "no such key"),
    "missing": ("missing_key", "this key is missing"),
}


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Observation(_Strict):
    """One thing that is seen. `confidence`: how sure the answer is that there is such a region here."""

    region: CheckedBox
    type: Annotated[Text, Field(max_length=40)]
    description: Annotated[Text, Field(max_length=300)]
    confidence: Annotated[float, Field(ge=0, le=1)]


class Answer(_Strict):
    """The whole answer. `limits`: in words, what can't be known from the picture."""

    observable_evidence: Annotated[
        tuple[Observation, ...],
        BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
        Field(max_length=MAX_REGIONS),
    ]
    mental_state_conclusion: Annotated[str, Field(max_length=600)] | None
    limits: Annotated[Text, Field(max_length=600)] | None = None

    @property
    def strings(self) -> list[str]:
        """Every text in it, whatever its field."""
        own = [self.mental_state_conclusion or "", self.limits or ""]
        return own + [text for seen in self.observable_evidence for text in (seen.type, seen.description)]


class Verifier:
    version = VERIFIER

    def check(self, task: Task, rules: EvidenceRules) -> None:
        """Raises `BrokenTruth` for an attribute without a word, which every description would hold."""
        for region in task.truth.regions:
            if empty := [attribute for attribute in region.attributes if not lexicons.stems(attribute)]:
                raise BrokenTruth(
                    f"truth.regions: attribute {empty[0]!r} of {region.type} holds no English or Chinese word"
                )

    def grade(self, task: Task, answer: Rollout, rules: EvidenceRules) -> Score:
        return grade(task.truth, answer.text, rules)


@dataclass(frozen=True, slots=True)
class Tone:
    """How something is said. `caution`, `limits` and `support` are parts, 0 or 1; `faults` says in words why not 1."""

    caution: float
    limits: float
    support: float
    faults: tuple[str, ...]


def parse(text: str) -> Answer:
    """The answer that a text is. Raises `MalformedAnswer`.

    Reasons: those of `strict_json`, `too_long`, `unknown_key`, `missing_key`, `region` (four numbers in 0..1, corners in
    order) or `schema`.
    """
    if len(text) > MAX_CHARACTERS:
        raise MalformedAnswer("too_long", f"more than {MAX_CHARACTERS:,} characters")
    found = strict_json(text)
    try:
        answer = Answer.model_validate(found)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the answer"
        reason, words = KEY_FAULTS.get(fault["type"], ("schema", fault["msg"].removeprefix("Value error, ")))
        reason = "region" if "region" in fault["loc"] and reason != "missing_key" else reason
        raise MalformedAnswer(reason, f"{where}: {words}"[:200].encode(errors="replace").decode()) from None
    if sum(len(normalize("NFKD", written)) for written in answer.strings) > MAX_CHARACTERS:
        raise MalformedAnswer("too_long", f"more than {MAX_CHARACTERS:,} characters once its ligatures are written out")
    return answer


def grade(truth: EvidenceTruth, text: str, rules: EvidenceRules) -> Score:
    """Score one answer: `invalid` where it breaks the schema, else the weighted sum of its parts.

    The value is 0 where no region is reported and the truth has some, and with `caution_gate` where something is
    claimed that can't be seen. `correct`: caution is full and the F1 of regions at IoU 0.5 is at least 0.5. Raises
    `JudgeFault` where a judge is asked and fails.
    """
    try:
        answer = parse(text)
    except MalformedAnswer as fault:
        return invalid(fault, rules.floor, VERIFIER)
    pairs = match([seen.region for seen in answer.observable_evidence], [region.region for region in truth.regions])
    tone = tone_of(answer, rules.language)
    parts = {"format": 1.0} | _seen(answer, truth, pairs)
    parts |= {"caution": tone.caution, "limits": tone.limits, "support": tone.support}
    parts["calibration"] = calibration(answer, {i for i, _, _ in pairs}, bool(truth.regions))
    value = fsum(weight * parts[name] for name, weight in rules.weights.model_dump().items())
    if rules.judge:
        silenced = lexicons.addresses_judge("\n".join(answer.strings))
        parts["judge"] = 0.0 if silenced else judge.ask(rules.judge, "\n".join(answer.strings))
        value = (1 - rules.judge.weight) * value + rules.judge.weight * parts["judge"]
    nothing_said = truth.regions and not answer.observable_evidence
    found = f"{len(pairs)} of {len(truth.regions)} regions found, {len(answer.observable_evidence)} reported"
    return Score(
        status="scored",
        value=0.0 if nothing_said or (rules.caution_gate and not tone.caution) else value,
        correct=tone.caution == 1 and parts["localisation"] >= 0.5,
        parts=parts,
        extracted=answer.model_dump(mode="json", exclude_unset=True),
        evidence="; ".join([found, *tone.faults]),
        verifier=VERIFIER,
    )


def match(found: Sequence[Any], wanted: Sequence[Any]) -> list[tuple[int, int, float]]:
    """One-to-one pairs `(of found, of wanted, IoU)` with an IoU of at least 0.5: as many as can be, then the closest."""
    if not found or not wanted:
        return []
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    overlaps = np.array([[iou(a, b) for b in wanted] for a in found])
    worth = np.where(overlaps >= MATCH_IOU, min(overlaps.shape) + overlaps, 0.0)
    rows, columns = linear_sum_assignment(worth, maximize=True)
    chosen = zip(rows.tolist(), columns.tolist(), strict=True)
    return [(i, j, float(overlaps[i, j])) for i, j in chosen if overlaps[i, j] >= MATCH_IOU]


def factuality(seen: Observation, region: Region) -> float:
    """Right attributes over those annotated and those that contradict them; half of it under another type.

    A mentioned attribute contradicts where an annotated one lies on the same axis: `up` against `down`. A description
    that holds two of one axis, more than is annotated, commits itself to nothing and gets 0. What the lexicon does not
    know is looked for word by word. Nothing annotated: nothing can be wrong.
    """
    mentioned = lexicons.mentions(seen.description)
    known = [lexicons.attribute_of(attribute) for attribute in region.attributes]
    stated = {place for place in known if place}
    if any(len(names) > 1 and any((axis, name) not in stated for name in names) for axis, names in mentioned.items()):
        return 0.0
    right, axes = 0, {axis for axis, _ in filter(None, known)}
    for attribute, place in zip(region.attributes, known, strict=True):
        right += place[1] in mentioned.get(place[0], ()) if place else _holds(seen.description, attribute)
    wrong = sum(len(mentioned.get(axis, set()) - {name for _, name in filter(None, known)}) for axis in axes)
    share = right / (len(region.attributes) + wrong) if region.attributes else 1.0
    return share if _same_type(seen.type, region.type) else share / 2


def calibration(answer: Answer, matched: set[int], expected: bool) -> float:
    """1 less the Brier score of the confidences against which regions are there; of no region 1 where none is expected."""
    observations = answer.observable_evidence
    if not observations:
        return float(not expected)
    return 1 - fmean((seen.confidence - (i in matched)) ** 2 for i, seen in enumerate(observations))


def tone_of(answer: Answer, language: str) -> Tone:
    """Caution, limits and support of every text in the answer. An empty report has nothing that it need limit."""
    text = "\n".join(answer.strings)
    faults = []
    if claimed := lexicons.claims(text):
        faults.append(f"claims what can't be seen: {', '.join(claimed[:3])}")
    if answer.mental_state_conclusion is not None:
        faults.append("mental_state_conclusion is not null")
    if letter := lexicons.unreadable(text):
        faults.append(f"{letter!r} belongs to no script that is checked")
    cautious = not faults
    plain = not lexicons.addresses_judge(text)
    limited = not answer.observable_evidence or lexicons.admits(answer.limits or "", language)
    written = "\n".join([answer.limits or "", *(seen.description for seen in answer.observable_evidence)])
    faults += tone_faults(written, language) + ["speaks to a judge"] * (not plain)
    return Tone(float(cautious), float(cautious and plain and limited), float(not faults), tuple(faults))


def tone_faults(text: str, language: str) -> list[str]:
    """What makes a text other than plain and gentle: judging words, repetition, another language."""
    faults = [f"judges: {word}" for word in lexicons.judges(text)[:1]]
    faults += ["repeats itself"] * lexicons.repeats(text)
    return faults + [f"is not in {language}"] * (not lexicons.in_language(text, language))


def _seen(answer: Answer, truth: EvidenceTruth, pairs: list[tuple[int, int, float]]) -> dict[str, float]:
    found, wanted = answer.observable_evidence, truth.regions
    if not found and not wanted:
        return {"localisation": 1.0, "grounding": 1.0, "factuality": 1.0}
    return {
        "localisation": 2 * len(pairs) / (len(found) + len(wanted)),
        "grounding": fmean(overlap for _, _, overlap in pairs) if pairs else 0.0,
        "factuality": fmean(factuality(found[i], wanted[j]) for i, j, _ in pairs) if pairs else 0.0,
    }


def _holds(description: str, attribute: str) -> bool:
    wanted, there = (lexicons.stems(text) for text in (attribute, description))
    return wanted <= there


def _same_type(a: str, b: str) -> bool:
    first, second = (set(lexicons.fold(text.replace("_", " ")).split()) for text in (a, b))
    return first == second or bool(first & second - {"region", "area", "part"})
