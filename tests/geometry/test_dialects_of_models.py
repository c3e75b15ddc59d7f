"""Every dialect of boxes and points: what is accepted, what is refused and why, and that what is printed parses."""

import contextlib
import json
import typing

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncurve.config.rewards import DetectionRules, GroundingRules, PointingRules
from oncurve.geometry.dialects import (
    MAX_BOXES,
    MAX_CHARACTERS,
    PLAIN_BOX01,
    Found,
    carries,
    parse_box,
    parse_boxes,
    parse_point,
    print_boxes,
    print_point,
    same_label,
)
from oncurve.geometry.written import BOX_DIALECTS, POINT_DIALECTS
from oncurve.parsing import MalformedAnswer

SIZE = (1000, 500)
BOX = (0.2, 0.3, 0.6, 0.7)
WRITTEN = {
    "box01": "<box>0.20,0.30,0.60,0.70</box>",
    "boxes01": "<box>0.20,0.30,0.60,0.70</box>",
    "qwen2_vl": "<|object_ref_start|>cat<|object_ref_end|><|box_start|>(200,300),(600,700)<|box_end|>",
    "qwen2_5_vl": '```json\n[{"bbox_2d": [200, 150, 600, 350], "label": "cat"}]\n```',
    "qwen3_vl": '[{"bbox_2d": [200, 300, 600, 700], "label": "cat"}]',
    "internvl": "<ref>cat</ref><box>[[200, 300, 600, 700]]</box>",
    "paligemma": "<loc0307><loc0205><loc0717><loc0614> cat",
    "gemini": '[{"box_2d": [300, 200, 700, 600], "label": "cat"}]',
    "florence2": "cat<loc_200><loc_300><loc_600><loc_700>",
}
RESOLUTION = {"box01": 0.005, "boxes01": 0.005, "paligemma": 1 / 1024, "florence2": 0.0005, "qwen2_5_vl": 0.001}
JSON_DIALECTS = ["qwen2_5_vl", "qwen3_vl", "gemini"]
SEVERAL = [name for name, form in BOX_DIALECTS.items() if form.several]
LABELLED = [name for name, form in BOX_DIALECTS.items() if form.labels]
HUNDREDTHS = st.lists(st.integers(0, 50), min_size=2, max_size=2, unique=True).map(lambda pair: sorted(pair))
BOXES = st.tuples(HUNDREDTHS, HUNDREDTHS).map(
    lambda xy: tuple(n / 50 for n in (xy[0][0], xy[1][0], xy[0][1], xy[1][1]))
)
LABELS = st.text(st.characters(categories=["L", "N", "Zs"]), min_size=1, max_size=12).filter(
    lambda label: label == label.strip(" \t\r\n") and label.strip()
)
quick = settings(deadline=None, max_examples=50)
all_boxes = pytest.mark.parametrize("dialect", BOX_DIALECTS)


def reason(text: str, dialect: str) -> str:
    with pytest.raises(MalformedAnswer) as refusal:
        parse_boxes(text, dialect, SIZE) if dialect in BOX_DIALECTS else parse_point(text, dialect)
    assert str(refusal.value)
    return refusal.value.reason


def test_the_rules_name_every_dialect():
    def names(rules):
        return set(typing.get_args(rules.model_fields["dialect"].annotation))

    assert names(GroundingRules) == BOX_DIALECTS.keys() == WRITTEN.keys()
    assert names(DetectionRules) == set(SEVERAL)
    assert names(PointingRules) == POINT_DIALECTS.keys()


@all_boxes
def test_parsed_by_hand(dialect):
    (found,) = parse_boxes(f" \n{WRITTEN[dialect]}\t", dialect, SIZE)
    expected = (0.2005, 0.3005, 0.6005, 0.7005) if dialect == "florence2" else BOX
    assert found.box == pytest.approx(expected, abs=1e-9 if dialect != "paligemma" else 0.0005)
    assert found.label == ("cat" if BOX_DIALECTS[dialect].labels else None)
    assert parse_box(WRITTEN[dialect], dialect, SIZE) == found.box


def test_paligemma_counts_in_1024ths_y_first():
    assert parse_box("<loc0256><loc0128><loc0768><loc0512> cat", "paligemma") == (0.125, 0.25, 0.5, 0.75)


