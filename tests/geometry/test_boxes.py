import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.geometry.boxes import SIMILARITIES, area, ciou, diou, giou, intersection_and_union, iou, is_valid

CORNERS = st.lists(st.integers(0, 100), min_size=2, max_size=2, unique=True).map(
    lambda pair: [n / 100 for n in sorted(pair)]
)
BOXES = st.tuples(CORNERS, CORNERS).map(lambda xy: (xy[0][0], xy[1][0], xy[0][1], xy[1][1]))
RAW = {"iou": iou, "giou": giou, "diou": diou, "ciou": ciou}
quick = settings(deadline=None, max_examples=50)
each_raw = pytest.mark.parametrize("similarity", RAW.values(), ids=RAW)

LEFT, RIGHT = (0.0, 0.0, 0.2, 0.4), (0.1, 0.0, 0.3, 0.4)  # half of each in common; hull 0.3 x 0.4, centres 0.1 apart
APART = (0.5, 0.0, 0.7, 0.4)  # hull with LEFT 0.7 x 0.4, centres 0.5 apart
WIDE = (0.0, 0.0, 0.4, 0.2)  # 0.2 x 0.2 in common with LEFT; hull 0.4 x 0.4, centres 0.1 apart on both axes


def test_area_and_overlap_by_hand():
    assert area(LEFT) == pytest.approx(0.08)
    assert intersection_and_union(LEFT, RIGHT) == pytest.approx((0.04, 0.12))
    assert intersection_and_union(LEFT, APART) == pytest.approx((0, 0.16))


@pytest.mark.parametrize(
    ("similarity", "other", "expected"),
    [
        (iou, RIGHT, 1 / 3),
        (iou, APART, 0),
        (iou, WIDE, 0.04 / 0.12),
        (giou, RIGHT, 1 / 3),  # the hull is the union
        (giou, APART, -(0.28 - 0.16) / 0.28),
        (giou, WIDE, 1 / 3 - (0.16 - 0.12) / 0.16),
        (diou, RIGHT, 1 / 3 - 0.01 / 0.25),
        (diou, APART, -0.25 / 0.65),
        (diou, WIDE, 1 / 3 - 0.02 / 0.32),
        (ciou, RIGHT, 1 / 3 - 0.01 / 0.25),  # the same aspect ratio
    ],
)
def test_similarities_by_hand(similarity, other, expected):
    assert similarity(LEFT, other) == pytest.approx(expected, abs=1e-12)


def test_ciou_by_hand():
    unlike = 4 / math.pi**2 * (math.atan(2) - math.atan(0.5)) ** 2
    weight = unlike / (1 - 1 / 3 + unlike)
    assert ciou(LEFT, WIDE) == pytest.approx(1 / 3 - 0.02 / 0.32 - weight * unlike, abs=1e-12)


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ((0.21, 0.31, 0.59, 0.69), 0.9025),
        ((0.15, 0.25, 0.5, 0.65), 7 / 13),
        ((0.7, 0.4, 0.9, 0.8), 0),
        ((0, 0, 1, 1), 0.16),
    ],
)
def test_iou_of_the_worked_example(box, expected):
    assert iou(box, (0.2, 0.3, 0.6, 0.7)) == pytest.approx(expected, abs=1e-12)


@each_raw
@given(a=BOXES, b=BOXES)
@quick
def test_symmetric(similarity, a, b):
    assert similarity(a, b) == pytest.approx(similarity(b, a), abs=1e-12)


@each_raw
@given(a=BOXES, b=BOXES, scale=st.floats(0.01, 100), x=st.floats(-10, 10), y=st.floats(-10, 10))
@quick
def test_the_same_after_scaling_and_moving(similarity, a, b, scale, x, y):
    moved = [tuple(scale * corner + shift for corner, shift in zip(box, (x, y, x, y), strict=True)) for box in (a, b)]
    assert similarity(*moved) == pytest.approx(similarity(a, b), abs=1e-6)


@each_raw
@given(a=BOXES)
@quick
def test_one_for_the_box_itself(similarity, a):
    assert similarity(a, a) == pytest.approx(1, abs=1e-12)


@given(a=BOXES, b=BOXES)
@quick
def test_bounds_and_order(a, b):
    assert 0 <= iou(a, b) <= 1
    assert -1 < giou(a, b) <= iou(a, b) + 1e-12
    assert -1 < diou(a, b) <= iou(a, b)
    assert ciou(a, b) <= diou(a, b)


