"""A few real scans go through the whole data stage. benchmarks/data.py --real takes all."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from factorizer.config.networks import network_of
from factorizer.data.cache import CaseStore, Preparation, preparation_for
from factorizer.data.cases import Cohort
from factorizer.data.check import targets_of
from factorizer.data.folds import read_folds, split_fold
from factorizer.data.images import read_image, read_label, turn_to_canonical
from factorizer.data.layouts import read_cohort
from factorizer.data.patches import PatchDataset
from factorizer.data.preprocess import Preprocessing, prepare_case, restore
from factorizer.preset_files import load_preset
from testkit.places import REAL_DATA, needs_real_data

COUNTS = {"Task04_Hippocampus": 200, "ISLES-2022": 200, "CHASEDB1": 20}
LAYOUTS = {"Task04_Hippocampus": "msd", "ISLES-2022": "isles", "CHASEDB1": "pairs"}
PATCHES = {"Task04_Hippocampus": (40, 56, 40), "ISLES-2022": (64, 64, 64), "CHASEDB1": (128, 128)}
pytestmark = [needs_real_data, pytest.mark.slow]


@pytest.fixture(params=COUNTS)
def cohort(request: pytest.FixtureRequest) -> Cohort:
    return read_cohort(REAL_DATA / request.param)


def test_all_cases_are_found(cohort: Cohort) -> None:
    assert cohort.layout == LAYOUTS[cohort.root.name]
    assert len(cohort.cases) == COUNTS[cohort.root.name]
    assert cohort.problems == ()


def test_some_cases_are_read_and_give_patches(cohort: Cohort, tmp_path: Path) -> None:
    spacing = load_preset("isles22").data.spacing_mm if cohort.layout == "isles" else None
    preparation = Preparation(
        cohort.channels, cohort.label_values, Preprocessing(spacing_mm=spacing)
    )
    names = [case.name for case in cohort.cases[:: len(cohort.cases) // 4]][:4]
    store = CaseStore(tmp_path, cohort.cases, preparation)
    assert store.prepare(names) == []
    patch = PATCHES[cohort.root.name]
    dataset = PatchDataset(
        store,
        names,
        length=4,
        patch_size=patch,
        targets=targets_of(cohort),
        seed=0,
        foreground_fraction=1.0,
    )
    for sample in dataset:
        assert sample["image"].shape == (len(cohort.channels), *patch)
        assert sample["image"].isfinite().all()
        assert sample["image"].std() > 0.1


def test_a_label_goes_to_the_grid_of_the_network_and_back(cohort: Cohort) -> None:
    """Exactly without resampling. With resampling, the same lesion up to its border."""
    case = cohort.cases[0]
    grid = read_image(case).grid
    label = read_label(case, cohort.label_values, grid)
    isles = cohort.layout == "isles"
    preprocessing = Preprocessing(spacing_mm=(2.0, 2.0, 2.0) if isles else None)
    prepared = prepare_case(
        case, preprocessing, channels=cohort.channels, label_values=cohort.label_values
    )
    assert prepared.label is not None
    back = restore(prepared.label[None], prepared.frame, "nearest")[0]
    assert back.shape == grid.shape
    back = turn_to_canonical(back[None], grid)[0]
    if isles:
        overlap = 2 * np.count_nonzero(back & label) / (back.sum() + label.sum())
        assert overlap > 0.8
    else:
        np.testing.assert_array_equal(back, label)


def test_the_published_folds_are_read() -> None:
    cohort = read_cohort(REAL_DATA / "ISLES-2022")
    folds = read_folds(REAL_DATA / "ISLES-2022" / "folds_published.csv", cohort.cases)
    assert {fold: len(names) for fold, names in folds.items()} == {1: 50, 2: 50, 3: 50, 4: 50}
    training, held_out = split_fold(folds, 2)
    assert len(training) == 150
    assert not set(training) & set(held_out)


def test_both_eyes_are_one_patient() -> None:
    cohort = read_cohort(REAL_DATA / "CHASEDB1")
    assert len({case.owner for case in cohort.cases}) == 10


def test_both_sides_of_a_hippocampus_scan_are_one_patient() -> None:
    """Their intensities agree in every pair, and hardly ever with the next scan's."""
    cases = read_cohort(REAL_DATA / "Task04_Hippocampus").cases
    medians = [float(np.median(read_image(case).array)) for case in cases]
    pairs = list(itertools.pairwise(zip(cases, medians, strict=True)))
    close = [abs(math.log(b / a)) < 0.1 for (_, a), (_, b) in pairs]
    same = [first.owner == second.owner for (first, _), (second, _) in pairs]
    assert same.count(True) == 55
    close_in_pairs = [agree for agree, is_pair in zip(close, same, strict=True) if is_pair]
    close_to_others = [agree for agree, is_pair in zip(close, same, strict=True) if not is_pair]
    assert all(close_in_pairs)
    assert sum(close_to_others) < 0.25 * len(close_to_others)


@pytest.mark.parametrize(
    ("preset", "folder"),
    [
        ("hippocampus", "Task04_Hippocampus"),
        ("isles22-small", "ISLES-2022"),
        ("chasedb1", "CHASEDB1"),
    ],
)
def test_presets_are_right_for_their_data(preset: str, folder: str, tmp_path: Path) -> None:
    """A patch with every region goes through the preset's network."""
    settings, cohort = load_preset(preset), read_cohort(REAL_DATA / folder)
    data = settings.data
    names = [case.name for case in cohort.cases[:2]]
    store = CaseStore(tmp_path, cohort.cases, preparation_for(cohort, data))
    patches = PatchDataset(
        store,
        names,
        length=2,
        patch_size=data.patch_size,
        targets=data.targets,
        seed=0,
        foreground_fraction=1.0,
        augmentation=data.augmentation,
    )
    voxels = [sample["target"].flatten(1).sum(1) for sample in patches]
    assert sum(voxels).min() > 10
    outputs = network_of(settings)(patches[0]["image"][None])
    assert outputs[0].shape == (1, settings.out_channels, *data.patch_size)
