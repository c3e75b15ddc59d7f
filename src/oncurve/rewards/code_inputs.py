"""New inputs of a function from given ones: the shape of one of them with its values drawn again.

What all given values at a place share is kept, since the task may well ask for it: their type, their range, the lengths,
that a list is sorted or has no value twice, the letters that a text is made of and where its other characters are.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

NUM_ATTEMPTS = 400
WIDEST = 10**300
Place = tuple[Any, ...]  # argument, then keys of objects; the items of a list share a place


def drawn(inputs: Sequence[list[Any]], seed: str) -> Iterator[list[Any]]:
    """Argument lists unlike the given ones and unlike one another, in an order that the seed fixes. May be few or none.

    Numbers stay in the range of the given ones at their place, and go beyond it, up by half, where nothing new is left.
    """
    rng = random.Random(seed)
    seen = {repr(args) for args in inputs}
    places: dict[Place, list[Any]] = defaultdict(list)
    for args in inputs:
        for index, value in enumerate(args):
            _collect(value, (index,), places)
    for attempt in range(NUM_ATTEMPTS):
        drawing = _Drawing(rng, places, wide=attempt >= NUM_ATTEMPTS // 2)
        args = [drawing.value(value, (index,)) for index, value in enumerate(rng.choice(inputs))]
        if repr(args) not in seen:
            seen.add(repr(args))
            yield args


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
            high = min(high + max(1, (high - low) // 2), max(high, WIDEST))
        if isinstance(value, int):
            return self.rng.randint(low, high)
        decimals = max(len(repr(float(other)).partition(".")[2]) for other in there)
        return min(max(round(self.rng.uniform(low, high), min(decimals, 6)), low), high)

    def _text(self, value: str, there: Sequence[str]) -> str:
        letters = sorted(set("".join(there)))
        alike = {kind: [letter for letter in letters if kind(letter)] for kind in (_digit, str.islower, str.isupper)}
        kinds = (next((alike[kind] for kind in alike if kind(letter)), [letter]) for letter in value)
        return "".join(map(self.rng.choice, kinds))

    def _list(self, value: list[Any], there: Sequence[list[Any]], place: Place) -> list[Any]:
        items = [self.value(item, (*place, None)) for item in value]
        if all(map(_without_repeats, there)) and not _without_repeats(items):
            items = self.rng.sample(value, len(value))
        return sorted(items) if all(map(_in_order, there)) and _comparable(items) else items


def _digit(letter: str) -> bool:
    return "0" <= letter <= "9"


def _without_repeats(items: list[Any]) -> bool:
    return len(set(map(repr, items))) == len(items)


def _in_order(items: list[Any]) -> bool:
    return _comparable(items) and items == sorted(items)


def _comparable(items: list[Any]) -> bool:
    kinds = set(map(type, items))
    return kinds <= {int, float} or kinds <= {str}
