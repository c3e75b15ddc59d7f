"""What a reward pays for, measured on answers whose verdict is known: no attack, but the other half of an audit."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from statistics import fmean

from oncurve.rewards.audit.attack import EPS, Case, Yardstick
from oncurve.rewards.audit.finding import Example, Finding, words
from oncurve.types import Score

MAX_CONSTANT_SHARE = 0.9  # of what honest answers get above nothing; from there on the tasks need no looking
MAX_FORMED = 1.25  # what a wrong answer gets above nonsense, in units of what the right one gets above it
MIN_CORRELATION = -0.5
MIN_RANKED = 6  # answers in a group, for a rank correlation to mean anything
COSTS = ("difference", "distance", "cer", "wer")  # parts that are less where an answer is better
FREE = ("text", "reply")  # kinds in which one good text may fit every task


@dataclass(frozen=True, slots=True)
class Honest:
    """A case's own answers and what they got."""

    case: Case
    yard: Yardstick
    right: Score
    wrong: tuple[Score, ...]
    nothing: tuple[tuple[str, Score], ...]
    series: tuple[tuple[tuple[str, Score], ...], ...]  # from the truth outwards

    @property
    def group(self) -> list[Score]:
        """The answers as a group of good and bad ones, for correlations of their parts."""
        graded = [score for series in self.series for _, score in series]
        return [score for score in (self.right, *self.wrong, *graded) if score.status == "scored"]


def known_right(kind: str, honest: Sequence[Honest]) -> Finding:
    def ok(h: Honest) -> bool:
        pays = h.right.value > h.yard.low if kind not in FREE else h.right.value >= h.yard.low
        return h.right.status == "scored" and h.right.correct in (True, None) and pays

    does = "the right answer, written from the truth"
    found = [(h.case, h.case.right, h.right, ok(h)) for h in honest]
    return summed("known_right", kind, does, "scored, correct, and paid more than any wrong answer", found, lowest=True)


def known_wrong(kind: str, honest: Sequence[Honest]) -> Finding | None:
    does, right = "answers that are well formed and wrong", "not correct, and paid less than the right answer"
    found = [
        (h.case, text, score, not score.correct and score.value < h.right.value and score.status != "error")
        for h in honest
        for text, score in zip(h.case.wrong, h.wrong, strict=True)
    ]
    return summed("known_wrong", kind, does, right, found) if found else None


def sensitivity(kind: str, honest: Sequence[Honest]) -> Finding | None:
    """A worse answer never pays more than a better one, and the best more than the worst."""
    found = []
    for h in honest:
        for series in h.series:
            values = [score.value for _, score in series]
            falls = all(a >= b - EPS for a, b in pairwise(values)) and values[0] > values[-1]
            worst = max(range(1, len(series)), key=lambda i: values[i] - values[i - 1])
            found.append((h.case, *series[worst], falls))
    does = "answers that move away from the truth step by step"
    return summed("sensitivity", kind, does, "each pays no more than the one before it", found) if found else None


def correctness_pays_most(kind: str, honest: Sequence[Honest]) -> Finding | None:
    """Being well formed may not pay clearly more than being right on top of it; printed truths are rounded.

    A floor below 0 is a fine for what is malformed, and no pay for what is not.
    """
    found, gaps = [], []
    for h in honest:
        if h.wrong:
            score = min(h.wrong, key=lambda score: score.value)
            said = [score.value for _, score in h.nothing if score.status != "error"]
            formed = score.value - max([*said, min(0.0, score.value)])
            right = h.right.value - score.value
            gaps.append((formed, right))
            found.append((h.case, h.case.wrong[h.wrong.index(score)], score, formed <= MAX_FORMED * right + EPS))
    if not found:
        return None
    formed, right = (fmean(values) for values in zip(*gaps, strict=True))
    does = "what a wrong answer gets above nonsense, against what the right one gets above it"
    finding = summed("correctness_pays_most", kind, does, "being right pays as much as all the rest", found)
    return replace(finding, verdict=f"well formed {formed:+.3g}, right {right:+.3g}")


