"""Built-in scenes: seeded pictures of several named things on varied backgrounds, with a phrase and its exact box."""

import random
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
from PIL import Image

GRID = 64  # corners lie on multiples of 1/64 of the picture, so that a truth box is exact in pixels at 64, 128, 256, …
MIN_SIDE, MAX_SIDE = 14, 30  # of a thing's longer side, in grid units
MAX_COVERED = 0.10  # share of the smaller thing that another may hide
SHARE_OF_TWINS = 0.3  # scenes in which the phrase has to tell two things of one kind apart
MIN_APART = 12  # grid units between two centres before "left" or "top" is said
MIN_AREA_RATIO = 1.5  # between two areas before "largest" is said

GridBox = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing in a scene. Example: `Thing("cat", (4, 10, 24, 32))`, corners in 1/64 of the picture."""

    name: str
    grid_box: GridBox

    @property
    def area(self) -> int:
        x1, y1, x2, y2 = self.grid_box
        return (x2 - x1) * (y2 - y1)

    @property
    def center(self) -> tuple[float, float]:
        x1, y1, x2, y2 = self.grid_box
        return (x1 + x2) / 2, (y1 + y2) / 2


@dataclass(frozen=True, slots=True)
class Scene:
    """Things (the first is the one meant), the phrase that names it, and the key of its background."""

    things: tuple[Thing, ...]
    phrase: str
    key: str

    @property
    def box(self) -> tuple[float, float, float, float]:
        """The truth, `x1, y1, x2, y2` in 0..1."""
        x1, y1, x2, y2 = (corner / GRID for corner in self.things[0].grid_box)
        return x1, y1, x2, y2


@cache
def sprite(name: str) -> Image.Image:
    """The sprite `name` as RGBA, at most 64 px on its longer side, cropped to what is visible."""
    with (resources.files(__package__) / "sprites" / f"{name}.png").open("rb") as file:
        return Image.open(file).convert("RGBA")


@cache
def names() -> tuple[str, ...]:
    """The names of all things that a scene can hold, in alphabetical order."""
    files = (resources.files(__package__) / "sprites").iterdir()
    return tuple(sorted(file.name.removesuffix(".png") for file in files if file.name.endswith(".png")))


def make_scene(split: str, index: int, max_things: int = 3) -> Scene:
    """Scene `index` of `split`. The same arguments always give the same scene; two splits share no random stream."""
    key = f"oncurve scenes/{split}/{max_things}/{index}"
    rng = random.Random(key)
    count = rng.randint(min(2, max_things), max_things)
    kinds = rng.sample(names(), count)
    twins = count > 1 and rng.random() < SHARE_OF_TWINS
    if twins:
        kinds[1] = kinds[0]
    while True:
        things = _place(rng, kinds)
        phrase = _contrast(rng, *things[:2]) if things and twins else f"the {kinds[0]}"
        if things and phrase:
            return Scene(things, phrase, key)


def draw_scene(scene: Scene, size_px: int = GRID) -> Image.Image:
    """The scene as an RGB picture of `size_px` x `size_px` pixels."""
    picture = _background(scene.key, size_px)
    for thing in reversed(scene.things):  # the one meant is in front
        x1, y1, x2, y2 = (round(corner * size_px / GRID) for corner in thing.grid_box)
        patch = sprite(thing.name).resize((x2 - x1, y2 - y1), Image.Resampling.BILINEAR)
        picture.paste(patch, (x1, y1), patch)
    return picture


def _place(rng: random.Random, kinds: list[str]) -> tuple[Thing, ...] | None:
    things: list[Thing] = []
    for kind in kinds:
        for _ in range(30):
            longer, (width, height) = rng.randint(MIN_SIDE, MAX_SIDE), sprite(kind).size
            w, h = (max(6, round(longer * side / max(width, height))) for side in (width, height))
            x, y = rng.randint(0, GRID - w), rng.randint(0, GRID - h)
            thing = Thing(kind, (x, y, x + w, y + h))
            if all(_covered(thing, other) <= MAX_COVERED for other in things):
                things.append(thing)
                break
        else:
            return None
    return tuple(things)


def _covered(a: Thing, b: Thing) -> float:
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = a.grid_box, b.grid_box
    width, height = min(ax2, bx2) - max(ax1, bx1), min(ay2, by2) - max(ay1, by1)
    return max(0, width) * max(0, height) / min(a.area, b.area)


def _contrast(rng: random.Random, meant: Thing, other: Thing) -> str | None:
    """A phrase that is true of `meant` and clearly not of `other`, or None where they are too alike."""
    (x, y), (other_x, other_y) = meant.center, other.center
    words = []
    if abs(x - other_x) >= MIN_APART:
        words.append("left" if x < other_x else "right")
    if abs(y - other_y) >= MIN_APART:
        words.append("top" if y < other_y else "bottom")
    if max(meant.area, other.area) >= MIN_AREA_RATIO * min(meant.area, other.area):
        words.append("largest" if meant.area > other.area else "smallest")
    return f"the {rng.choice(words)} {meant.name}" if words else None


def _background(key: str, size_px: int) -> Image.Image:
    """A tinted gradient with soft blotches and fine grain; the same key gives the same picture at every size."""
    rng = np.random.default_rng(np.frombuffer(key.encode(), np.uint8))
    tint = rng.uniform(80, 200) + rng.uniform(-30, 30, (1, 1, 3))
    corners = tint + rng.normal(0, 20, (2, 2, 1))
    blotches = rng.normal(0, 14, (5, 5, 1))
    grain = rng.normal(0, 6, (GRID, GRID, 1))
    coarse = Image.fromarray(np.clip(corners, 0, 255).astype(np.uint8)).resize((5, 5), Image.Resampling.BILINEAR)
    soft = np.clip(np.asarray(coarse) + blotches, 0, 255).astype(np.uint8)
    fine = np.asarray(Image.fromarray(soft).resize((GRID, GRID), Image.Resampling.BICUBIC)) + grain
    picture = Image.fromarray(np.clip(fine, 0, 255).astype(np.uint8))
    return picture if size_px == GRID else picture.resize((size_px, size_px), Image.Resampling.BICUBIC)
