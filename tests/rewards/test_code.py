"""The code verifier without its sandbox: what an answer is, what a truth is, and when two results are the same."""

import string
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.parsing import MalformedAnswer
from oncurve.rewards.code import MAX_SOURCE_CHARACTERS, lines, same, source_of
from oncurve.rewards.code_inputs import drawn, spread
from oncurve.truths import parse_truth, truth_json

CODE = "def f(x):\n    return x\n"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "text",
    [
        CODE,
        f"\n\n{CODE}\n  \n",
        f"```python\n{CODE}```",
        f"  ```py\r\n{CODE}```\n",
        f"```\n{CODE}```",
    ],
)
def test_the_source_is_the_whole_text_or_its_one_block(text):
    assert source_of(text, "optional").rstrip() == CODE.rstrip()


def test_the_first_lines_indent_stays():
    assert source_of("    return x", "optional") == "    return x\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("\u00a0\u2003", "empty"),
        ("```python\n```", "empty"),
        ("```python\n \n```", "empty"),
        (f"Here it is:\n```python\n{CODE}```", "text_around"),
        (f"```python\n{CODE}```\nThis works.", "text_around"),
        (f"<think>\n</think>\n```python\n{CODE}```", "text_around"),
        (f"```python\n{CODE}```\n```python\n{CODE}```", "repeated_tags"),
        (f"```python\n```python\n{CODE}```\n```", "repeated_tags"),
        (f"```python\n{CODE}", "fence"),
        (f"{CODE}```", "fence"),
        (f"```javascript\n{CODE}```", "fence"),
        (f"```python\n{CODE}``` done", "fence"),
        ("def f(x):\n    return '\ud800'", "encoding"),
        ("#" * (MAX_SOURCE_CHARACTERS + 1), "too_long"),
    ],
)
def test_a_text_that_is_not_one_source_is_malformed(text, reason):
    with pytest.raises(MalformedAnswer) as fault:
        source_of(text, "optional")
    assert fault.value.reason == reason


def test_a_fence_can_be_required():
    assert source_of(f"```python\n{CODE}```", "required") == CODE
    with pytest.raises(MalformedAnswer) as fault:
        source_of(CODE, "required")
    assert fault.value.reason == "fence"


@settings(deadline=None, max_examples=50)
@given(
    st.text(st.sampled_from("`\n pythonx"), max_size=60) | st.text(max_size=60),
    st.sampled_from(["optional", "required"]),
)
def test_any_text_has_a_source_or_is_malformed(text, fence):
    try:
        source = source_of(text, fence)
    except MalformedAnswer:
        return
    assert source.strip()
    assert source.strip() in text


@settings(deadline=None, max_examples=50)
@given(JSON)
def test_a_value_is_the_same_as_itself_and_unlike_what_holds_it(value):
    assert same(value, value)
    assert not same([value], value)
    assert not same(value, {"value": value})


