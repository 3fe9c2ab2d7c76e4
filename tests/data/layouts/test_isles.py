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
    assert cohort.channels == ("DWI", "ADC")  # FLAIR only for those who ask for it
    assert [case.name for case in cohort.cases] == [f"sub-strokecase000{i}" for i in range(3)]
    assert cohort.problems == ()
    assert read_image(cohort.cases[0], ("DWI", "ADC", "FLAIR")).array.shape[0] == 3


def test_flair_on_another_grid_is_refused(tmp_path: Path) -> None:
    cohort = read_cohort(write_isles(tmp_path, flair=True))
    write_nifti(cohort.cases[0].channels["FLAIR"].file, np.ones((5, 5, 5), np.float32))
    with pytest.raises(
        DataError, match=r"channel FLAIR is not on the grid of DWI: its shape is \(5, 5, 5\)"
    ):
        read_image(cohort.cases[0], ("DWI", "ADC", "FLAIR"))
    assert read_image(cohort.cases[0], ("DWI", "ADC")).array.shape[0] == 2


def test_masks_in_the_folder_of_a_pipeline(tmp_path: Path) -> None:
    write_isles(tmp_path)
    (tmp_path / "derivatives").rename(tmp_path / "manual")
    (tmp_path / "derivatives").mkdir()
    (tmp_path / "manual").rename(tmp_path / "derivatives" / "manual")
    for folder in (tmp_path, tmp_path / "rawdata"):
        cohort = read_cohort(folder)
        assert cohort.problems == ()
        assert all(case.label for case in cohort.cases)


def test_our_own_mistakes_are_not_blamed_on_a_description(tmp_path: Path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a mistake of ours")

    write_isles(tmp_path)
    monkeypatch.setattr(isles, "find_mask", fail)
    with pytest.raises(KeyError, match="a mistake of ours"):
        read_cohort(tmp_path)
