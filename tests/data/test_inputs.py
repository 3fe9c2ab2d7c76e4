"""The cases to predict: files, lists, folders and data sets."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from factorizer.data.cases import DataError, Source
from factorizer.data.inputs import read_inputs
from factorizer.data.layouts import read_cohort
from factorizer.data.synthetic import write_synthetic
from testkit.writing import write_msd, write_nifti

CHANNELS = ("DWI", "ADC")


def write_channels(folder: Path, *names: str) -> list[Path]:
    ones = np.ones((4, 4, 4), np.float32)
    return [write_nifti(folder / f"{name}.nii.gz", ones) for name in names]


def test_numbered_files_of_a_folder(tmp_path: Path) -> None:
    files = write_channels(tmp_path, "a_0000", "a_0001", "b_0000", "b_0001", "c_0000")
    (a, b), (problem,) = read_inputs([tmp_path], CHANNELS)
    assert [a.name, b.name] == ["a", "b"]
    assert [a.channels[channel].file for channel in CHANNELS] == files[:2]
    assert "c has the files 0000, but the model takes 2 channels" in str(problem)


def test_high_numbers_are_part_of_a_name(tmp_path: Path) -> None:
    write_channels(tmp_path, "case_0011", "case_0012")
    cases, _ = read_inputs([tmp_path], CHANNELS)
    assert [case.name for case in cases] == ["case_0011", "case_0012"]


def test_files_of_one_case(tmp_path: Path) -> None:
    files = write_channels(tmp_path, "a_0000", "a_0001")
    (case,), _ = read_inputs(files, CHANNELS)
    assert case.name == "a"
    assert case.channels["ADC"].file == files[1]
    (whole,), _ = read_inputs(files[:1], CHANNELS)
    assert whole.name == "a_0000"
    assert whole.channels["ADC"] == Source(files[0], index=1, count=2)


def test_files_are_named_after_the_channels_of_the_model(tmp_path: Path) -> None:
    files = write_channels(tmp_path, "a_cine", "a_delayed")
    (case,), _ = read_inputs(files, ("Cine", "Delayed"))
    assert case.name == "a"


def test_lists_of_cases(tmp_path: Path) -> None:
    files = write_channels(tmp_path / "images", "a_0000", "a_0001", "b_0000")
    table = tmp_path / "list.csv"
    rows = ("x,images/a_0000.nii.gz,images/a_0001.nii.gz", "y,images/b_0000.nii.gz,")
    table.write_text("\n".join(["case,DWI,ADC", *rows]))
    (case,), (problem,) = read_inputs([table], CHANNELS)
    assert case.channels["ADC"].file == files[1]
    assert "y has no ADC" in str(problem)
    entries = [{"case": "z", "image": "images/a_0000.nii.gz"}]
    (tmp_path / "list.json").write_text(json.dumps(entries))
    (case,), _ = read_inputs([tmp_path / "list.json"], CHANNELS)
    assert case.channels["DWI"].count == 2


@pytest.mark.parametrize(
    ("name", "message"), [("..", "do not call it"), ("../x", "leave out slashes")]
)
def test_names_that_a_file_cannot_have_are_refused(tmp_path: Path, name: str, message: str) -> None:
    write_channels(tmp_path, "a")
    entries = [{"case": name, "image": "a.nii.gz"}]
    (tmp_path / "list.json").write_text(json.dumps(entries))
    cases, (problem,) = read_inputs([tmp_path / "list.json"], CHANNELS)
    assert cases == []
    assert message in str(problem)


def test_paths_that_cannot_be_inputs_are_refused(tmp_path: Path) -> None:
    files = write_channels(tmp_path, "a", "b", "c")
    (tmp_path / "list.txt").touch()
    for paths, message in (
        ([tmp_path / "nothing"], "no such file or folder"),
        (files, "there are 3 files for 2 channels"),
        ([tmp_path / "list.txt"], "it is not an image"),
    ):
        with pytest.raises(DataError, match=message):
            read_inputs(paths, CHANNELS)


def test_two_files_with_the_same_name_are_a_problem(tmp_path: Path) -> None:
    for name in ("a.nii", "a.nii.gz", "b.nii.gz"):
        write_nifti(tmp_path / name, np.ones((4, 4, 4, 2), np.float32))
    cases, (problem,) = read_inputs([tmp_path], CHANNELS)
    assert [case.name for case in cases] == ["b"]
    assert "the name stands for 2 cases" in str(problem)


def test_named_files_in_the_wrong_order_are_refused(tmp_path: Path) -> None:
    files = write_channels(tmp_path, "sub-1_dwi", "sub-1_adc")
    (case,), _ = read_inputs(files, CHANNELS)
    assert case.name == "sub-1"
    message = "it is named as ADC, but it is given as DWI"
    with pytest.raises(DataError, match=message):
        read_inputs(files[::-1], CHANNELS)
    table = tmp_path / "list.csv"
    table.write_text("case,DWI,ADC\nx,sub-1_adc.nii.gz,sub-1_dwi.nii.gz\n")
    _, (problem,) = read_inputs([table], CHANNELS)
    assert message in str(problem)


def test_numbered_files_in_the_wrong_order_are_refused(tmp_path: Path) -> None:
    files = write_channels(tmp_path, "p_0000", "p_0001")
    message = "it has the number 0001, but it is given as DWI, which is 0000"
    with pytest.raises(DataError, match=message):
        read_inputs(files[::-1], CHANNELS)
    with pytest.raises(DataError, match="it is given for 2 channels"):
        read_inputs([files[0], files[0]], CHANNELS)


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
            message = f"has the channels MRI, and the data set has {channel}; choose another"
            with pytest.raises(DataError, match=message):
                read_inputs([tmp_path / channel], ("MRI",))


def test_a_folder_without_images_is_an_error_that_lists_the_layouts(tmp_path: Path) -> None:
    (tmp_path / "slice.dcm").write_bytes(b"0")
    message = "DICOM must be converted first.*columns case, DWI, ADC, or a data set: nnU-Net"
    with pytest.raises(DataError, match=message):
        read_inputs([tmp_path], CHANNELS)


def test_a_missing_channel_of_a_data_set_is_named(tmp_path: Path) -> None:
    write_channels(tmp_path / "brats" / "case1", "case1_flair", "case1_t1", "case1_t1ce")
    for place in (tmp_path / "brats", tmp_path / "brats" / "case1"):
        cases, problems = read_inputs([place], ("FLAIR", "T1", "T1Gd", "T2"))
        assert cases == []
        assert "case1_t2.nii.gz: the file is missing (channel T2)" in str(problems[0])


def test_one_case_of_a_data_set(tmp_path: Path) -> None:
    write_synthetic("isles22", tmp_path / "strokes", cases=2, size=24, seed=0)
    folder = tmp_path / "strokes" / "rawdata" / "sub-strokecase0002"
    (case,), problems = read_inputs([folder], CHANNELS)
    assert case.name == "sub-strokecase0002"
    assert problems == []


def test_prediction_needs_no_labels(tmp_path: Path) -> None:
    write_synthetic("isles22", tmp_path / "strokes", cases=2, size=24, seed=0)
    shutil.rmtree(tmp_path / "strokes" / "derivatives")
    cases, problems = read_inputs([tmp_path / "strokes"], CHANNELS)
    assert len(cases) == 2
    assert problems == []


@pytest.mark.parametrize("separator", ["_", "-", "."])
def test_files_named_after_channels_are_one_case(tmp_path: Path, separator: str) -> None:
    names = [f"{case}{separator}" for case in ("p1", "p2")]
    write_channels(tmp_path, *(f"{name}dwi" for name in names))
    write_channels(tmp_path, *(f"{name}ADC" for name in names))
    cases, problems = read_inputs([tmp_path], CHANNELS)
    assert problems == []
    assert [case.name for case in cases] == ["p1", "p2"]
    for channel, ending in (("DWI", "dwi"), ("ADC", "ADC")):
        assert cases[1].channels[channel] == Source(tmp_path / f"p2{separator}{ending}.nii.gz")


def test_spellings_of_channels_in_a_folder(tmp_path: Path) -> None:
    spellings = ("T2f", "t1n", "t1ce", "T2W")
    write_channels(tmp_path, *(f"sub-1_ses-2_{spelling}" for spelling in spellings))
    (case,), problems = read_inputs([tmp_path], ("FLAIR", "T1", "T1Gd", "T2"))
    assert (case.name, problems) == ("sub-1_ses-2", [])
    assert case.channels["T1Gd"].file.name == "sub-1_ses-2_t1ce.nii.gz"


def test_a_missing_or_doubled_channel_of_a_folder_is_named(tmp_path: Path) -> None:
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


def test_other_contrasts_and_masks_of_a_case_are_left_out_with_a_warning(tmp_path: Path) -> None:
    write_channels(tmp_path, "p1_dwi", "p1_adc", "p1_flair", "p1_msk", "other")
    cases, (warning,) = read_inputs([tmp_path], CHANNELS)
    assert [case.name for case in cases] == ["other", "p1"]
    assert warning.severity == "warning"
    assert "left out: p1_flair.nii.gz, p1_msk.nii.gz; the model takes DWI, ADC" in str(warning)
    cases, (warning,) = read_inputs([tmp_path], ("ADC",))
    assert [case.name for case in cases] == ["other", "p1_adc"]  # the whole name of the file
    assert "left out: p1_dwi.nii.gz, p1_flair.nii.gz, p1_msk.nii.gz" in str(warning)
    cases, problems = read_inputs([tmp_path], ("MRI",))  # no file is named so: each is a case
    assert len(cases) == 5
    assert problems == []


def test_pipes_are_refused_or_skipped(tmp_path: Path) -> None:
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
    for channel in ("flair", "t1", "t1ce", "t2"):
        write_channels(tmp_path / "case1", f"case1_{channel}")
        write_channels(tmp_path / "many", f"p1_{channel}", f"p2_{channel}")
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
