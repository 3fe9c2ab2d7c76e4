"""The layout of nnU-Net raw data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from factorizer.data.images import read_image, read_label
from factorizer.data.layouts import read_cohort
from testkit.writing import random_label, write_nifti, write_nnunet


def test_nnunet(tmp_path: Path) -> None:
    cohort = read_cohort(write_nnunet(tmp_path))
    assert cohort.layout == "nnunet"
    assert cohort.channels == ("T2", "ADC")
    assert cohort.labels == {"x": 1, "y": 2, "z": 3}
    assert [case.name for case in cohort.cases] == ["pat_0", "pat_1"]
    assert cohort.regions == {}


def test_lists_of_values_are_regions(tmp_path: Path) -> None:
    labels = {"background": 0, "whole": [1, 2, 3], "core": [2, 3], "enhancing": 3}
    cohort = read_cohort(write_nnunet(tmp_path, labels=labels))
    assert cohort.labels == {"label1": 1, "label2": 2, "enhancing": 3}
    assert cohort.regions == {
        "whole": ("label1", "label2", "enhancing"),
        "core": ("label2", "enhancing"),
        "enhancing": ("enhancing",),
    }


def test_channels_with_the_same_name_get_numbers(tmp_path: Path) -> None:
    write_nnunet(tmp_path)
    description = json.loads((tmp_path / "dataset.json").read_text())
    description["channel_names"] = {"0": "CT", "1": "CT"}
    (tmp_path / "dataset.json").write_text(json.dumps(description))
    cohort = read_cohort(tmp_path)
    assert cohort.channels == ("CT", "CT_1")
    first, second = read_image(cohort.cases[0]).array
    assert not np.array_equal(first, second)


def test_a_file_without_a_named_channel_is_a_problem(tmp_path: Path) -> None:
    write_nnunet(tmp_path)
    write_nifti(tmp_path / "imagesTr" / "pat_0_0002.nii.gz", random_label(0))
    cohort = read_cohort(tmp_path)
    assert [case.name for case in cohort.cases] == ["pat_1"]
    (problem,) = cohort.problems
    assert "there are 3 channels, but dataset.json names 2" in problem.message


def test_the_label_ignore_is_read_as_background(tmp_path: Path) -> None:
    write_nnunet(tmp_path, labels={"background": 0, "x": 1, "y": 2, "ignore": 3})
    cohort = read_cohort(tmp_path)
    assert cohort.labels == {"x": 1, "y": 2}
    assert cohort.ignored == 3
    (warning,) = cohort.problems
    assert warning.is_warning
    case = cohort.cases[0]
    label = read_label(case, cohort.label_values, read_image(case).grid)
    assert set(np.unique(label)) == {0, 1, 2}


def test_hidden_files_are_not_cases(tmp_path: Path) -> None:
    write_nnunet(tmp_path)
    (tmp_path / "imagesTr" / "._pat_9_0000.nii.gz").write_bytes(b"x")
    assert len(read_cohort(tmp_path).cases) == 2
