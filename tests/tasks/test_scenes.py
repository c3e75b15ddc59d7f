import dataclasses
from hashlib import sha256
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.tasks.scenes import MIN_APART, draw_scene, make_scene, names, sprite

indices = st.integers(0, 1_000_000)
max_things = st.integers(1, 4)


def test_the_first_held_out_scene_is_pinned():
    scene = make_scene("heldout", 0)
    assert scene.phrase == "the fish"
    assert scene.box == (0.078125, 0.375, 0.546875, 0.703125)
    digest = sha256(draw_scene(scene).tobytes()).hexdigest()
    assert digest == "e28ad3aa9e1afe5d9ed7aa5dae9a4f996135ae47796f004d46ad20de0fb5a9bd"


@settings(deadline=None, max_examples=20)
@given(indices, max_things)
def test_the_same_arguments_give_the_same_picture(index, max_things):
    first, again = (make_scene("train", index, max_things) for _ in range(2))
    assert first == again
    assert draw_scene(first).tobytes() == draw_scene(again).tobytes()


@pytest.mark.parametrize("size_px", [64, 128, 256])
def test_the_truth_is_exactly_the_bounds_of_the_visible_pixels(size_px):
    for index in range(40):
        scene = make_scene("train", index)
        with_it = np.asarray(draw_scene(scene, size_px))
        without = np.asarray(draw_scene(dataclasses.replace(scene, things=scene.things[1:]), size_px))
        rows, columns = np.nonzero((with_it != without).any(-1))
        bounds = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        assert bounds == tuple(corner * size_px for corner in scene.box)


@settings(deadline=None, max_examples=50)
@given(indices, st.sampled_from(["train", "heldout"]), max_things)
def test_the_phrase_is_true_of_the_thing_meant_and_of_no_other(index, split, max_things):
    scene = make_scene(split, index, max_things)
    meant = scene.things[0]
    assert len(scene.things) <= max_things
    assert all(0 <= x1 < x2 <= 64 and 0 <= y1 < y2 <= 64 for x1, y1, x2, y2 in (t.grid_box for t in scene.things))
    others = [thing for thing in scene.things[1:] if thing.name == meant.name]
    article, *word, name = scene.phrase.split(" ")
    assert (article, name) == ("the", meant.name)
    if not others:
        assert word == []
    for other in others:
        right, down = (there - here for here, there in zip(meant.center, other.center, strict=True))
        assert {
            "left": right >= MIN_APART,
            "right": -right >= MIN_APART,
            "top": down >= MIN_APART,
            "bottom": -down >= MIN_APART,
            "largest": meant.area >= 1.5 * other.area,
            "smallest": other.area >= 1.5 * meant.area,
        }[word[0]]


def test_every_word_occurs():
    phrases = [make_scene("train", index).phrase.split(" ") for index in range(400)]
    assert {words[1] for words in phrases if len(words) == 3} == {
        "left",
        "right",
        "top",
        "bottom",
        "largest",
        "smallest",
    }
    assert {words[-1] for words in phrases} == set(names())


def test_held_out_scenes_are_no_training_scenes():
    pictures = {
        split: {draw_scene(make_scene(split, index)).tobytes() for index in range(150)}
        for split in ("train", "heldout")
    }
    assert [len(found) for found in pictures.values()] == [150, 150]
    assert not pictures["train"] & pictures["heldout"]
    keys = {split: {make_scene(split, index).key for index in range(150)} for split in pictures}
    assert not keys["train"] & keys["heldout"]


def test_all_sprites_are_there_with_their_licence():
    assert len(names()) == 36
    assert {"cat", "dog"} <= set(names())
    for name in names():
        alpha = np.asarray(sprite(name))[..., 3]
        assert max(alpha.shape) == 64, name
        assert min(edge.max() for edge in (alpha[0], alpha[-1], alpha[:, 0], alpha[:, -1])) > 32, name
    licence = (resources.files("oncurve.tasks") / "sprites" / "LICENSE").read_text(encoding="utf-8")
    assert "Noto Color Emoji" in licence
    assert "SIL OPEN FONT LICENSE Version 1.1" in licence
    assert "Apache License" in licence
