"""What `factorizer predict` is given: files, lists, folders and data sets."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from factorizer.data.cases import DataError
from factorizer.data.inputs import read_inputs
from factorizer.data.layouts import read_cohort
from factorizer.data.synthetic import write_synthetic
from testkit.writing import write_msd, write_nifti

CHANNELS = ("DWI", "ADC")


def write_channels(folder: Path, *names: str) -> list[Path]:
    return [
        write_nifti(folder / f"{name}.nii.gz", np.ones((4, 4, 4), np.float32)) for name in names
    ]


def test_inputs(tmp_path: Path) -> None:
    files = write_channels(tmp_path / "flat", "a_0000", "a_0001", "b_0000", "b_0001", "c_0000")
    (a, b), (problem,) = read_inputs([tmp_path / "flat"], CHANNELS)
    assert [a.name, b.name] == ["a", "b"]
    assert [a.channels[c].file for c in CHANNELS] == files[:2]
    assert "c has the files 0000, but the model takes 2 channels" in str(problem)
    (case,), _ = read_inputs(files[:2], CHANNELS)
    assert (case.name, case.channels["ADC"].file) == ("a", files[1])
    (whole,), _ = read_inputs(files[:1], CHANNELS)
    assert (whole.name, whole.channels["ADC"].index, whole.channels["ADC"].count) == (
        "a_0000",
        1,
        2,
    )
    table = tmp_path / "list.csv"
    table.write_text(
        "case,DWI,ADC\nx,flat/a_0000.nii.gz,flat/a_0001.nii.gz\ny,flat/b_0000.nii.gz,\n"
    )
    (x,), (problem,) = read_inputs([table], CHANNELS)
    assert x.channels["ADC"].file == tmp_path / "flat" / "a_0001.nii.gz"
    assert "y has no ADC" in str(problem)
    entries = [{"case": "z", "image": "flat/a_0000.nii.gz"}]
    (tmp_path / "list.json").write_text(json.dumps(entries))
    (z,), _ = read_inputs([tmp_path / "list.json"], CHANNELS)
    assert z.channels["DWI"].count == 2
    (tmp_path / "list.json").write_text(json.dumps([entries[0] | {"case": ".."}]))
    assert "do not call it" in str(read_inputs([tmp_path / "list.json"], CHANNELS)[1][0])
    for wrong, message in (
        ([tmp_path / "nothing"], "no such file or folder"),
        ([files[0], files[1], files[2]], "there are 3 files for 2 channels"),
        ([table.rename(tmp_path / "list.txt")], "it is not an image"),
    ):
        with pytest.raises(DataError, match=message):
            read_inputs(wrong, CHANNELS)


def test_inputs_that_mislead(tmp_path: Path) -> None:
    flat = tmp_path / "flat"
    for name in ("a.nii", "a.nii.gz", "b.nii.gz"):
        write_nifti(flat / name, np.ones((4, 4, 4, 2), np.float32))
    cases, (problem,) = read_inputs([flat], CHANNELS)
    assert [case.name for case in cases] == ["b"]
    assert "the name stands for 2 cases" in str(problem)
    numbered = tmp_path / "numbered"
    write_channels(
        numbered, "case_0011", "case_0012"
    )  # files with all channels, whose names end in numbers
    assert [case.name for case in read_inputs([numbered], CHANNELS)[0]] == [
        "case_0011",
        "case_0012",
    ]
    files = write_channels(tmp_path / "swapped", "sub-1_dwi", "sub-1_adc")
    (case,), _ = read_inputs(files, CHANNELS)
    assert case.name == "sub-1"
    with pytest.raises(DataError, match="it is named as ADC, but it is in the place of DWI"):
        read_inputs(files[::-1], CHANNELS)
    (tmp_path / "list.csv").write_text(
        "case,DWI,ADC\nx,swapped/sub-1_adc.nii.gz,swapped/sub-1_dwi.nii.gz\n"
    )
    assert "it is named as ADC" in str(read_inputs([tmp_path / "list.csv"], CHANNELS)[1][0])
    pair = write_channels(tmp_path / "pair", "p_0000", "p_0001")
    with pytest.raises(
        DataError, match="it has the number 0001, but it is in the place of DWI, 0000"
    ):
        read_inputs(pair[::-1], CHANNELS)
    with pytest.raises(DataError, match="it is given for 2 channels"):
        read_inputs([pair[0], pair[0]], CHANNELS)
    (tmp_path / "list.json").write_text(json.dumps([{"case": "../x", "image": "flat/b.nii.gz"}]))
    cases, (problem,) = read_inputs([tmp_path / "list.json"], CHANNELS)
    assert cases == []
    assert "leave out slashes" in str(problem)


def test_files_of_a_bids_data_set_are_named_as_its_cases(tmp_path: Path) -> None:
    for session in ("ses-0001", "ses-0002"):
        place = tmp_path / "rawdata" / "sub-1" / session / "dwi"
        files = write_channels(place, f"sub-1_{session}_dwi", f"sub-1_{session}_adc")
        (case,), _ = read_inputs(files, CHANNELS)
        assert case.name in {c.name for c in read_cohort(tmp_path).cases}
    assert case.name == "sub-1_ses-0002"


def test_another_kind_of_scan_is_refused(tmp_path: Path) -> None:
    for channel, accepted in (("T1", True), ("CT", False), ("pet", False)):
        write_msd(tmp_path / channel, channels=(channel,))
        if accepted:
            assert len(read_inputs([tmp_path / channel], ("MRI",))[0]) == 3
        else:
            with pytest.raises(
                DataError,
                match=f"wants the channels MRI, the data set has {channel}; choose another",
            ):
                read_inputs([tmp_path / channel], ("MRI",))


def test_a_folder_of_nothing_known_is_told_what_is_taken(tmp_path: Path) -> None:
    (tmp_path / "slice.dcm").write_bytes(b"0")
    with pytest.raises(
        DataError,
        match=r"DICOM must be converted first.*columns case, DWI, ADC, or a data set: nnU-Net",
    ):
        read_inputs([tmp_path], CHANNELS)


def test_a_missing_modality_is_named(tmp_path: Path) -> None:
    for name in ("flair", "t1", "t1ce"):
        write_nifti(
            tmp_path / "brats" / "case1" / f"case1_{name}.nii.gz", np.ones((4, 4, 4), np.float32)
        )
    for place in (tmp_path / "brats", tmp_path / "brats" / "case1"):
        cases, problems = read_inputs([place], ("FLAIR", "T1", "T1Gd", "T2"))
        assert cases == []
        assert "case1_t2.nii.gz: the file is missing (channel T2)" in str(problems[0])


def test_one_case_of_a_data_set(tmp_path: Path) -> None:
    write_synthetic("isles22", tmp_path / "strokes", cases=2, size=24, seed=0)
    (case,), problems = read_inputs(
        [tmp_path / "strokes" / "rawdata" / "sub-strokecase0002"], CHANNELS
    )
    assert case.name == "sub-strokecase0002"
    assert problems == []
    shutil.rmtree(tmp_path / "strokes" / "derivatives")
    cases, problems = read_inputs(
        [tmp_path / "strokes"], CHANNELS
    )  # to predict, labels are not needed
    assert len(cases) == 2
    assert problems == []


@pytest.mark.parametrize("separator", ["_", "-", "."])
def test_files_named_after_channels_are_one_case(tmp_path: Path, separator: str) -> None:
    files = write_channels(tmp_path, *(f"p{i}{separator}{c}" for i in "12" for c in ("ADC", "dwi")))
    cases, problems = read_inputs([tmp_path], CHANNELS)
    assert problems == []
    assert [case.name for case in cases] == ["p1", "p2"]
    assert [cases[1].channels[c].file for c in CHANNELS] == [files[3], files[2]]
    assert cases[1].channels["DWI"].count == 1


def test_spellings_of_channels_in_a_folder(tmp_path: Path) -> None:
    write_channels(tmp_path, *(f"sub-1_ses-2_{c}" for c in ("T2f", "t1n", "t1ce", "T2W")))
    (case,), problems = read_inputs([tmp_path], ("FLAIR", "T1", "T1Gd", "T2"))
    assert (case.name, problems) == ("sub-1_ses-2", [])
    assert case.channels["T1Gd"].file.name == "sub-1_ses-2_t1ce.nii.gz"


def test_an_incomplete_case_of_a_folder_names_the_missing_channel(tmp_path: Path) -> None:
    write_channels(tmp_path, "p1_dwi", "p1_adc", "p2_dwi", "p3_dwi", "p3_adc")
    write_nifti(tmp_path / "p3_DWI.nii", np.ones((4, 4, 4), np.float32))
    (case,), (second, third) = read_inputs([tmp_path], CHANNELS)
    assert case.name == "p1"
    assert "p2 has no file for channel ADC (it has p2_dwi.nii.gz); add p2_adc.nii.gz" in str(second)
    assert "p3_DWI.nii and p3_dwi.nii.gz are both named as channel DWI" in str(third)


def test_a_file_with_all_channels_may_be_named_after_one(tmp_path: Path) -> None:
    write_nifti(tmp_path / "p1_dwi.nii.gz", np.ones((4, 4, 4, 2), np.float32))
    (case,), problems = read_inputs([tmp_path], CHANNELS)
    assert (case.name, problems) == ("p1_dwi", [])
    assert case.channels["ADC"].count == 2


def test_other_contrasts_and_masks_of_a_case_are_left_out_with_a_word(tmp_path: Path) -> None:
    write_channels(tmp_path, "p1_dwi", "p1_adc", "p1_flair", "p1_msk", "other")
    cases, (warning,) = read_inputs([tmp_path], CHANNELS)
    assert [case.name for case in cases] == ["other", "p1"]
    assert warning.severity == "warning"
    assert "left out: p1_flair.nii.gz, p1_msk.nii.gz; the model takes DWI, ADC" in str(warning)
    cases, (warning,) = read_inputs([tmp_path], ("ADC",))
    assert [case.name for case in cases] == [
        "other",
        "p1_adc",
    ]  # a channel is a case, under its whole name
    assert "left out: p1_dwi.nii.gz, p1_flair.nii.gz, p1_msk.nii.gz" in str(warning)
    cases, problems = read_inputs(
        [tmp_path], ("MRI",)
    )  # no file is named so, and each may be meant
    assert len(cases) == 5
    assert problems == []


def test_pipes_are_refused_or_passed_over(tmp_path: Path) -> None:
    write_channels(tmp_path, "a")
    for name in ("b.nii.gz", "list.csv"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(DataError, match="a pipe or a device"):
            read_inputs([tmp_path / name], CHANNELS)
    assert [case.name for case in read_inputs([tmp_path], CHANNELS)[0]] == ["a"]


def test_a_list_with_semicolons_and_capitals(tmp_path: Path) -> None:
    write_channels(tmp_path, "x", "y")
    (tmp_path / "LIST.CSV").write_text(
        "CASE;adc;Dwi\r\n1;x.nii.gz;y.nii.gz\r\n", encoding="utf-8-sig"
    )
    (case,), problems = read_inputs([tmp_path / "LIST.CSV"], CHANNELS)
    assert problems == []
    assert case.channels["ADC"].file.name == "x.nii.gz"
    (tmp_path / "list.json").write_text(
        json.dumps([{"Case": 7, "IMAGE": "x.nii.gz"}]), encoding="utf-8-sig"
    )
    (case,), _ = read_inputs([tmp_path / "list.json"], CHANNELS)
    assert case.name == "7"


def test_a_folder_beside_cases_of_another_data_set_is_read_by_itself(tmp_path: Path) -> None:
    for name in ("flair", "t1", "t1ce", "t2"):
        write_nifti(tmp_path / "case1" / f"case1_{name}.nii.gz", np.ones((4, 4, 4), np.float32))
        for patient in ("p1", "p2"):
            write_nifti(
                tmp_path / "many" / f"{patient}_{name}.nii.gz", np.ones((4, 4, 4), np.float32)
            )
    write_channels(tmp_path / "scans", "a_dwi", "a_adc")
    for folder, channels, names in (
        ("scans", CHANNELS, ["a"]),
        ("many", ("FLAIR", "T1", "T1Gd", "T2"), ["p1", "p2"]),
    ):
        cases, problems = read_inputs([tmp_path / folder], channels)
        assert problems == []
        assert [case.name for case in cases] == names
    (tmp_path / "scans" / "a_adc.nii.gz").unlink()
    _, (problem,) = read_inputs([tmp_path / "scans"], CHANNELS)
    assert "a has no file for channel ADC" in str(problem)