@all_boxes
def test_printed_by_hand(dialect):
    assert print_boxes([Found(BOX, "cat")], dialect, SIZE) == WRITTEN[dialect]


@pytest.mark.parametrize("dialect", LABELLED)
def test_a_space_that_is_not_ascii_belongs_to_the_label(dialect):
    assert parse_boxes(print_boxes([Found(BOX, "\u00a0cat")], dialect, SIZE), dialect, SIZE)[0].label == "\u00a0cat"


@all_boxes
@given(data=st.data())
@quick
def test_what_is_printed_parses_to_its_resolution(dialect, data):
    number = st.integers(0, 5) if dialect in SEVERAL else st.just(1)
    size = data.draw(number)
    label = LABELS if BOX_DIALECTS[dialect].labels else st.none()
    things = data.draw(st.lists(st.builds(Found, BOXES, label), min_size=size, max_size=size))
    back = parse_boxes(print_boxes(things, dialect, SIZE), dialect, SIZE)
    assert [found.label for found in back] == [found.label for found in things]
    for found, thing in zip(back, things, strict=True):
        assert found.box == pytest.approx(thing.box, abs=RESOLUTION.get(dialect, 0.0005) + 1e-12)


@pytest.mark.parametrize("dialect", SEVERAL)
def test_no_object(dialect):
    nothing = "[]" if dialect in JSON_DIALECTS else "none"
    assert print_boxes([], dialect) == nothing or dialect == "qwen2_5_vl"
    assert parse_boxes(f" {nothing}\n", dialect, SIZE) == []
    with pytest.raises(MalformedAnswer) as refusal:
        parse_box(nothing, dialect, SIZE)
    assert refusal.value.reason == "no_box"
    assert reason("None", dialect)
    assert reason("none none", dialect)
    assert reason(f"none\n{WRITTEN[dialect]}", dialect)


def test_box01_has_no_none():
    assert reason("none", "box01") == "syntax"
    with pytest.raises(ValueError, match="holds one box"):
        print_boxes([], "box01")


@pytest.mark.parametrize("dialect", SEVERAL)
def test_two_boxes_are_not_one(dialect):
    two = print_boxes([Found(BOX, "cat")] * 2, dialect, SIZE)
    assert len(parse_boxes(two, dialect, SIZE)) == 2
    with pytest.raises(MalformedAnswer) as refusal:
        parse_box(two, dialect, SIZE)
    assert refusal.value.reason == "several_boxes"


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("qwen2_vl", WRITTEN["qwen2_vl"] + "<|box_start|>(0,0),(10,10)<|box_end|>"),
        ("internvl", "<ref>cat</ref><box>[[200, 300, 600, 700], [0,0,10,10]]</box>"),
        ("florence2", "cat<loc_200><loc_300><loc_600><loc_700><loc_0><loc_0><loc_10><loc_10>"),
    ],
)
def test_one_label_for_several_boxes(dialect, text):
    assert [found.label for found in parse_boxes(text, dialect)] == ["cat", "cat"]


