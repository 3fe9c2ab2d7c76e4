"""What all layouts have in common: missing files, and folders that are no data set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from factorizer.data.cases import DataError
from factorizer.data.check import check_cohort
from factorizer.data.layouts import read_cohort
from testkit.writing import write_brats, write_isles, write_msd, write_nnunet


def test_a_mask_suffix_that_fits_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no image has a mask named NAME-x; correct the suffix"):
        read_cohort(write_msd(tmp_path), mask_suffix="-x")


def remove(folder: Path, pattern: str) -> None:
    next(folder.rglob(pattern)).unlink()


@pytest.mark.parametrize(
    ("write", "pattern", "left"),
    [
        (write_msd, "imagesTr/case_001.nii.gz", 2),
        (write_msd, "labelsTr/case_001.nii.gz", 2),
        (write_nnunet, "pat_0_0001.nii.gz", 1),
        (write_isles, "*0001_ses-0001_adc.nii.gz", 2),
        (lambda folder: write_brats(folder, ["a", "b"]), "a_t1ce.nii.gz", 1),
        (write_nnunet, "labelsTr/pat_1.nii.gz", 2),
        (write_isles, "*0001_ses-0001_msk.nii.gz", 3),
        (lambda folder: write_brats(folder, ["a", "b"]), "b_seg.nii.gz", 2),
    ],
)
def test_a_missing_file_is_named_and_the_other_cases_go_on(
    tmp_path: Path, write, pattern: str, left: int
) -> None:
    write(tmp_path)
    remove(tmp_path, pattern)
    cohort = read_cohort(tmp_path)
    assert len(cohort.cases) == left
    (problem,) = cohort.problems
    assert problem.file.endswith(pattern.replace("*", ""))
    assert "missing" in problem.message
    report = check_cohort(cohort)
    assert len(report.cases) == left
    of_them = sum(case.name == problem.case for case in report.cases)
    counts = f"{left} read, {of_them} of them with errors; {1 - of_them} could not be read"
    assert report.lines()["cases"] == counts


def test_what_is_no_data_set_is_said(tmp_path: Path) -> None:
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


def test_a_folder_without_permission_is_said(tmp_path: Path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match="the folder cannot be read; give yourself permission"):
        read_cohort(write_msd(tmp_path))