@pytest.mark.parametrize(
    ("value", "expected", "equal"),
    [
        (2.0, 2, True),
        (2, 2.0, True),
        (True, 1, False),
        (1, True, False),
        (0, False, False),
        (None, 0, False),
        ("1", 1, False),
        (0.1 + 0.2, 0.3, True),
        (0.3 + 2e-9, 0.3, False),
        (1e-13, 0.0, True),
        (1e-11, 0.0, False),
        (10.0**12 + 1, 10**12, False),  # one part in 1e12, but an integer is asked for
        (10**400, 1e300, False),
        ([1, 2], [2, 1], False),
        ([1, 2], [1, 2, 3], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([{"a": [0.1 + 0.2]}], [{"a": [0.3]}], True),
    ],
)
def test_which_results_are_the_same(value, expected, equal):
    assert same(value, expected) is equal


def test_a_tolerance_is_absolute():
    assert same(100.4, 100.0, 0.5)
    assert not same(100.6, 100.0, 0.5)


def test_white_space_at_the_ends_of_lines_does_not_count():
    assert lines("1 2 \r\n3\n\n") == lines("1 2\n3") == ["1 2", "3"]
    assert lines(" 1") != lines("1")
    assert lines("1\n\n2") != lines("1\n2")
    assert lines("") == lines("\n \n")


@pytest.mark.parametrize(
    "truth",
    [
        {"entry_point": "f", "tests": [{"args": [1, {"a": [None]}], "kwargs": {"k": 1.5}, "result": None}]},
        {"entry_point": "f", "tests": [{"result": 3}], "tolerance": 0.1},
        {"entry_point": "f", "reference": "def f(x): return x", "inputs": [[1], []]},
        {"stdin_tests": [{"stdin": "", "stdout": "3\n"}]},
    ],
)
def test_truths_come_back_as_json(truth):
    back = truth_json(parse_truth("code", truth))
    assert {key: list(value) if isinstance(value, tuple) else value for key, value in back.items()} == truth


@pytest.mark.parametrize(
    ("truth", "words"),
    [
        ({}, "it has nothing"),
        ({"entry_point": "f"}, "needed are entry_point and tests"),
        ({"tests": [{"result": 1}]}, "needed are entry_point and tests"),
        ({"entry_point": "f", "tests": [{"result": 1}], "reference": "x", "inputs": [[1]]}, "needed are"),
        ({"entry_point": "f", "tests": []}, "truth.tests"),
        ({"entry_point": "f", "reference": "x", "inputs": []}, "truth.inputs"),
        ({"entry_point": "f", "tests": [{"args": [1]}]}, "truth.tests.0.result"),
        ({"entry_point": "f", "tests": [{"arguments": [1], "result": 1}]}, "truth.tests.0.arguments"),
        ({"entry_point": "f", "tests": [{"args": 1, "result": 1}]}, "truth.tests.0.args"),
        ({"entry_point": "f(x)", "tests": [{"result": 1}]}, "no name of a function"),
        ({"entry_point": "class", "tests": [{"result": 1}]}, "no name of a function"),
        ({"stdin_tests": [{"stdin": "1"}]}, "truth.stdin_tests.0.stdout"),
        ({"stdin_tests": [{"stdin": 1, "stdout": "1"}]}, "truth.stdin_tests.0.stdin"),
        ({"stdin_tests": [{"stdin": "1", "stdout": "1"}], "tolerance": 0.1}, "what a program prints"),
    ],
)
def test_a_broken_truth_says_where(truth, words):
    with pytest.raises(ValueError, match=words):
        parse_truth("code", truth)


def test_drawn_inputs_are_new_fixed_by_their_seed_and_keep_what_the_given_share():
    given = [[[1, 4, 9], "ab-01", 3, 0.5], [[2, 3], "ba-10", 7, 1.5], [[0, 5, 6], "bb-11", 12, 9.0]]
    found = list(drawn(given, "seed"))
    assert found == list(drawn(given, "seed")) != list(drawn(given, "another"))
    assert len(found) > 20
    assert len(set(map(repr, [*given, *found]))) == len(given) + len(found)
    for numbers, text, count, share in found[:20]:
        assert numbers == sorted(set(numbers))  # in order and without repeats, as all the given ones
        assert len(numbers) in (2, 3)
        assert set(numbers) <= set(range(10))
        assert set(text[:2]) <= set("ab")
        assert text[2] == "-"
        assert set(text[3:]) <= set("01")
        assert type(count) is int
        assert 3 <= count <= 12
        assert 0.5 <= share <= 9.0


def test_numbers_go_beyond_the_given_ones_only_where_nothing_new_is_between():
    assert all(low[0] <= 9 for low in list(drawn([[2], [9]], "s"))[:5])
    assert max(value for (value,) in drawn([[1], [2], [3]], "s")) in (4, 5)
    assert not list(drawn([[None]], "s"))
    assert list(drawn([[True]], "s")) == [[False]]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.lists(JSON, min_size=2, max_size=2), min_size=1, max_size=3))
def test_drawn_inputs_have_the_shape_of_a_given_one(inputs):
    def shape(value):
        if isinstance(value, list):
            return sorted(repr(shape(item)) for item in value)  # items of two types may change places
        if isinstance(value, dict):
            return {key: shape(item) for key, item in value.items()}
        return type(value).__name__

    shapes = [list(map(shape, args)) for args in inputs]
    assert all(list(map(shape, args)) in shapes for args in islice(drawn(inputs, "s"), 5))


def test_letters_stay_letters_of_their_case():
    for (text,) in drawn([["Abc_X1"], ["Zyq_Y7"]], "s"):
        assert text[0] in string.ascii_uppercase
        assert text[1:3].islower()
        assert text[3] == "_"
        assert text[5] in "17"


def test_words_that_every_text_has_are_kept_and_others_may_change_places():
    found = [text for (text,) in drawn([["5 apples and 16 pears"], ["100 apples and 7 pears"]], "s")]
    assert "7 apples and 16 pears" in found
    assert all(text.split(" ")[1:3] == ["apples", "and"] and text.endswith(" pears") for text in found)


def test_a_list_that_is_the_only_argument_may_be_cut_to_the_shortest():
    lengths = {len(numbers) for (numbers,) in drawn([[[3, 1]], [[4, 1, 5, 9, 2]]], "s")}
    assert lengths == {2, 3, 4, 5}
    assert {len(numbers) for numbers, _ in drawn([[[3, 1], 1], [[4, 1, 5, 9, 2], 2]], "s")} == {2, 5}


def test_rare_results_are_chosen_first():
    tests = [{"args": [n], "result": n % 10 == 0} for n in range(1, 31)]
    assert [test["args"][0] for test in spread(tests, 7)] == [1, 10, 2, 20, 3, 30, 4]
    assert sorted(test["args"][0] for test in spread(tests, 99)) == list(range(1, 31))