@pytest.mark.parametrize("dialect", JSON_DIALECTS)
def test_a_json_fence_may_stand_or_not(dialect):
    bare = WRITTEN[dialect].removeprefix("```json\n").removesuffix("\n```")
    expected = parse_boxes(bare, dialect, SIZE)
    assert parse_boxes(f"```json\n{bare}\n```", dialect, SIZE) == expected
    for text in (
        f"```\n{bare}\n```",
        f"```json\n{bare}",
        f"{bare}\n```",
        f"```python\n{bare}\n```",
        f"```json{bare}```",
    ):
        assert reason(text, dialect) in ("syntax", "json")
    twice = f"```json\n{bare}\n```\n```json\n{bare}\n```"
    assert reason(twice, dialect) == "json"


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ("200, 300, 600, NaN", "json"),
        ("200, 300, 600, Infinity", "json"),
        ("200, 300, 600, -Infinity", "json"),
        ("200, 300, 600, 700,", "json"),
        ("200, 300, 600, 0700", "json"),
        ("200, 300, 600, \uff17\uff10\uff10", "json"),
        ("200, 300, 600, \u0667", "json"),
        ("200, 300, 600, 7e2", "number"),
        ("200, 300, 600, 1e999", "number"),
        ("-0, 300, 600, 700", "number"),
        ("-0.0, 300, 600, 700", "number"),
        ("200, 300, 600, 700.000000000000000000", "number"),
        (f"200, 300, 600, {'7' * 10_000}", "number"),
        ("200, 300, 600", "schema"),
        ("200, 300, 600, 700, 800", "schema"),
        ('200, 300, 600, "700"', "schema"),
        ("200, 300, 600, true", "schema"),
        ("200, 300, 600, null", "schema"),
        ("200, 300, 600, [700]", "schema"),
        ("600, 700, 200, 300", "swapped_corners"),
        ("600, 300, 200, 700", "swapped_corners"),
        ("200, 700, 600, 300", "swapped_corners"),
        ("200, 300, 200, 700", "no_area"),
        ("200, 300, 600, 300", "no_area"),
        ("-1, 300, 600, 700", "outside"),
        ("200, 300, 600, 1001", "outside"),
        ("200, 300, 600, 99999999999999999999", "outside"),
    ],
)
@pytest.mark.parametrize("dialect", JSON_DIALECTS)
def test_numbers_of_json(dialect, numbers, expected):
    key = "box_2d" if dialect == "gemini" else "bbox_2d"
    with pytest.raises(MalformedAnswer) as refusal:
        parse_boxes(f'[{{"{key}": [{numbers}], "label": "cat"}}]', dialect, (1000, 1000))
    assert refusal.value.reason == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"bbox_2d": [200, 300, 600, 700], "label": "cat"}', "schema"),
        ('[{"bbox_2d": [200, 300, 600, 700], "label": "cat", "score": 0.9}]', "schema"),
        ('[{"bbox_2d": [200, 300, 600, 700]}]', "schema"),
        ('[{"box_2d": [200, 300, 600, 700], "label": "cat"}]', "schema"),
        ('[{"bbox_2d": [200, 300, 600, 700], "label": 3}]', "schema"),
        ("[[200, 300, 600, 700]]", "schema"),
        ("null", "schema"),
        ('[{"bbox_2d": [0, 0, 9, 9], "bbox_2d": [200, 300, 600, 700], "label": "cat"}]', "duplicate_key"),
        ('[{"bbox_2d": [200, 300, 600, 700], "label": "cat"},]', "json"),
        ('[{"bbox_2d": [200, 300, 600, 700], "label": "cat"}] []', "json"),
        ("[{'bbox_2d': [200, 300, 600, 700], 'label': 'cat'}]", "json"),
        ('here: [{"bbox_2d": [200, 300, 600, 700], "label": "cat"}]', "json"),
        ("__import__('os').system('true')", "json"),
        ('[{"bbox_2d": [200, 300, 600, 700], "label": ""}]', "label"),
        ('[{"bbox_2d": [200, 300, 600, 700], "label": "\\ud800"}]', "label"),
        (json.dumps([{"bbox_2d": [200, 300, 600, 700], "label": "cat " * 51}]), "label"),
        ("[" * 100 + "]" * 100, "depth"),
        ("", "empty"),
    ],
)
def test_traps_of_json(text, expected):
    assert reason(text, "qwen3_vl") == expected


