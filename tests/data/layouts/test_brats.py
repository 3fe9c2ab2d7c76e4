"""The layout of BraTS, before and since 2023."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from factorizer.data.cases import DataError
from factorizer.data.images import read_image, read_label
from factorizer.data.layouts import read_cohort
from factorizer.data.matching import select_label_values
from factorizer.preset_files import load_preset
from testkit.writing import random_label, write_brats, write_msd, write_nifti

BRATS = load_preset("brats").data


@pytest.mark.parametrize(
    ("style", "name"), [("_", "BraTS2021_00001"), ("-", "BraTS-GLI-00001-000")]
)
def test_brats(tmp_path: Path, style: str, name: str) -> None:
    cohort = read_cohort(write_brats(tmp_path, [name], style=style))
    assert cohort.layout == "brats"
    assert cohort.channels == BRATS.channels
    assert cohort.cases[0].owner == {"_": name, "-": "BraTS-GLI-00001"}[style]


def test_cases_may_be_in_groups(tmp_path: Path) -> None:
    write_brats(tmp_path / "HGG", ["p1", "p2"])
    write_brats(tmp_path / "LGG", ["q1"])
    assert [case.name for case in read_cohort(tmp_path).cases] == ["p1", "p2", "q1"]


def test_two_files_for_one_channel_are_a_problem(tmp_path: Path) -> None:
    write_brats(tmp_path, ["a", "b"])
    write_nifti(tmp_path / "a" / "copy_flair.nii.gz", random_label(0))
    cohort = read_cohort(tmp_path)
    assert [case.name for case in cohort.cases] == ["b"]
    assert "a_flair.nii.gz and copy_flair.nii.gz both end in _flair" in cohort.problems[0].message


def test_label_4_is_enhancing_tumour_only_before_2023(tmp_path: Path) -> None:
    old = read_cohort(write_brats(tmp_path / "old", ["a"], style="_"))
    assert old.label_values == {0: 0, 1: 2, 2: 1, 3: 3, 4: 3}
    new = read_cohort(write_brats(tmp_path / "new", ["a"], style="-"))
    assert 4 not in new.label_values  # since 2024 it is a resection cavity
    case = old.cases[0]
    assert case.label is not None
    write_nifti(case.label, random_label(0, (0, 3, 4)))
    with pytest.raises(DataError, match="its values 0, 3, 4 name a label twice"):
        read_label(case, old.label_values, read_image(case).grid)


def test_the_three_ways_of_labelling_tumours_give_the_same_regions(tmp_path: Path) -> None:
    """Necrosis, oedema and enhancing tumour are 2, 1, 3 in the Decathlon, and 1, 2, 4 or 1, 2, 3 in
    the challenge."""
    msd = random_label(0)
    to_old = np.array([0, 2, 1, 4])
    to_new = np.array([0, 2, 1, 3])
    folders = [
        write_brats(tmp_path / "old", ["a"], style="_", labels=[to_old[msd].astype(np.uint8)]),
        write_brats(tmp_path / "new", ["a"], style="-", labels=[to_new[msd].astype(np.uint8)]),
        write_msd(tmp_path / "msd", cases=1),
    ]
    write_nifti(tmp_path / "msd" / "labelsTr" / "case_000.nii.gz", msd)
    masks = []
    for folder in folders:
        cohort = read_cohort(folder)
        case = cohort.cases[0]
        label = read_label(case, select_label_values(cohort, BRATS.labels), read_image(case).grid)
        masks.append(BRATS.targets.masks(label))
    np.testing.assert_array_equal(masks[0], masks[1])
    np.testing.assert_array_equal(masks[0], masks[2])
    assert masks[0].any()
