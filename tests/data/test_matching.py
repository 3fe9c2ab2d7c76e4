"""Which channels and labels of a cohort a preset means."""

from __future__ import annotations

from pathlib import Path

import pytest

from factorizer.data.cases import DataError
from factorizer.data.check import check_cohort
from factorizer.data.layouts import read_cohort
from factorizer.data.matching import note_renamed_labels, select_channels, select_label_values
from factorizer.preset_files import load_preset
from testkit.writing import write_isles, write_nnunet

BRATS = load_preset("brats").data


def test_labels_match_by_name(tmp_path: Path) -> None:
    folder = write_nnunet(
        tmp_path, labels={"background": 0, "necrosis": 1, "edema": 2, "enhancing": 3}
    )
    assert select_label_values(read_cohort(folder), BRATS.labels) == {0: 0, 1: 2, 2: 1, 3: 3}
    other = write_nnunet(
        tmp_path / "b", labels={"background": 0, "necrosis": 1, "edema": 2, "other": 3}
    )
    with pytest.raises(DataError, match="are not the preset's"):
        select_label_values(read_cohort(other), BRATS.labels)


def test_channels_match_by_name(tmp_path: Path) -> None:
    cohort = read_cohort(write_isles(tmp_path))
    assert select_channels(cohort, ["ADC", "DWI"]) == ("ADC", "DWI")
    with pytest.raises(DataError, match="has the channels DWI, T1, and the data set has DWI, ADC"):
        select_channels(cohort, ["DWI", "T1"])


def test_labels_that_match_by_value_are_a_warning(tmp_path: Path) -> None:
    cohort = read_cohort(
        write_nnunet(tmp_path, labels={"background": 0, "NCR": 1, "ED": 2, "ET": 3})
    )
    (warning,) = note_renamed_labels(cohort, BRATS.labels)
    assert warning.severity == "warning"
    assert "NCR as edema, ED as necrosis, ET as enhancing" in str(warning)
    lower_case = {name.lower(): value for name, value in cohort.labels.items()}
    assert note_renamed_labels(cohort, lower_case) == []
    report = check_cohort(cohort, targets=BRATS.targets)
    assert warning in report.problems