@pytest.mark.parametrize(
    ("dialect", "text", "expected"),
    [
        ("boxes01", "<box></box>", "syntax"),
        ("boxes01", "<box>0.2,0.3,0.6,0.7</box>, <box>0.2,0.3,0.6,0.7</box>", "text_around"),
        ("boxes01", "<box>0.2,0.3,0.6,0.7</box> <box>0.2,0.3,0.6", "text_around"),
        ("boxes01", "<box>0.2,0.3,0.6,0.7</box> <box>0.7,0.3,0.6,0.7</box>", "swapped_corners"),
        ("boxes01", "\u200b<box>0.2,0.3,0.6,0.7</box>", "text_around"),
        ("boxes01", "<box>0.2,0.3,0.6,\u0667</box>", "syntax"),
        ("qwen2_vl", "<|box_start|>(200,300),(600,700)<|box_end|>", "text_around"),
        ("qwen2_vl", "<|object_ref_start|>cat<|object_ref_end|>", "syntax"),
        ("qwen2_vl", WRITTEN["qwen2_vl"].replace("200", "nan"), "syntax"),
        ("qwen2_vl", WRITTEN["qwen2_vl"].replace("200", "-0"), "number"),
        ("qwen2_vl", WRITTEN["qwen2_vl"].replace("200", "1200"), "outside"),
        ("qwen2_vl", WRITTEN["qwen2_vl"].replace("200", "800"), "swapped_corners"),
        ("qwen2_vl", WRITTEN["qwen2_vl"].replace("cat", " "), "label"),
        ("qwen2_vl", WRITTEN["qwen2_vl"].replace("cat", "cat" * 100), "label"),
        ("internvl", "<ref>cat</ref><box>[200, 300, 600, 700]</box>", "syntax"),
        ("internvl", "<box>[[200, 300, 600, 700]]</box>", "text_around"),
        ("internvl", "<ref>cat</ref><box>[[]]</box>", "syntax"),
        ("internvl", WRITTEN["internvl"].replace("700", "0.0007"), "swapped_corners"),
        ("internvl", WRITTEN["internvl"] + "!", "text_around"),
        ("paligemma", "<loc0307><loc0205><loc0717> cat", "syntax"),
        ("paligemma", "<loc0307><loc0205><loc0717><loc1024> cat", "syntax"),
        ("paligemma", "<loc307><loc205><loc717><loc614> cat", "syntax"),
        ("paligemma", "<loc0307><loc0205><loc0717><loc0614>", "label"),
        ("paligemma", "<loc0717><loc0205><loc0307><loc0614> cat", "swapped_corners"),
        ("paligemma", "<loc0307><loc0205><loc0717><loc0205> cat", "no_area"),
        ("paligemma", "<loc0307><loc0205><loc0717><loc0614> cat ;", "text_around"),
        ("paligemma", "cat <loc0307><loc0205><loc0717><loc0614>", "text_around"),
        ("florence2", "cat<loc_200><loc_300><loc_600>", "syntax"),
        ("florence2", "cat<loc_200><loc_300><loc_600><loc_1000>", "syntax"),
        ("florence2", "cat<loc_200><loc_300><loc_600><loc_0700>", "syntax"),
        ("florence2", "<loc_200><loc_300><loc_600><loc_700>", "label"),
        ("florence2", "cat<loc_200><loc_300><loc_600><loc_700> a cat", "text_around"),
        ("florence2", "cat<loc_600><loc_300><loc_200><loc_700>", "swapped_corners"),
    ],
)
def test_tags_refused(dialect, text, expected):
    assert reason(text, dialect) == expected


@all_boxes
def test_what_no_dialect_accepts(dialect):
    written, padding = WRITTEN[dialect], "the cat is here " * 1000
    assert reason("", dialect) == reason(" \n\u3000", dialect) == "empty"
    assert reason(written + " " * MAX_CHARACTERS, dialect) == "too_long"
    for text in (
        f"{padding}{written}",
        f"{written}{padding}",
        f"the cat:\n{written}",
        f"{written}\nthat is it",
        f"<think></think>{written}",
        "__import__('os').system('true')",
    ):
        assert reason(text, dialect) in ("text_around", "syntax", "json", "label")


@pytest.mark.parametrize("dialect", SEVERAL)
def test_at_most_so_many_boxes(dialect):
    most = print_boxes([Found(BOX, "a")] * MAX_BOXES, dialect, SIZE)
    assert len(most) < MAX_CHARACTERS
    assert len(parse_boxes(most, dialect, SIZE)) == MAX_BOXES
    assert reason(print_boxes([Found(BOX, "a")] * (MAX_BOXES + 1), dialect, SIZE), dialect) == "too_many"


@given(st.text(alphabet="<box>/0129.,- \n", max_size=60))
@example("<box>0.2,0.3,0.6,0.7</box>")
@example("<box>0.2,0.3,0.6,1.0000000000000000000</box>")
@example("<box>1,0,1,1</box>")
@settings(deadline=None, max_examples=50)
def test_the_short_cut_of_box01_changes_nothing(text):
    def outcome(parse):
        try:
            return parse(text)
        except MalformedAnswer as fault:
            return fault.reason

    assert outcome(lambda text: parse_box(text, "box01")) == outcome(lambda text: parse_boxes(text, "box01")[0].box)


def test_the_short_cut_is_taken():
    assert PLAIN_BOX01.fullmatch(WRITTEN["box01"])


