"""Labels to regions and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factorizer.preset_files import load_preset
from factorizer.targets import Targets

BRATS = load_preset("brats").data
EXCLUSIVE = Targets(
    {"anterior": 1, "posterior": 2}, {"front": ("anterior",), "back": ("posterior",)}
)
NESTED = BRATS.targets
OVERLAPPING = Targets({"a": 1, "b": 2, "c": 3}, {"A": ("a", "b"), "B": ("b", "c")})
MIXED = Targets({"a": 1, "b": 2, "c": 5}, {"all": ("a", "b", "c"), "one": ("a",), "two": ("b",)})


@pytest.mark.parametrize("targets", [EXCLUSIVE, NESTED, MIXED, OVERLAPPING])
@given(data=st.data())
def test_regions_turn_back_into_labels(targets, data) -> None:
    values = st.sampled_from([0, *targets.labels.values()])
    label_map = np.array(data.draw(st.lists(values, min_size=1, max_size=50)), np.uint8)
    masks = targets.masks(label_map)
    assert masks.shape == (len(targets.regions), len(label_map))
    np.testing.assert_array_equal(targets.label_map(masks), label_map)


def test_brats_regions_are_nested() -> None:
    et, tc, wt = NESTED.masks(np.array([0, 1, 2, 3]))
    assert et.tolist() == [False, False, False, True]
    assert tc.tolist() == [False, False, True, True]
    assert wt.tolist() == [False, True, True, True]


def test_the_smallest_region_decides_if_regions_are_not_nested() -> None:
    scores = np.array(
        [[0.9, 0.0, 0.6], [0.1, 0.9, 0.7], [0.2, 0.3, 0.8]]
    )  # ET, TC, WT of three voxels
    label_map = NESTED.label_map(scores)
    assert label_map.tolist() == [3, 2, 3]
    et, tc, wt = NESTED.masks(label_map)
    assert (et <= tc).all()
    assert (tc <= wt).all()


def test_the_more_probable_of_two_exclusive_regions_wins() -> None:
    scores = np.array([[0.9, 0.6, 0.7, 0.4], [0.6, 0.9, 0.7, 0.3]])
    assert EXCLUSIVE.label_map(scores).tolist() == [1, 2, 2, 0]


def test_the_threshold_is_used() -> None:
    assert EXCLUSIVE.label_map(np.array([[0.4], [0.0]]), threshold=0.3).tolist() == [1]


def test_a_region_is_painted_with_its_own_label() -> None:
    assert [NESTED.own_label(region) for region in BRATS.regions] == [
        "enhancing",
        "necrosis",
        "edema",
    ]
    union = {"a": ("x",), "b": ("y",), "both": ("y", "x")}
    assert Targets({"x": 1, "y": 2}, union).own_label("both") == "y"
