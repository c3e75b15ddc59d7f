"""The read-out: which steps, what is drawn where, and text that Markdown leaves alone."""

import html
import re
from xml.etree import ElementTree

import pytest
from PIL import Image

from oncurve.cli.check import contact_sheet, fitted
from oncurve.cli.readout import ANSWER, TRUTH, chosen, draw_shapes, escaped, panels, series, shapes, svg


def test_first_middle_and_last():
    assert chosen([0, 100, 200, 300, 400, 500]) == [0, 200, 500]
    assert chosen([0, 40, 100]) == [0, 40, 100]
    assert chosen([0, 50]) == [0, 50]
    assert chosen([0]) == [0]


def test_a_series_skips_what_was_not_measured_and_averages_long_runs():
    rows = [{"step": 1, "a": 0.5}, {"step": 2}, {"step": 3, "a": 1.0}]
    assert series(rows, "a") == [(1, 0.5), (3, 1.0)]
    long = series([{"step": i, "a": float(i)} for i in range(600)], "a")
    assert (len(long), long[0], long[-1]) == (300, (1, 0.5), (599, 598.5))


@pytest.mark.parametrize(
    "text", ["<box>0.1,0.2</box>", "*a* _b_ `c` |d| [e](f) <!-- $x$ #h ~~s~~ www.x.org", "a & b", "你好 é"]
)
def test_any_text_comes_back_as_it_was(text):
    written = escaped(text)
    assert html.unescape(written) == text
    assert not re.search(r"[<>|`*_\[\]$#~\\]|&(?!#)", re.sub(r"&#\d+;", "", written))
    assert escaped("a\nb") == "a<br>b"
    assert len(escaped("x" * 5000)) < 1300


def test_shapes_of_every_kind_of_box_and_point():
    assert shapes({"box": (0.1, 0.2, 0.3, 0.4)}) == [(0.1, 0.2, 0.3, 0.4)]
    assert shapes({"boxes": [[0, 0, 1, 1], [0.1, 0.1, 0.2, 0.2]], "labels": ["a", "b"]}) == [
        (0, 0, 1, 1),
        (0.1, 0.1, 0.2, 0.2),
    ]
    assert shapes({"point": [0.4, 0.5], "radius": 0.1}) == [(0.4, 0.5)]
    assert shapes([{"box": [0, 0, 1, 1], "label": "a"}]) == [(0, 0, 1, 1)]
    assert shapes({"observable_evidence": [{"region": [0, 0, 1, 1], "confidence": 0.4}]}) == [(0, 0, 1, 1)]
    assert shapes([0.4, 0.5]) == [(0.4, 0.5)]
    assert shapes("12") == shapes(7) == shapes(None) == shapes({"answers": ["a", "b"]}) == []


def test_boxes_and_points_are_drawn_where_they_are():
    picture = Image.new("RGB", (101, 101))
    draw_shapes(picture, [(0.2, 0.3, 0.6, 0.7)], TRUTH)
    assert {picture.getpixel(at) for at in ((20, 30), (60, 30), (20, 70), (60, 70))} == {(0, 0xA6, 0x76)}
    assert picture.getpixel((40, 50)) == (0, 0, 0)
    draw_shapes(picture, [(0.4, 0.5)], ANSWER)
    assert picture.getpixel((40, 50)) == (0, 0, 0)
    assert (0xE4, 0x57, 0x2E) in {picture.getpixel((x, 50)) for x in range(30, 50)}


def test_a_panel_a_step_with_its_own_answer():
    image = Image.new("RGB", (64, 64))
    probe = {"truth": {"box": [0.1, 0.1, 0.5, 0.5]}, "score": {"extracted": [0.5, 0.5, 0.9, 0.9]}}
    sheet = panels(image, {0: None, 10: probe})
    assert sheet.size == (2 * 224 + 8, 224 + 18)
    at = round(0.1 * 223)
    assert sheet.getpixel((232 + at, 18 + at)) == (0, 0xA6, 0x76)
    assert sheet.getpixel((at, 18 + at)) == (0, 0, 0)


def test_charts_are_well_formed_and_scaled():
    root = ElementTree.fromstring(svg([("a < b", [(0, 1.0), (10, 3.0)]), ("flat", [(5, 0.5), (6, 0.5)])]))
    lines = [line.get("points") for line in root.iter("{http://www.w3.org/2000/svg}polyline")]
    assert lines == ["48.0,166.0 384.0,30.0", "48.0,98.0 384.0,98.0"]
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a < b", "1", "2", "3", "step 10"} <= set(texts)


def test_the_contact_sheet_shows_the_image_as_the_model_sees_it(tasks):
    sheet = contact_sheet([(task, ((32, 32),)) for task in tasks[:5]])
    assert sheet.size == (4 * 240, 2 * (240 + 34))
    x, y = tasks[0].truth.box[:2]
    seen = sheet.crop((4, 34, 4 + 232, 34 + 232))
    at = (round(x * 231), round(y * 231))
    assert seen.getpixel(at) == (0, 0xA6, 0x76)


def test_long_captions_are_cut_to_their_width():
    from PIL import ImageFont

    font = ImageFont.load_default(11)
    assert fitted("short\ntext", font, 200) == "short text"
    cut = fitted("long " * 100, font, 200)
    assert cut.endswith("…")
    assert 150 < font.getlength(cut) <= 200