def test_labels():
    assert same_label("  Caf\u0065\u0301  AU lait\n") == same_label("caf\u00e9 au Lait")
    assert same_label("cat") != same_label("cats")
    assert all(carries(dialect, "traffic light") for dialect in LABELLED)
    assert not any(carries(dialect, "cat") for dialect in ("box01", "boxes01"))
    assert [dialect for dialect in LABELLED if carries(dialect, "a <b>")] == JSON_DIALECTS
    assert not carries("paligemma", "cat; dog")
    assert not any(carries(dialect, bad) for dialect in LABELLED for bad in (" ", "x" * 201, "\ud800"))
    with pytest.raises(ValueError, match="can't be a label in internvl"):
        print_boxes([Found(BOX, "a <b>")], "internvl")


@pytest.mark.parametrize(
    ("dialect", "text", "point"),
    [
        ("point01", "<point>0.25,0.5</point>", (0.25, 0.5)),
        ("point01", " <point>0,1</point>\n", (0, 1)),
        ("molmo_point", '<point x="25.0" y="50" alt="the cat">the cat</point>', (0.25, 0.5)),
        ("molmo_point", ' <point x="0" y="100.0" alt=""></point>', (0, 1)),
    ],
)
def test_points_by_hand(dialect, text, point):
    assert parse_point(text, dialect) == point


@pytest.mark.parametrize(
    ("dialect", "text", "expected"),
    [
        ("point01", "", "empty"),
        ("point01", "<point></point>", "syntax"),
        ("point01", "<point>0.2</point>", "syntax"),
        ("point01", "<point>0.2,0.3,0.4</point>", "syntax"),
        ("point01", "<point>0.2,\u0663</point>", "syntax"),
        ("point01", "<point>nan,0.3</point>", "syntax"),
        ("point01", "<point>-0.0,0.3</point>", "number"),
        ("point01", f"<point>0.{'3' * 10_000},0.3</point>", "number"),
        ("point01", "<point>0.2,1.01</point>", "outside"),
        ("point01", "<point>-0.2,0.3</point>", "outside"),
        ("point01", "<point>0.2,0.3</point><point>0.2,0.3</point>", "repeated_tags"),
        ("point01", "at <point>0.2,0.3</point>", "text_around"),
        ("molmo_point", '<point x="20" y="30">cat</point>', "text_around"),
        ("molmo_point", '<point x="20" y="130" alt="cat">cat</point>', "outside"),
        ("molmo_point", '<point x="20" y="30" alt="cat" z="1">cat</point>', "text_around"),
        ("molmo_point", '<points x1="20" y1="30" x2="40" y2="50" alt="cat">cat</points>', "syntax"),
        ("molmo_point", '<point x="20" y="30" alt="cat">cat</point>' * 2, "repeated_tags"),
        ("molmo_point", f'<point x="20" y="30" alt="cat">{"cat " * 100}</point>', "text_around"),
    ],
)
def test_points_refused(dialect, text, expected):
    assert reason(text, dialect) == expected


@pytest.mark.parametrize("dialect", POINT_DIALECTS)
@given(x=st.integers(0, 100), y=st.integers(0, 100))
@quick
def test_points_come_back(dialect, x, y):
    assert parse_point(print_point((x / 100, y / 100), dialect), dialect) == pytest.approx(
        (x / 100, y / 100), abs=1e-12
    )


PIECES = st.sampled_from(
    [
        *WRITTEN.values(), "<box>", "</box>", "<point>", "</point>", '<point x="', '" y="', '" alt="', '">', "<ref>", "</ref>",
        "[[", "]]", "<loc0123>", "<loc_12>", "<|box_start|>", "<|box_end|>", "(", "),(", "{", "}", '"bbox_2d":', '"label":',
        "```json\n", "```", "0.5", "-", ".", ",", " ", "\n", "none", "nan", "1e999", "\uff10", "\u0660", "\u200b",
        "\ud800", "9" * 30,
    ]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=12).map("".join))


@pytest.mark.parametrize("dialect", [*BOX_DIALECTS, *POINT_DIALECTS])
@given(text=TEXTS)
@quick
def test_any_text_is_read_or_malformed(dialect, text):
    found, point = [], (0, 0)
    with contextlib.suppress(MalformedAnswer):
        if dialect in BOX_DIALECTS:
            found = parse_boxes(text, dialect, SIZE)
        else:
            point = parse_point(text, dialect)
    assert all(0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1 for (x1, y1, x2, y2), _ in found)
    assert 0 <= min(point) <= max(point) <= 1
