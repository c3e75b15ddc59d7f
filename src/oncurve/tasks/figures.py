"""Built-in figures: seeded drawings of a person whose head, arms and posture are known, for evidence of what can be seen.

The drawings are made of shapes. They show no real person, and say nothing of how anyone feels.
"""

import math
import random
from dataclasses import dataclass

from PIL import Image, ImageDraw

from oncurve.truths import Box, EvidenceTruth, Region

SHARE_EMPTY = 0.05  # pictures without a person, whose right report is empty
OVERSAMPLING = 4
SKINS = ("#f6d3b5", "#e0ac86", "#b97a56", "#8a5536", "#5b3823")
HAIRS = ("#2b1d16", "#5a3a1e", "#a06a35", "#c9c4bd", "#772f1a")
CLOTHES = ("#3a6ea5", "#b5483c", "#4f8a4a", "#7d5ba6", "#d08c2e", "#4a5460", "#2f8f8f")
CHAIR = "#6b4a2f"
TROUSERS = ("#27323f", "#4b4034", "#5d6673", "#33483a")

WORDS = {
    "en": {
        "down": "the head points down",
        "up": "the head points up",
        "level": "the head is level",
        "turned_away": "the person is turned away",
        "crossed": "the arms are crossed",
        "hanging": "the arms hang at the sides",
        "raised": "the arms are raised",
        "sitting": "the person is sitting",
        "standing": "the person is standing",
    },
    "zh": {
        "down": "头部朝下",
        "up": "头部朝上",
        "level": "头部水平",
        "turned_away": "人物背对画面",
        "crossed": "双臂交叉",
        "hanging": "手臂垂在身体两侧",
        "raised": "双臂举起",
        "sitting": "人物坐着",
        "standing": "人物站着",
    },
}
LIMITS = {"en": "what the person feels cannot be known from a picture", "zh": "仅凭一张图片无法判断这个人的内心感受"}
PROMPTS = {
    "en": (
        'Report what can be seen of the person as JSON: {"observable_evidence": [{"region": [x1, y1, x2, y2], "type": "…", '
        '"description": "…", "confidence": 0.9}], "mental_state_conclusion": null, "limits": "…"}. Regions are in 0..1 of '
        "the picture, their types face_region, head_region, arms_region and body_posture. Describe how the head is held, "
        "the arms, and whether the person sits or stands. Conclude nothing about feelings; under limits, say what cannot "
        "be known. Without a person the list is empty."
    ),
    "zh": (
        '用 JSON 报告图中人物可以看到的内容: {"observable_evidence": [{"region": [x1, y1, x2, y2], "type": "…", '
        '"description": "…", "confidence": 0.9}], "mental_state_conclusion": null, "limits": "…"}。region 是 0 到 1 的坐标。'
        "type 为 face_region、head_region、arms_region 或 body_posture。描述头部、手臂以及人物是坐还是站。不要推断内心。"
        "在 limits 中说明无法知道什么。没有人物时列表为空。"
    ),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A person, or nobody where `posture` is "". `x` is the middle, `top` and `height` those of the body, 0..1."""

    posture: str  # sitting, standing
    arms: str  # crossed, hanging, raised
    head: str  # down, up, level; turned_away where the figure is seen from behind
    x: float
    top: float
    height: float
    side: int  # which way the legs of a sitting figure point: -1 left, 1 right
    colors: tuple[str, str, str, str]  # skin, hair, clothes, trousers
    ground: tuple[int, int, int]

    @property
    def truth(self) -> EvidenceTruth:
        """The regions, rounded to two decimals."""
        if not self.posture:
            return EvidenceTruth(())
        head, arms, body = (_rounded(box) for box in self._boxes())
        kind = "head_region" if self.head == "turned_away" else "face_region"
        return EvidenceTruth(
            (
                Region(head, kind, (self.head,)),
                Region(arms, "arms_region", (self.arms,)),
                Region(body, "body_posture", (self.posture,)),
            )
        )

    @property
    def radius(self) -> float:
        return 0.11 * self.height

    @property
    def head_center(self) -> tuple[float, float]:
        return self.x, self.top + self.radius + (0.04 * self.height if self.head == "down" else 0)

    @property
    def hips(self) -> float:
        """How far down the torso reaches."""
        return self.top + (0.56 if self.posture == "standing" else 0.62) * self.height

    def limbs(self) -> list[list[tuple[float, float]]]:
        """Each arm from its shoulder over the elbow to the hand."""
        h, y = self.height, self.top + 0.28 * self.height
        turns = {
            "hanging": ((0.19, 0.16), (0.18, 0.32)),
            "crossed": ((0.20, 0.13), (-0.09, 0.09)),
            "raised": ((0.24, -0.10), (0.22, -0.30)),
        }
        return [
            [(self.x + s * 0.12 * h, y), *((self.x + s * dx * h, y + dy * h) for dx, dy in turns[self.arms])]
            for s in (-1, 1)
        ]

    def legs(self) -> list[list[tuple[float, float]]]:
        """Each leg from the hip over the knee to the foot."""
        h, bottom = self.height, self.top + self.height
        if self.posture == "standing":
            return [[(self.x + s * 0.06 * h, self.hips), (self.x + s * 0.08 * h, bottom)] for s in (-1, 1)]
        knee = self.x + self.side * 0.3 * h
        return [
            [(self.x, self.hips - shift), (knee + shift, self.hips - shift), (knee + shift, bottom)]
            for shift in (0.0, 0.05 * h)
        ]

    def _boxes(self) -> tuple[Box, Box, Box]:
        (x, y), r, margin = self.head_center, self.radius, 0.045 * self.height
        head = x - r, y - r, x + r, y + r
        arms = _around([at for limb in self.limbs() for at in limb], margin)
        legs = _around([at for leg in self.legs() for at in leg], margin)
        torso = self.x - 0.15 * self.height, self.top, self.x + 0.15 * self.height, self.hips
        x1, y1, x2, y2 = zip(head, arms, legs, torso, strict=True)
        return head, arms, (min(x1), min(y1), max(x2), max(y2))


def make_figure(split: str, index: int) -> Figure:
    """Figure `index` of `split`. The same arguments always give the same one; two splits share no random stream."""
    rng = random.Random(f"oncurve figures/{split}/{index}")
    nobody, away = rng.random() < SHARE_EMPTY, rng.random() < 0.2
    posture = rng.choice(("sitting", "standing"))
    arms = rng.choice(("hanging", "raised") if away else ("crossed", "hanging", "raised"))
    head = "turned_away" if away else rng.choice(("down", "up", "level"))
    height = rng.uniform(0.5, 0.72)
    above = 0.08 * height if arms == "raised" else 0.0  # raised hands reach over the head
    reach = 0.42 * height if posture == "sitting" else 0.3 * height
    return Figure(
        "" if nobody else posture,
        arms,
        head,
        rng.uniform(reach, 1 - reach),
        rng.uniform(0.03 + above, 0.95 - height),
        height,
        rng.choice((-1, 1)),
        tuple(rng.choice(colors) for colors in (SKINS, HAIRS, CLOTHES, TROUSERS)),
        tuple(rng.randint(150, 235) for _ in range(3)),
    )


def draw_figure(figure: Figure, size_px: int) -> Image.Image:
    """The figure as an RGB picture of `size_px` x `size_px` pixels."""
    side = size_px * OVERSAMPLING
    picture = Image.new("RGB", (side, side), figure.ground)
    pen = ImageDraw.Draw(picture)
    floor = tuple(max(0, channel - 45) for channel in figure.ground)
    bottom = figure.top + figure.height
    pen.rectangle((0, (bottom - 0.06) * side, side, side), fill=floor)
    if figure.posture:
        _Drawing(figure, pen, side).draw()
    return picture.resize((size_px, size_px), Image.Resampling.BOX)


def report(truth: EvidenceTruth, language: str, confidence: float = 0.9) -> str:
    """The report that an annotator of these figures would write: compact JSON, numbers to two decimals."""
    seen = ",".join(
        f'{{"region":[{",".join(f"{corner:.2f}" for corner in region.region)}],"type":"{region.type}",'
        f'"description":"{", ".join(WORDS[language][attribute] for attribute in region.attributes)}",'
        f'"confidence":{confidence:.2f}}}'
        for region in truth.regions
    )
    return f'{{"observable_evidence":[{seen}],"mental_state_conclusion":null,"limits":"{LIMITS[language]}"}}'


@dataclass(frozen=True, slots=True)
class _Drawing:
    figure: Figure
    pen: ImageDraw.ImageDraw
    side: int

    def draw(self) -> None:
        f = self.figure
        skin, hair, clothes, trousers = f.colors
        if f.posture == "sitting":
            back, front = f.x - f.side * 0.17 * f.height, f.x + f.side * 0.2 * f.height
            seat = f.hips + 0.06 * f.height
            self._line([(back, f.top + 0.3 * f.height), (back, f.top + f.height)], CHAIR, 0.04)
            self._line([(back, seat), (front, seat)], CHAIR, 0.04)
        for leg in f.legs():
            self._line(leg, trousers, 0.085)
        away = f.head == "turned_away"
        if away:
            self._arms(clothes, skin)
        self._box((f.x - 0.14 * f.height, f.top + 0.23 * f.height, f.x + 0.14 * f.height, f.hips), clothes)
        if not away:
            self._line([(f.x, f.top + 0.26 * f.height), (f.x, f.hips)], "#f2efe6", 0.015)
        self._head(skin, hair)
        if not away:
            self._arms(clothes, skin)

    def _head(self, skin: str, hair: str) -> None:
        f = self.figure
        (x, y), r = f.head_center, f.radius
        self._ellipse((x - r, y - r, x + r, y + r), hair)
        if f.head == "turned_away":
            return
        shift = {"down": 0.42, "up": -0.42, "level": 0.0}[f.head] * r
        self._ellipse((x - 0.82 * r, y - 0.62 * r + max(0.0, shift), x + 0.82 * r, y + r), skin)
        for s in (-1, 1):
            self._ellipse(
                (x + s * 0.36 * r - 0.12 * r, y - 0.12 * r + shift, x + s * 0.36 * r + 0.12 * r, y + 0.12 * r + shift),
                "#202020",
            )
        mouth = y + 0.45 * r + 0.6 * shift  # always the same straight line
        self._line([(x - 0.25 * r, mouth), (x + 0.25 * r, mouth)], "#7a3b34", 0.012)

    def _arms(self, clothes: str, skin: str) -> None:
        darker = "#" + "".join(f"{int(clothes[i : i + 2], 16) * 3 // 4:02x}" for i in (1, 3, 5))
        for limb in self.figure.limbs():
            self._line(limb, darker, 0.07)
            x, y = limb[-1]
            r = 0.045 * self.figure.height
            self._ellipse((x - r, y - r, x + r, y + r), skin)

    def _line(self, points: list[tuple[float, float]], color: str, width: float) -> None:
        """`width` is a share of the figure's height; joints and ends are round."""
        w = width * self.figure.height
        self.pen.line([(x * self.side, y * self.side) for x, y in points], color, math.ceil(w * self.side))
        for x, y in points:
            self._ellipse((x - w / 2, y - w / 2, x + w / 2, y + w / 2), color)

    def _box(self, box: Box, color: str) -> None:
        self.pen.rounded_rectangle([at * self.side for at in box], 0.05 * self.figure.height * self.side, fill=color)

    def _ellipse(self, box: Box, color: str) -> None:
        self.pen.ellipse([at * self.side for at in box], fill=color)


def _around(points: list[tuple[float, float]], margin: float) -> Box:
    xs, ys = zip(*points, strict=True)
    return min(xs) - margin, min(ys) - margin, max(xs) + margin, max(ys) + margin


def _rounded(box: Box) -> Box:
    x1, y1, x2, y2 = (min(1.0, max(0.0, round(corner, 2))) for corner in box)
    return x1, y1, x2, y2
