"""Spaces and orders of boxes, data sets' among them: by hand, and undone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.geometry.datasets import FORMS, from_box, parse_yolo_line, to_box
from oncurve.geometry.spaces import from_unit, point_from_unit, point_to_unit, to_unit

HUNDREDTHS = st.lists(st.integers(0, 100), min_size=2, max_size=2, unique=True).map(sorted)
BOXES = st.tuples(HUNDREDTHS, HUNDREDTHS).map(
    lambda xy: tuple(n / 100 for n in (xy[0][0], xy[1][0], xy[0][1], xy[1][1]))
)
SIZES = st.tuples(st.integers(1, 5000), st.integers(1, 5000))
quick = settings(deadline=None, max_examples=50)


@pytest.mark.parametrize(
    ("numbers", "space", "order"),
    [
        ((0.25, 0.5, 0.75, 1.0), "unit", "xyxy"),
        ((250, 500, 750, 1000), "thousand", "xyxy"),
        ((25, 50, 75, 100), "percent", "xyxy"),
        ((160, 240, 480, 480), "pixel_original", "xyxy"),
        ((160, 240, 480, 480), "pixel_model", "xyxy"),
        ((160, 240, 320, 240), "pixel_original", "xywh"),
        ((320, 360, 320, 240), "pixel_original", "cxcywh"),
        ((240, 160, 480, 480), "pixel_original", "yxyx"),
        ((0.5, 0.25, 1.0, 0.75), "unit", "yxyx"),
        ((500, 750, 500, 500), "thousand", "cxcywh"),
        ((512, 256, 1024, 768), "loc1024", "yxyx"),
        ((249.5, 499.5, 749.5, 999.5), "bin1000", "xyxy"),
    ],
)
def test_to_unit_by_hand(numbers, space, order):
    assert to_unit(numbers, space, order, (640, 480)) == (0.25, 0.5, 0.75, 1.0)


@pytest.mark.parametrize(
    ("space", "order", "numbers"),
    [
        ("loc1024", "yxyx", (512, 256, 1023, 768)),  # the last bin is 1023
        ("bin1000", "xyxy", (250, 500, 750, 999)),
        ("thousand", "xywh", (250, 500, 500, 500)),
    ],
)
def test_from_unit_by_hand(space, order, numbers):
    assert from_unit((0.25, 0.5, 0.75, 1.0), space, order) == numbers


@given(BOXES, SIZES, st.sampled_from(["xyxy", "xywh", "cxcywh", "yxyx"]))
@quick
def test_from_unit_undoes_to_unit(box, size, order):
    for space in ("unit", "thousand", "percent", "pixel_original", "pixel_model"):
        assert to_unit(from_unit(box, space, order, size), space, order, size) == pytest.approx(box, abs=1e-12)


@given(BOXES)
@quick
def test_bins_come_back_to_their_resolution(box):
    assert to_unit(from_unit(box, "loc1024", "yxyx"), "loc1024", "yxyx") == pytest.approx(box, abs=1 / 1024)
    assert to_unit(from_unit(box, "bin1000", "xyxy"), "bin1000", "xyxy") == pytest.approx(box, abs=0.5 / 1000 + 1e-12)


def test_points():
    assert point_to_unit((12.5, 50.0), "percent") == (0.125, 0.5)
    assert point_to_unit((80, 120), "pixel_original", (640, 480)) == (0.125, 0.25)
    assert point_from_unit((0.125, 0.25), "pixel_original", (640, 480)) == (80, 120)


def test_to_unit_leaves_a_bad_box_bad():
    assert to_unit((0, 0, 700, 100), "pixel_original", "xyxy", (640, 480))[2] > 1


@pytest.mark.parametrize(
    ("form", "numbers"),
    [
        ("coco", (160, 240, 320, 240)),
        ("refer", (160, 240, 320, 240)),
        ("yolo", (0.5, 0.75, 0.5, 0.5)),
        ("voc", (161, 241, 480, 480)),  # 320 x 240 pixels: 161 to 480 and 241 to 480, both ends included
        ("vlm_r1", (160, 240, 480, 480)),
        ("screenspot", (160, 240, 320, 240)),
        ("screenspot_hf", (0.25, 0.5, 0.75, 1.0)),
    ],
)
def test_data_sets_by_hand(form, numbers):
    assert to_box(numbers, form, (640, 480)) == (0.25, 0.5, 0.75, 1.0)
    assert from_box((0.25, 0.5, 0.75, 1.0), form, (640, 480)) == pytest.approx(numbers)


@pytest.mark.parametrize("form", FORMS)
@given(box=BOXES, size=SIZES)
@quick
def test_data_sets_come_back(form, box, size):
    assert to_box(from_box(box, form, size), form, size) == pytest.approx(box, abs=1e-9)


def test_one_pixel_of_voc_is_one_pixel():
    assert to_box((1, 1, 1, 1), "voc", (4, 2)) == (0, 0, 0.25, 0.5)


def test_a_line_of_yolo():
    assert parse_yolo_line("3 0.5 0.75 0.5 0.5\n") == (3, (0.5, 0.75, 0.5, 0.5))
    for line in ("", "3 0.5 0.75 0.5", "cat 0.5 0.75 0.5 0.5", "3 0.5 0.75 0.5 0.5 0.9"):
        with pytest.raises(ValueError, match="cx cy w h are expected"):
            parse_yolo_line(line)
