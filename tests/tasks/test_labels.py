import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.tasks.labels import loosen

BOX = (0.4, 0.3, 0.6, 0.7)  # 0.2 wide, 0.4 high


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=20), st.floats(0, 1))
def test_each_side_moves_outwards_by_at_most_its_share(key, looseness):
    x1, y1, x2, y2 = loosen(BOX, looseness, key)
    reach_x, reach_y = looseness * 0.2 + 1e-12, looseness * 0.4 + 1e-12
    assert max(0, 0.4 - reach_x) <= x1 <= 0.4
    assert 0.6 <= x2 <= min(1, 0.6 + reach_x)
    assert max(0, 0.3 - reach_y) <= y1 <= 0.3
    assert 0.7 <= y2 <= min(1, 0.7 + reach_y)


def test_no_looseness_is_the_truth():
    assert loosen(BOX, 0.0, "any") == BOX


def test_the_picture_is_the_limit():
    assert loosen((0.0, 0.0, 1.0, 1.0), 1.0, "any") == (0.0, 0.0, 1.0, 1.0)


def test_a_key_gives_one_label_and_sides_move_apart():
    labels = [loosen(BOX, 0.3, f"scenes:train/{index}") for index in range(2_000)]
    assert labels[5] == loosen(BOX, 0.3, "scenes:train/5")
    assert len(set(labels)) == 2_000
    shares = [((0.4 - x1) / 0.2, (0.3 - y1) / 0.4, (x2 - 0.6) / 0.2, (y2 - 0.7) / 0.4) for x1, y1, x2, y2 in labels]
    for side in zip(*shares, strict=True):
        assert sum(side) / len(side) == pytest.approx(
            0.15, abs=0.01
        )  # the mean of uniform(0, 0.3); deviation here 0.002
        assert max(side) > 0.29
    assert all(len({round(share, 6) for share in sides}) == 4 for sides in shares)
