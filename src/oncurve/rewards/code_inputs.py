"""New inputs of a function from given ones: the shape of one of them with its values drawn again.

What all given values at a place share is kept, since the task may well ask for it: their type and range, the lengths,
that a list is sorted or has no value twice, the words that every text has, the kinds of letters and where they stand.
Many are given values once more, or their neighbours, since that is where functions differ.
"""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

NUM_ATTEMPTS = 400
BRACKETS = set("()[]{}<>")
Place = tuple[Any, ...]  # argument, then keys of objects; the items of a list share a place


def drawn(inputs: Sequence[list[Any]], seed: str) -> Iterator[list[Any]]:
    """Argument lists unlike the given ones and unlike one another, in an order that the seed fixes. May be few or none.

    Numbers stay in the range of the given ones at their place, and go beyond it by half, but not to another sign, where
    nothing new is left. A list that is the only argument may be cut, down to the length of the shortest.
    """
    rng = random.Random(seed)
    seen = {repr(args) for args in inputs}
    places: dict[Place, list[Any]] = defaultdict(list)
    for args in inputs:
        for index, value in enumerate(args):
            _collect(value, (index,), places)
    flat = all(len(args) == 1 and isinstance(args[0], list) for args in inputs) and not any(
        isinstance(item, list) for args in inputs for item in args[0]
    )
    shortest = min(len(args[0]) for args in inputs) if flat else None
    for attempt in range(NUM_ATTEMPTS):
        drawing = _Drawing(rng, places, wide=attempt >= NUM_ATTEMPTS // 2)
        args = [drawing.value(value, (index,)) for index, value in enumerate(rng.choice(inputs))]
        if shortest is not None:
            args[0] = args[0][: rng.randint(shortest, len(args[0]))]
        if repr(args) not in seen:
            seen.add(repr(args))
            yield args


def spread(tests: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """`count` of the tests, with as many different results as there are: in turn one of each."""
    before: Counter[str] = Counter()
    turns = []
    for test in tests:
        result = repr(test["result"])
        turns.append(before[result])
        before[result] += 1
    return [tests[i] for i in sorted(range(len(tests)), key=turns.__getitem__)[:count]]


def _collect(value: Any, place: Place, places: dict[Place, list[Any]]) -> None:
    places[place].append(value)
    if isinstance(value, list):
        for item in value:
            _collect(item, (*place, None), places)
    elif isinstance(value, dict):
        for key, item in value.items():
            _collect(item, (*place, key), places)


class _Drawing:
    def __init__(self, rng: random.Random, places: dict[Place, list[Any]], wide: bool):
        self.rng, self.places, self.wide = rng, places, wide

    def value(self, value: Any, place: Place) -> Any:
        there = [other for other in self.places[place] if type(other) is type(value)]
        if isinstance(value, bool):
            return self.rng.choice((False, True)) if len(set(there)) == 2 or self.wide else value
        if isinstance(value, int | float):
            return self._number(value, there)
        if isinstance(value, str):
            return self._text(value, there)
        if isinstance(value, list):
            return self._list(value, there, place)
        if isinstance(value, dict):
            return {key: self.value(item, (*place, key)) for key, item in value.items()}
        return value

    def _number(self, value: int | float, there: Sequence[int | float]) -> int | float:
        low, high = min(there), max(there)
        if self.wide:
            more = max(1, (high - low) // 2)
            low, high = _beyond(low, -more), _beyond(high, more)
        given, fresh = self.rng.choice(there), self.rng.random()
        if isinstance(value, int):
            return (
                min(max(given + self.rng.choice((-1, 0, 1)), low), high) if fresh < 0.5 else self.rng.randint(low, high)
            )
        if fresh < 0.4 or not math.isfinite(high - low):
            return given
        decimals = max(len(repr(float(other)).partition(".")[2]) for other in there) + (2 if fresh > 0.6 else 0)
        return min(max(round(self.rng.uniform(low, high), min(decimals, 8)), low), high)

    def _text(self, value: str, there: Sequence[str]) -> str:
        words = [set(text.split(" ")) for text in there]
        kept = set.intersection(*words) if len(set(there)) > 1 else set()
        others = sorted(set.union(*words) - kept - {""})
        letters = sorted(set("".join(there)))
        whole = " " in value and not BRACKETS & set(value) and self.rng.random() < 0.5

        def word_for(word: str) -> str:
            if word in kept or not word:
                return word
            return self.rng.choice(others) if whole else "".join(self._letter(letter, letters) for letter in word)

        return " ".join(map(word_for, value.split(" ")))

    def _letter(self, letter: str, letters: Sequence[str]) -> str:
        kind = next((kind for kind in (_digit, str.islower, str.isupper) if kind(letter)), None)
        return self.rng.choice([other for other in letters if kind(other)]) if kind else letter

    def _list(self, value: list[Any], there: Sequence[list[Any]], place: Place) -> list[Any]:
        items = [self.value(item, (*place, None)) for item in value]
        if all(map(_without_repeats, there)) and not _without_repeats(items):
            items = self.rng.sample(value, len(value))
        return sorted(items) if all(map(_in_order, there)) and _comparable(items) else items


def _beyond(value: int | float, by: int | float) -> int | float:
    """`value + by`, but not to another sign, and no nearer to 0 than 1 where it was not."""
    if value > 0:
        return max(value + by, min(value, 1))
    return min(value + by, max(value, -1)) if value < 0 else value


def _digit(letter: str) -> bool:
    return "0" <= letter <= "9"


def _without_repeats(items: list[Any]) -> bool:
    return len(set(map(repr, items))) == len(items)


def _in_order(items: list[Any]) -> bool:
    return _comparable(items) and items == sorted(items)


def _comparable(items: list[Any]) -> bool:
    kinds = set(map(type, items))
    return kinds <= {int, float} or kinds <= {str}