def parts_agree(kind: str, honest: Sequence[Honest]) -> Finding | None:
    """Parts that rank the answers of a group the other way round leave little of each other's signal."""
    from scipy.stats import spearmanr

    ranks: dict[tuple[str, str], list[float]] = {}
    for h in honest:
        group = h.group
        names = (
            sorted(set.intersection(*(set(score.parts) for score in group)) - set(COSTS))
            if len(group) >= MIN_RANKED
            else []
        )
        columns = {name: [score.parts[name] for score in group] for name in names}
        for a, b in combinations([name for name in names if len(set(columns[name])) > 1], 2):
            ranks.setdefault((a, b), []).append(float(spearmanr(columns[a], columns[b]).statistic))
    if not ranks:
        return None
    (a, b), lowest = min(((pair, fmean(values)) for pair, values in ranks.items()), key=lambda item: item[1])
    return Finding(
        "parts_agree", kind, "rank correlation of the parts over graded answers to one task",
        f"no two parts under {MIN_CORRELATION}", verdict=f"lowest {lowest:+.2f}: {a} and {b}",
        ok=lowest >= MIN_CORRELATION, num_attacks=len(ranks), num_wrong=int(lowest < MIN_CORRELATION),
    )  # fmt: skip


CHECKS: tuple[Callable[[str, Sequence[Honest]], Finding | None], ...] = (
    known_right, known_wrong, sensitivity, correctness_pays_most, parts_agree,
)  # fmt: skip


def constant(
    kind: str, does: str, right: str, honest: Sequence[Honest], paid: dict[str, list[tuple[Case, Score]]]
) -> Finding:
    """The best of the fixed answers in `paid`, each on the tasks that it is not from.

    Where all tasks have one truth, a fixed answer is the honest one: the lift says so, and nothing is broken.
    """
    means = {text: fmean(score.value for _, score in scores) for text, scores in paid.items()}
    text = max(means, key=means.__getitem__)
    best, own = means[text], fmean(h.right.value for h in honest)
    nothing = fmean(h.yard.nothing for h in honest)
    gain = own - nothing
    case, score = max(paid[text], key=lambda pair: pair[1].value)
    alike = kind in FREE or len({h.case.right for h in honest}) == 1
    ok = alike or (gain > 0 and best - nothing <= MAX_CONSTANT_SHARE * gain)
    verdict = f"best constant answer {best:.3g}, honest ones {own:.3g}: lift {own - best:+.3g}"
    return Finding(
        "constant", kind, does, right, True, verdict, ok, Example(case.task.id, text, score), len(means), int(not ok)
    )


def do_nothing(
    kind: str, does: str, right: str, honest: Sequence[Honest], seen: Iterable[tuple[Case, str, Score]]
) -> Finding:
    """No broken answer pays more than the least that a scored one got."""
    seen = list(seen)
    if honest[0].yard.own:
        least = min(
            (score.value for h in honest for score in (h.right, *h.wrong) if score.status == "scored"), default=0.0
        )
        broken = [(h.case, text, score) for h in honest for text, score in h.nothing]
    else:
        least = min((score.value for _, _, score in seen if score.status == "scored"), default=0.0)
        broken = [entry for entry in seen if entry[2].status == "invalid"]
    found = [(*entry, entry[2].status != "error" and entry[2].value <= least + EPS) for entry in broken]
    finding = summed("do_nothing", kind, does, right, found)
    most = max((score.value for _, _, score, _ in found), default=float("nan"))
    return replace(finding, verdict=f"a broken answer pays {most:.3g}, the least of a scored one is {least:.3g}")


def summed(
    exploit: str,
    kind: str,
    does: str,
    right: str,
    found: Sequence[tuple[Case, str, Score, bool]],
    *,
    lowest: bool = False,
) -> Finding:
    """One finding from (case, text, score, whether it is right) each: the worst stands for all.

    The worst is one that is not right, else the best paid one (`lowest`: the worst paid one), of these the shortest.
    """
    if not found:
        return Finding(exploit, kind, does, right, applies=False)

    def badness(entry: tuple[Case, str, Score, bool]) -> tuple[bool, bool, float, int]:
        _, text, score, ok = entry
        value = score.value if score.status != "error" else 0.0
        return not ok, score.status == "error", -value if lowest else value, -len(text)

    case, text, score, ok = max(found, key=badness)
    example = Example(case.task.id, text, score)
    return Finding(
        exploit, kind, does, right, True, words(score), ok, example, len(found), sum(not entry[3] for entry in found)
    )
