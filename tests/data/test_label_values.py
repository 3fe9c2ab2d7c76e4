"""Names for the labels of a data set that does not name them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from factorizer.data.cases import Cohort
from factorizer.data.label_values import name_labels
from factorizer.data.layouts import read_cohort
from testkit.writing import random_image, random_label, write_msd, write_nifti


def write_labels(folder: Path, *labels: object) -> Cohort:
    for index, label in enumerate(labels):
        write_nifti(folder / "images" / f"{index}.nii.gz", random_image(index))
        write_nifti(folder / "labels" / f"{index}.nii.gz", label)
    return read_cohort(folder)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ((0, 1), {"foreground": 1}),
        ((0, 255), {"foreground": 1}),
        ((0,), {"foreground": 1}),
        ((0, 2), {"label2": 2}),  # 1 may just not occur
        ((0, 1, 2, 4), {"label1": 1, "label2": 2, "label4": 4}),
    ],
)
def test_names_are_made_from_values(
    tmp_path: Path, values: tuple[int, ...], labels: dict[str, int]
) -> None:
    cohort = name_labels(write_labels(tmp_path, random_label(0, values)))
    assert cohort.labels == labels
    named = {value: cohort.label_values[value] for value in values}
    assert set(named.values()) - {0} <= set(labels.values())


def test_values_come_from_all_files_that_can_be_used(tmp_path: Path) -> None:
    halves = random_label(0, (0, 1)).astype(np.float32) / 2
    noise = random_label(0, (0, 4)).astype(np.float32) + 1e-5
    usable = random_label(0, (0, 1))
    damaged = random_label(0, (0, 3))
    too_high = random_label(0, (0, 30)).astype(np.int16) * 30
    too_many = random_label(0, tuple(range(150)))
    negative = random_label(0, (0, 1)).astype(np.int16) * -1
    cohort = write_labels(tmp_path, usable, damaged, too_high, too_many, halves, noise, negative)
    (tmp_path / "labels" / "1.nii.gz").write_bytes(b"damaged")
    assert name_labels(cohort).labels == {"label1": 1, "label4": 4}


def test_names_of_the_data_set_come_first_then_those_of_a_preset(tmp_path: Path) -> None:
    described = read_cohort(write_msd(tmp_path / "msd"))
    assert name_labels(described, {"x": 1}) is described
    unnamed = write_labels(tmp_path / "unnamed", random_label(0, (0, 1)))
    named = name_labels(unnamed, {"core": 1, "rim": 2})
    assert named.labels == {"core": 1, "rim": 2}
    assert named.label_values == {0: 0, 1: 1, 2: 2}


def test_drawn_masks_are_foreground_with_a_warning(tmp_path: Path) -> None:
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
        Image.fromarray(random_label(0, (0, 127, 255), (20, 30))).save(tmp_path / folder / "a.png")
    cohort = name_labels(read_cohort(tmp_path))
    assert cohort.labels == {"foreground": 1}
    assert cohort.label_values[127] == cohort.label_values[255] == 1
    (warning,) = cohort.problems
    assert "its masks have the values 127, 255: all are read as foreground" in str(warning)
