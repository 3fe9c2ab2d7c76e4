"""Training samples are functions of the seed and their number."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from factorizer.config import Augmentation
from factorizer.data.cache import CaseStore, Preparation
from factorizer.data.layouts import read_cohort
from factorizer.data.patches import PatchDataset, cut_patch, padding_of
from factorizer.data.preprocess import Preprocessing
from factorizer.targets import Targets
from testkit.writing import SHAPE, random_image, write_msd, write_nifti

LABELS, REGIONS = {"a": 1, "b": 2, "c": 3}, {"A": ("a",), "BC": ("b", "c")}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> CaseStore:
    folder = tmp_path_factory.mktemp("data")
    cohort = read_cohort(write_msd(folder / "set", cases=5, channels=["T1", "T2"]))
    preparation = Preparation(("T1", "T2"), cohort.label_values, Preprocessing())
    store = CaseStore(folder / "cache", cohort.cases, preparation)
    assert store.prepare(list(store.cases)) == []
    return store


def make(store: CaseStore, **options) -> PatchDataset:
    options = {
        "length": 24,
        "patch_size": (8, 8, 8),
        "seed": 3,
        "augmentation": Augmentation(),
    } | options
    return PatchDataset(store, list(store.cases), targets=Targets(LABELS, REGIONS), **options)


def test_a_sample_has_image_target_case_and_index(store: CaseStore) -> None:
    sample = make(store)[7]
    assert sample["image"].shape == (2, 8, 8, 8)
    assert sample["image"].dtype == torch.float32
    assert sample["target"].shape == (2, 8, 8, 8)
    assert set(sample["target"].unique().tolist()) <= {0.0, 1.0}
    assert sample["case"] in store.cases
    assert sample["index"] == 7


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
@pytest.mark.parametrize("workers", [1, 4])
def test_patches_do_not_depend_on_the_number_of_workers(store: CaseStore, workers: int) -> None:
    dataset = make(store)
    loader = DataLoader(dataset, batch_size=2, num_workers=workers)
    samples = []
    for batch in loader:
        samples += zip(batch["image"], batch["target"], batch["case"], strict=True)
    assert len(samples) == len(dataset)
    for index, (image, target, case) in enumerate(samples):
        expected = dataset[index]
        assert torch.equal(image, expected["image"])
        assert torch.equal(target, expected["target"])
        assert case == expected["case"]


def sum_of_sample(dataset: PatchDataset, index: int) -> float:
    return dataset[index]["image"].double().sum().item()


@pytest.mark.slow
def test_a_resumed_run_and_another_process_get_the_same(store: CaseStore) -> None:
    first, again = make(store), make(store, length=100)
    torch.manual_seed(9)  # global random numbers have no effect
    np.random.seed(9)
    assert torch.equal(first[20]["image"], again[20]["image"])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(sum_of_sample, (first, 20)) == first[20]["image"].double().sum().item()
    assert not torch.equal(first[20]["image"], make(store, seed=4)[20]["image"])


def test_every_case_comes_once_before_any_comes_again(store: CaseStore) -> None:
    dataset = make(store, length=20)
    names = [dataset[index]["case"] for index in range(20)]
    rounds = [tuple(names[start : start + 5]) for start in range(0, 20, 5)]
    for order in rounds:
        assert sorted(order) == sorted(store.cases)
    assert len(set(rounds)) > 1  # orders differ


def test_patches_cover_the_image(store: CaseStore) -> None:
    dataset = make(store, length=300, augmentation=None)
    starts = [dataset.patch_start(np.zeros(SHAPE), np.random.default_rng(i)) for i in range(300)]
    assert {start[0] for start in starts} == set(range(5))
    assert {start[2] for start in starts} == {0}


def test_foreground_patches_hold_a_labelled_voxel(tmp_path: Path) -> None:
    label = np.zeros((40, 40, 40), np.uint8)
    label[30, 5, 20] = 1
    write_msd(tmp_path, cases=1, channels=["T1"])
    write_nifti(tmp_path / "imagesTr" / "case_000.nii.gz", random_image(0, label.shape))
    write_nifti(tmp_path / "labelsTr" / "case_000.nii.gz", label)
    cohort = read_cohort(tmp_path)
    preparation = Preparation(
        ("T1",), cohort.label_values, Preprocessing(crop_to_nonzero=False, normalization="none")
    )
    store = CaseStore(tmp_path / "cache", cohort.cases, preparation)
    options = {"augmentation": None, "length": 200}
    always = make(store, foreground_fraction=1.0, **options)
    assert all(always[index]["target"].any() for index in range(50))
    sometimes = make(store, foreground_fraction=0.3, **options)
    hits = sum(int(sometimes[index]["target"].any()) for index in range(200))
    assert 0.2 < hits / 200 < 0.45


def test_small_images_are_padded_on_both_sides_with_background() -> None:
    image, label = np.ones((2, 5, 6, 7), np.float32), np.ones((5, 6, 7), np.uint8)
    x, y = cut_patch(image, label, (0, 0, 0), (8, 6, 4))
    assert x.shape == (2, 8, 6, 4)
    assert y.shape == (8, 6, 4)
    assert x[0, :, 0, 0].tolist() == [0, 1, 1, 1, 1, 1, 0, 0]
    assert y[:, 0, 0].tolist() == [0, 1, 1, 1, 1, 1, 0, 0]
    assert padding_of((5, 6, 7), (8, 6, 4)) == [(1, 2), (0, 0), (0, 0)]


def test_an_index_out_of_range_and_no_case_are_errors(store: CaseStore) -> None:
    with pytest.raises(IndexError, match="index is 24; samples go from 0 to 23"):
        make(store)[24]
    with pytest.raises(ValueError, match="names is empty; give at least one case"):
        PatchDataset(
            store, [], length=1, patch_size=(8, 8, 8), targets=Targets(LABELS, REGIONS), seed=0
        )


def test_samples_are_spread_evenly(store: CaseStore) -> None:
    counts = Counter(make(store, length=23)[i]["case"] for i in range(23))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_every_region_is_equally_likely_as_foreground(store: CaseStore) -> None:
    """A large label of no region is not looked for; a region of one voxel is, as often as one of a
    thousand."""
    label = np.full((40, 40, 40), 4, np.uint8)
    label[5:15, 5:15, 5:15], label[30, 30, 30] = 1, 3
    dataset = make(store, foreground_fraction=1.0)
    starts = [dataset.patch_start(label, np.random.default_rng(i)) for i in range(300)]
    around_voxel = np.mean([start == (26, 26, 26) for start in starts])
    assert 0.4 < around_voxel < 0.6
    assert all(max(start) <= 10 for start in starts if start != (26, 26, 26))
