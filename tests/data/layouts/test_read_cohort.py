"""What all layouts have in common: missing files, and folders that are not a data set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from factorizer.data.cases import DataError
from factorizer.data.check import check_cohort
from factorizer.data.layouts import UnknownLayout, read_cohort
from testkit.writing import (
    random_label,
    write_brats,
    write_isles,
    write_msd,
    write_nifti,
    write_nnunet,
    write_pairs,
)


def test_a_mask_suffix_without_any_mask_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no image has a mask named NAME-x; correct the suffix"):
        read_cohort(write_msd(tmp_path), mask_suffix="-x")


def write_two_brats(folder: Path) -> Path:
    return write_brats(folder, ["a", "b"])


@pytest.mark.parametrize(
    ("write", "pattern", "left"),
    [
        (write_msd, "imagesTr/case_001.nii.gz", 2),
        (write_msd, "labelsTr/case_001.nii.gz", 2),
        (write_nnunet, "pat_0_0001.nii.gz", 1),
        (write_isles, "*0001_ses-0001_adc.nii.gz", 2),
        (write_two_brats, "a_t1ce.nii.gz", 1),
        (write_nnunet, "labelsTr/pat_1.nii.gz", 2),
        (write_isles, "*0001_ses-0001_msk.nii.gz", 3),
        (write_two_brats, "b_seg.nii.gz", 2),
    ],
)
def test_a_missing_file_is_named_and_the_other_cases_are_kept(
    tmp_path: Path, write, pattern: str, left: int
) -> None:
    write(tmp_path)
    next(tmp_path.rglob(pattern)).unlink()
    cohort = read_cohort(tmp_path)
    assert len(cohort.cases) == left
    (problem,) = cohort.problems
    assert problem.file.endswith(pattern.replace("*", ""))
    assert "missing" in problem.message
    report = check_cohort(cohort)
    assert len(report.cases) == left
    wrong = 1 if problem.case in {case.name for case in report.cases} else 0
    counts = f"{left} read, {wrong} of them with errors; {1 - wrong} could not be read"
    assert report.lines()["cases"] == counts


def test_paths_without_a_data_set_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such folder"):
        read_cohort(tmp_path / "nowhere")
    (tmp_path / "scan.zip").touch()
    with pytest.raises(DataError, match="it is a file, not a folder; unpack it"):
        read_cohort(tmp_path / "scan.zip")
    (tmp_path / "scan.zip").unlink()
    with pytest.raises(DataError, match="the folder is empty"):
        read_cohort(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DataError, match="arrange it as one of: nnU-Net"):
        read_cohort(tmp_path)


def test_a_folder_without_permission_is_an_error(tmp_path: Path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match="the folder cannot be read; change its permissions"):
        read_cohort(write_msd(tmp_path))


def test_the_error_for_an_unknown_layout_lists_all_layouts(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UnknownLayout) as caught:
        read_cohort(tmp_path)
    for name in ("nnU-Net", "Decathlon", "ISLES", "images and labels", "BraTS", "pairs", "CSV"):
        assert name in str(caught.value)


def test_the_first_layout_that_fits_is_taken(tmp_path: Path) -> None:
    """Files in folders of images and labels may be named as in BraTS."""
    write_brats(tmp_path, ["images"])
    assert read_cohort(tmp_path).layout == "brats"
    write_nifti(tmp_path / "labels" / "images.nii.gz", random_label(0))
    assert read_cohort(tmp_path).layout == "folders"


def test_with_a_mask_suffix_pairs_come_before_folders(tmp_path: Path) -> None:
    for folder in ("images", "labels"):
        write_pairs(tmp_path / folder, suffix="_mask")
    assert read_cohort(tmp_path, mask_suffix="_mask").layout == "folders"
    write_pairs(tmp_path, suffix="_mask")
    assert read_cohort(tmp_path).layout == "folders"
    assert read_cohort(tmp_path, mask_suffix="_mask").layout == "pairs"
