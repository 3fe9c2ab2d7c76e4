"""Labels to regions and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factorizer.data.regions import labels_to_regions, own_label, regions_to_labels
from factorizer.preset_files import load_preset

BRATS = load_preset("brats").data
EXCLUSIVE = ({"anterior": 1, "posterior": 2}, {"front": ("anterior",), "back": ("posterior",)})
NESTED = (BRATS.labels, BRATS.regions)
OVERLAPPING = ({"a": 1, "b": 2, "c": 3}, {"A": ("a", "b"), "B": ("b", "c")})
MIXED = ({"a": 1, "b": 2, "c": 5}, {"all": ("a", "b", "c"), "one": ("a",), "two": ("b",)})


@pytest.mark.parametrize(("labels", "regions"), [EXCLUSIVE, NESTED, MIXED, OVERLAPPING])
@given(data=st.data())
def test_labels_come_back(labels, regions, data) -> None:
    values = st.sampled_from([0, *labels.values()])
    label_map = np.array(data.draw(st.lists(values, min_size=1, max_size=50)), np.uint8)
    masks = labels_to_regions(label_map, labels, regions)
    assert masks.shape == (len(regions), len(label_map))
    np.testing.assert_array_equal(regions_to_labels(masks, labels, regions), label_map)


def test_brats_regions_are_nested() -> None:
    et, tc, wt = labels_to_regions(np.array([0, 1, 2, 3]), *NESTED)
    assert et.tolist() == [False, False, False, True]
    assert tc.tolist() == [False, False, True, True]
    assert wt.tolist() == [False, True, True, True]


def test_the_smallest_region_decides_where_the_nesting_is_violated() -> None:
    scores = np.array(
        [[0.9, 0.0, 0.6], [0.1, 0.9, 0.7], [0.2, 0.3, 0.8]]
    )  # ET, TC, WT of three voxels
    label_map = regions_to_labels(scores, *NESTED)
    assert label_map.tolist() == [3, 2, 3]
    et, tc, wt = labels_to_regions(label_map, *NESTED)
    assert (et <= tc).all()
    assert (tc <= wt).all()


def test_of_exclusive_regions_the_more_probable_wins() -> None:
    scores = np.array([[0.9, 0.6, 0.7, 0.4], [0.6, 0.9, 0.7, 0.3]])
    assert regions_to_labels(scores, *EXCLUSIVE).tolist() == [1, 2, 2, 0]


def test_the_threshold_counts() -> None:
    assert regions_to_labels(np.array([[0.4], [0.0]]), *EXCLUSIVE, threshold=0.3).tolist() == [1]


def test_a_region_is_painted_with_the_label_that_sets_it_apart() -> None:
    assert [own_label(region, BRATS.regions) for region in BRATS.regions] == [
        "enhancing",
        "necrosis",
        "edema",
    ]
    union = {"a": ("x",), "b": ("y",), "both": ("y", "x")}
    assert own_label("both", union) == "y"
