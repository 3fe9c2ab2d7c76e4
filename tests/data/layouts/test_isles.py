"""The layout of ISLES'22."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from factorizer.data.cases import DataError
from factorizer.data.images import read_image
from factorizer.data.layouts import isles, read_cohort
from testkit.writing import write_isles, write_nifti


@pytest.mark.parametrize("rawdata", [True, False])
def test_isles(tmp_path: Path, rawdata: bool) -> None:
    cohort = read_cohort(write_isles(tmp_path, rawdata=rawdata, flair=True))
    assert cohort.layout == "isles"
    assert cohort.channels == ("DWI", "ADC")  # FLAIR is only for presets that want it
    assert [case.name for case in cohort.cases] == [f"sub-strokecase000{i}" for i in range(3)]
    assert cohort.problems == ()
    assert read_image(cohort.cases[0], ("DWI", "ADC", "FLAIR")).array.shape[0] == 3


def test_flair_must_be_on_the_grid_of_the_other_channels(tmp_path: Path) -> None:
    cohort = read_cohort(write_isles(tmp_path, flair=True))
    write_nifti(cohort.cases[0].channels["FLAIR"].file, np.ones((5, 5, 5), np.float32))
    with pytest.raises(
        DataError, match=r"channel FLAIR is not on the grid of DWI: its shape is \(5, 5, 5\)"
    ):
        read_image(cohort.cases[0], ("DWI", "ADC", "FLAIR"))
    assert read_image(cohort.cases[0], ("DWI", "ADC")).array.shape[0] == 2


def test_masks_may_be_in_a_folder_of_derivatives(tmp_path: Path) -> None:
    write_isles(tmp_path)
    (tmp_path / "derivatives").rename(tmp_path / "pipeline")
    (tmp_path / "derivatives").mkdir()
    (tmp_path / "pipeline").rename(tmp_path / "derivatives" / "pipeline")
    for folder in (tmp_path, tmp_path / "rawdata"):
        cohort = read_cohort(folder)
        assert cohort.problems == ()
        assert all(case.label for case in cohort.cases)


def test_a_bug_is_not_a_problem_of_the_data(tmp_path: Path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a bug")

    write_isles(tmp_path)
    monkeypatch.setattr(isles, "find_mask", fail)
    with pytest.raises(KeyError, match="a bug"):
        read_cohort(tmp_path)
