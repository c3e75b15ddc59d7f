import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.geometry.dialects import parse_box01, print_box01
from oncurve.parsing import MalformedAnswer

HUNDREDTHS = st.lists(st.integers(0, 100), min_size=2, max_size=2, unique=True).map(sorted)
BOXES = st.tuples(HUNDREDTHS, HUNDREDTHS).map(
    lambda xy: tuple(n / 100 for n in (xy[0][0], xy[1][0], xy[0][1], xy[1][1]))
)
GOOD = "<box>0.20,0.30,0.60,0.70</box>"
quick = settings(deadline=None, max_examples=50)


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (GOOD, (0.2, 0.3, 0.6, 0.7)),
        (f" \n\t{GOOD}\r\n", (0.2, 0.3, 0.6, 0.7)),
        ("<box>0,0,1,1</box>", (0, 0, 1, 1)),  # the whole image is honest, if poor
        ("<box>0.123456,0.3,0.6,1.0</box>", (0.123456, 0.3, 0.6, 1)),
        ("<box>0.200000000000000011,0.3,0.6,0.7</box>", (0.2, 0.3, 0.6, 0.7)),  # 20 characters
    ],
)
def test_accepted(text, box):
    assert parse_box01(text) == box


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n\t ", "empty"),
        ("\u3000", "empty"),
        ("<box></box>", "syntax"),
        ("<box>,,,</box>", "syntax"),
        ("the cat is on the left", "syntax"),
        ("[0.2, 0.3, 0.6, 0.7]", "syntax"),
        ("__import__('os').system('true')", "syntax"),
        ("<box>__import__('os').system('true'),0.3,0.6,0.7</box>", "syntax"),
        ("<box>0.2,0.3,0.6</box>", "syntax"),
        ("<box>0.2,0.3,0.6,0.7,0.8</box>", "syntax"),
        ("<box>0.2, 0.3, 0.6, 0.7</box>", "syntax"),
        ("<box>0.2 0.3 0.6 0.7</box>", "syntax"),
        ("<BOX>0.2,0.3,0.6,0.7</BOX>", "syntax"),
        ("<box>0.2,0.3,0.6,0.7", "syntax"),
        ("0.2,0.3,0.6,0.7</box>", "syntax"),
        ("<box>.2,0.3,0.6,0.7</box>", "syntax"),
        ("<box>0.,0.3,0.6,0.7</box>", "syntax"),
        ("<box>+0.2,0.3,0.6,0.7</box>", "syntax"),
        ("<box>0_0.2,0.3,0.6,0.7</box>", "syntax"),
        ("<box>0.2,0.3,0.6,7e-1</box>", "syntax"),
        ("<box>0.2,0.3,0.6,1e999</box>", "syntax"),
        ("<box>nan,0.3,0.6,0.7</box>", "syntax"),
        ("<box>0.2,0.3,inf,0.7</box>", "syntax"),
        ("<box>0.2,0.3,0.6,-Infinity</box>", "syntax"),
        ("<box>\uff10.2,0.3,0.6,0.7</box>", "syntax"),  # a full-width zero
        ("<box>\u0660.2,0.3,0.6,0.7</box>", "syntax"),  # an Arabic-Indic zero
        ("<box>0.2\uff0c0.3,0.6,0.7</box>", "syntax"),  # a full-width comma
        ("<b\u043ex>0.2,0.3,0.6,0.7</b\u043ex>", "syntax"),  # a Cyrillic o
        ("<box>0.2,\u200b0.3,0.6,0.7</box>", "syntax"),  # a zero-width space
        ("<box>-0.0,0.3,0.6,0.7</box>", "number"),
        ("<box>-0,0.3,0.6,0.7</box>", "number"),
        ("<box>0.2,0.3,0.6,0.7000000000000000000</box>", "number"),  # 21 characters
        (f"<box>0.2,0.3,0.6,0.{'7' * 10_000}</box>", "number"),
        (f"<box>0.2,0.3,{'9' * 10_000},0.7</box>", "number"),
        ("<box>-0.1,0.3,0.6,0.7</box>", "outside"),
        ("<box>0.2,0.3,0.6,1.01</box>", "outside"),
        ("<box>200,300,600,700</box>", "outside"),
        ("<box>0.6,0.3,0.2,0.7</box>", "swapped_corners"),
        ("<box>0.2,0.7,0.6,0.3</box>", "swapped_corners"),
        ("<box>0.6,0.7,0.2,0.3</box>", "swapped_corners"),
        ("<box>0.2,0.3,0.2,0.7</box>", "no_area"),
        ("<box>0.2,0.3,0.6,0.3</box>", "no_area"),
        ("<box>0.5,0.5,0.5,0.5</box>", "no_area"),
        (GOOD + GOOD, "repeated_tags"),
        (GOOD + "\n<box>", "repeated_tags"),
        (f"<box>{GOOD}</box>", "repeated_tags"),
        (" ".join([GOOD] * 144), "repeated_tags"),
        (f"the cat: {GOOD}", "text_around"),
        (f"{GOOD}.", "text_around"),
        (f"\u200b{GOOD}", "text_around"),
        (f"\u00a0{GOOD}", "text_around"),
        (f"{GOOD}{' well' * 2000}", "text_around"),
        (f"<think></think>{GOOD}", "text_around"),
    ],
)
def test_refused(text, reason):
    with pytest.raises(MalformedAnswer) as refusal:
        parse_box01(text)
    assert refusal.value.reason == reason


@given(BOXES)
@quick
def test_what_is_printed_parses_to_the_same_box(box):
    assert parse_box01(print_box01(box)) == box


def test_print_has_two_decimals():
    assert print_box01((0.2, 0.3, 0.6, 1)) == "<box>0.20,0.30,0.60,1.00</box>"
