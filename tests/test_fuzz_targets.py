"""The targets of tools/fuzz.py hold for their own examples and for plain texts, and fail where a verifier does."""

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

PATH = Path(__file__).parents[1] / "tools" / "fuzz.py"
SPEC = importlib.util.spec_from_file_location("fuzz", PATH)
fuzz = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fuzz)
TARGETS = fuzz.all_targets()


@pytest.mark.parametrize("name", TARGETS)
@given(text=st.text(max_size=30))
@settings(deadline=None, max_examples=20)
def test_a_target_holds(name, text):
    check, examples = TARGETS[name]
    assert examples
    for example in (*examples, text, text + examples[0]):
        check(example)


def test_a_target_fails_where_a_verifier_does(monkeypatch):
    from oncurve.rewards import grounding

    check, examples = TARGETS["box01"]
    monkeypatch.setattr(grounding, "iou", lambda box, truth: float("nan"))
    with pytest.raises(AssertionError):
        check(examples[0])