@pytest.mark.parametrize("name", SIMILARITIES)
@given(a=BOXES, b=BOXES)
@quick
def test_rewarded_similarities_lie_in_0_to_1(name, a, b):
    assert 0 <= SIMILARITIES[name](a, b) <= 1 + 1e-12
    assert SIMILARITIES[name](a, a) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", ["iou", "ciou"])
@given(a=BOXES, b=BOXES)
@quick
def test_a_disjoint_box_gets_the_least(name, a, b):
    if iou(a, b) == 0:
        assert SIMILARITIES[name](a, b) == 0


@pytest.mark.parametrize("name", SIMILARITIES)
@given(truth=BOXES, a=BOXES, b=BOXES)
@settings(deadline=None, max_examples=50)
def test_a_disjoint_box_never_beats_an_overlapping_one(name, truth, a, b):
    a, b = sorted((a, b), key=lambda box: iou(box, truth))
    if iou(a, truth) == 0 < iou(b, truth):
        assert SIMILARITIES[name](a, truth) <= SIMILARITIES[name](b, truth)


@pytest.mark.parametrize("name", ["giou", "diou"])
def test_a_near_miss_stays_below_a_touch_of_the_corner(name):
    truth, beside, corner = (0.0, 0.0, 0.5, 0.5), (0.5, 0.0, 1.0, 0.5), (0.49, 0.49, 1.0, 1.0)
    assert iou(beside, truth) == 0 < iou(corner, truth)
    assert RAW[name](corner, truth) < RAW[name](beside, truth)  # as the two are defined
    assert SIMILARITIES[name](beside, truth) < SIMILARITIES[name](corner, truth)


@pytest.mark.parametrize("name", ["giou", "diou"])
def test_the_least_overlap_still_beats_the_closest_miss(name):
    """Thin slivers at the far end of the image are the worst that overlap."""
    truth = (0.4, 0.4, 0.6, 0.6)
    overlapping = [
        (0.0, 0.5, 1.0, 0.5001), (0.5, 0.0, 0.5001, 1.0), (0.5999, 0.5999, 1.0, 1.0), (0.0, 0.0, 0.4001, 0.4001),
        (0.5999, 0.0, 1.0, 1.0), (0.0, 0.5999, 1.0, 1.0), (0.0, 0.0, 1.0, 0.4001),
    ]  # fmt: skip
    touching = [(0.6, 0.4, 0.8, 0.6), (0.2, 0.4, 0.4, 0.6), (0.4, 0.2, 0.6, 0.4), (0.6, 0.4, 0.6001, 0.6)]
    assert all(iou(box, truth) > 0 for box in overlapping)
    assert all(iou(box, truth) == 0 for box in touching)
    similarity = SIMILARITIES[name]
    assert max(similarity(box, truth) for box in touching) < min(similarity(box, truth) for box in overlapping)


@pytest.mark.parametrize(
    ("name", "expected"), [("giou", 0.08 * (1 - 0.12 / 0.28) / 2), ("diou", 0.375 * (1 - 0.25 / 0.65))]
)
def test_a_disjoint_box_keeps_a_share_of_its_mapped_value(name, expected):
    assert SIMILARITIES[name](APART, LEFT) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ["giou", "diou"])
@given(truth=BOXES, box=BOXES)
@quick
def test_an_overlapping_box_gets_the_mapped_value(name, truth, box):
    if iou(box, truth):
        assert SIMILARITIES[name](box, truth) == (RAW[name](box, truth) + 1) / 2


@pytest.mark.parametrize(
    ("box", "valid"),
    [
        ((0, 0, 1, 1), True),
        ((0.2, 0.3, 0.6, 0.7), True),
        ((0.6, 0.3, 0.2, 0.7), False),
        ((0.2, 0.7, 0.6, 0.3), False),
        ((0.2, 0.3, 0.2, 0.7), False),
        ((0.2, 0.3, 0.6, 0.3), False),
        ((-0.01, 0.3, 0.6, 0.7), False),
        ((0.2, 0.3, 1.01, 0.7), False),
        ((0.2, math.nan, 0.6, 0.7), False),
        ((0.2, 0.3, math.inf, 0.7), False),
    ],
)
def test_is_valid(box, valid):
    assert is_valid(box) is valid
