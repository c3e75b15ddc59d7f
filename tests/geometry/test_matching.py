"""Matching of two sets of boxes against all permutations, and average precision by hand."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.geometry.average_precision import average_precision
from oncurve.geometry.boxes import iou
from oncurve.geometry.dialects import Found
from oncurve.geometry.matching import iou_matrix, match
from oncurve.truths import BoxesTruth

TENTHS = st.lists(st.integers(0, 10), min_size=2, max_size=2, unique=True).map(sorted)
BOXES = st.tuples(TENTHS, TENTHS).map(lambda xy: (xy[0][0] / 10, xy[1][0] / 10, xy[0][1] / 10, xy[1][1] / 10))
SETS = st.lists(BOXES, max_size=4)
LEFT, RIGHT, LEFT_HALF = (0.0, 0.0, 0.4, 0.4), (0.6, 0.0, 1.0, 0.4), (0.0, 0.0, 0.2, 0.4)


@given(SETS, SETS)
@settings(deadline=None, max_examples=50)
def test_the_matrix_holds_the_ious(boxes, others):
    matrix = iou_matrix(boxes, others)
    assert matrix.shape == (len(boxes), len(others))
    for i, box in enumerate(boxes):
        assert matrix[i].tolist() == pytest.approx([iou(box, other) for other in others], abs=1e-12)


@given(SETS, SETS, st.sampled_from([0.1, 0.5]))
@settings(deadline=None, max_examples=50)
def test_no_other_one_to_one_matching_has_more(boxes, truths, least_iou):
    few, many = sorted((boxes, truths), key=len)
    best = max(
        sum(o for a, b in zip(few, order, strict=True) if (o := iou(a, b)) >= least_iou - 1e-9)
        for order in permutations(many, len(few))
    )
    pairs = match(boxes, truths, least_iou)
    assert sum(overlap for *_, overlap in pairs) == pytest.approx(best, abs=1e-9)
    assert all(
        overlap == pytest.approx(iou(boxes[i], truths[j])) and overlap >= least_iou - 1e-9 for i, j, overlap in pairs
    )
    assert len({i for i, _, _ in pairs}) == len({j for _, j, _ in pairs}) == len(pairs)


def test_pairs_by_hand():
    assert match([RIGHT, LEFT_HALF], [LEFT, RIGHT], 0.5) == [(0, 1, 1.0), (1, 0, pytest.approx(0.5))]
    assert match([RIGHT, LEFT_HALF], [LEFT, RIGHT], 0.51) == [(0, 1, 1.0)]
    assert match([LEFT], [LEFT, RIGHT], 0.5, np.array([[False, True]])) == []
    assert match([], [LEFT], 0.5) == match([LEFT], [], 0.5) == []


@pytest.mark.parametrize(
    ("predictions", "expected"),
    [
        ([[Found(LEFT)], [Found(RIGHT)]], (1, 1, 1)),
        ([[Found(LEFT)], []], (51 / 101,) * 3),  # precision 1 up to a recall of 1/2: 51 of COCO's 101 points
        # an IoU of 0.5 is a match at 0.50 alone; at the other nine it ranks first and is wrong: precision 1/2 up to 1/2
        ([[Found(LEFT_HALF)], [Found(RIGHT)]], ((1 + 9 * 51 / 202) / 10, 1, 51 / 202)),
        ([[], []], (0, 0, 0)),
        ([[Found(RIGHT)], [Found(LEFT)]], (0, 0, 0)),
        ([[Found(LEFT), Found(RIGHT)], [Found(RIGHT)]], (1, 1, 1)),  # the extra box ranks behind all right ones
    ],
)
def test_average_precision_by_hand(predictions, expected):
    truths = [BoxesTruth((LEFT,)), BoxesTruth((RIGHT,))]
    assert tuple(average_precision(predictions, truths).values()) == pytest.approx(expected, abs=1e-9)


def test_average_precision_is_by_class():
    truths = [BoxesTruth((LEFT, RIGHT), ("cat", "dog"))]
    right = [Found(LEFT, "Cat"), Found(RIGHT, "dog")]
    swapped = [Found(LEFT, "dog"), Found(RIGHT, "cat")]
    one = [Found(LEFT, "cat"), Found(RIGHT, "cow")]
    values = [average_precision([found], truths)["map_50"] for found in (right, swapped, one)]
    assert values == pytest.approx([1, 0, 0.5])


def test_average_precision_of_nothing():
    assert all(map(math.isnan, average_precision([[Found(LEFT)]], [BoxesTruth(())]).values()))
