"""A folder of images and a folder of labels, matched by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from factorizer.data.cases import DataError
from factorizer.data.check import check_cohort
from factorizer.data.images import read_image, read_label
from factorizer.data.layouts import read_cohort
from factorizer.data.matching import select_channels, select_label_values
from testkit.writing import random_image, random_label, write_nifti, write_pairs


def write_folders(
    folder: Path,
    endings: tuple[str, ...],
    *,
    names: tuple[str, ...] = ("p1", "p2", "p3"),
    suffix: str = "",
    places: tuple[str, str] = ("images", "labels"),
) -> Path:
    for index, name in enumerate(names):
        for channel, ending in enumerate(endings):
            write_nifti(
                folder / places[0] / f"{name}{ending}.nii.gz", random_image(10 * index + channel)
            )
        write_nifti(folder / places[1] / f"{name}{suffix}.nii.gz", random_label(index, (0, 1)))
    return folder


@pytest.mark.parametrize(
    "places", [("images", "labels"), ("Images", "masks"), ("imagesTr", "labelsTr")]
)
@pytest.mark.parametrize(
    ("endings", "suffix", "channels"),
    [
        (("",), "", ("image",)),
        (("",), "_seg", ("image",)),
        (("_0000", "_0001"), "", ("image0", "image1")),
        (("_dwi", "-adc"), "_mask", ("ADC", "DWI")),
        (("_flair", "_t1", "_t1ce", "_t2"), "", ("FLAIR", "T1", "T1Gd", "T2")),  # as in BraTS
        (("_image",), "_label", ("image",)),
        (("_t2_tra",), "", ("t2_tra",)),
    ],
)
def test_folders(
    tmp_path: Path,
    endings: tuple[str, ...],
    suffix: str,
    channels: tuple[str, ...],
    places: tuple[str, str],
) -> None:
    cohort = read_cohort(write_folders(tmp_path, endings, suffix=suffix, places=places))
    assert cohort.layout == "folders"
    assert cohort.channels == channels
    assert cohort.problems == ()
    assert [case.name for case in cohort.labelled] == ["p1", "p2", "p3"]
    report = check_cohort(cohort)
    assert report.errors == []
    assert report.labels == {"foreground": 1}


def test_numbered_channels_are_taken_in_their_order(tmp_path: Path) -> None:
    cohort = read_cohort(write_folders(tmp_path, ("_0000", "_0001")))
    named = select_channels(cohort, ("DWI", "ADC"))
    expected = np.stack((random_image(10), random_image(11)))
    np.testing.assert_array_equal(read_image(cohort.case("p2"), named).array, expected)
    assert select_label_values(cohort, {"lesion": 1}) == {0: 0, 1: 1, 255: 1}


def test_a_case_may_begin_with_the_name_of_another_or_end_in_a_number(tmp_path: Path) -> None:
    write_folders(tmp_path, ("",), names=("p", "p_0000", "p_0001", "p_dwi"))
    # p has its file already, so p_x is not a channel of p
    write_nifti(tmp_path / "images" / "p_x.nii.gz", random_image(9))
    cohort = read_cohort(tmp_path)
    assert [case.name for case in cohort.labelled] == ["p", "p_0000", "p_0001", "p_dwi"]
    (problem,) = cohort.problems
    assert "labels/p_x.*: the file is missing (its label)" in str(problem)
    other = write_folders(tmp_path / "other", ("_dwi", "_adc"), names=("p", "p_a"))
    assert [case.name for case in read_cohort(other).labelled] == ["p", "p_a"]


def test_files_that_do_not_fit_are_named_and_the_other_cases_are_kept(tmp_path: Path) -> None:
    write_folders(tmp_path, ("_dwi", "_adc"), names=tuple("abcdef"))
    (tmp_path / "images" / "a_adc.nii.gz").unlink()
    (tmp_path / "labels" / "b.nii.gz").unlink()
    write_nifti(tmp_path / "labels" / "c_seg.nii.gz", random_label(0))
    write_nifti(tmp_path / "labels" / "z.nii.gz", random_label(0))
    write_nifti(tmp_path / "images" / "d_DWI.nii", random_image(0))
    write_nifti(tmp_path / "images" / "e_flair.nii.gz", random_image(0))  # no other case has it
    cohort = read_cohort(tmp_path)
    assert [case.name for case in cohort.cases] == ["b", "c", "e", "f"]
    assert [case.name for case in cohort.labelled] == ["e", "f"]
    lines = "\n".join(map(str, cohort.problems))
    for expected in (
        "images/a_ADC.*: the file is missing (channel ADC)",
        "labels/b.*: the file is missing (its label)",
        "c.nii.gz and c_seg.nii.gz are labels of the same case; keep the right one",
        "labels/z.nii.gz: the label has no image",
        "the case has the files d_DWI.nii and d_dwi.nii.gz and d_adc.nii.gz; keep one per channel",
    ):
        assert expected in lines
    assert len(cohort.problems) == 5


def test_a_case_unlike_most_is_a_problem(tmp_path: Path) -> None:
    write_folders(tmp_path, ("_dwi", "_adc"))
    write_folders(tmp_path, ("",), names=("q",))
    cohort = read_cohort(tmp_path)
    assert [case.name for case in cohort.cases] == ["p1", "p2", "p3"]
    expected = "the case has q.nii.gz, unlike most, which have files that end in ADC, DWI"
    assert expected in str(cohort.problems[0])


def test_two_folders_of_labels_are_an_error(tmp_path: Path) -> None:
    write_folders(tmp_path, ("",))
    write_folders(tmp_path, ("",), places=("images", "masks"))
    message = "it holds the folders labels and masks; keep the right one"
    with pytest.raises(DataError, match=message):
        read_cohort(tmp_path)


def test_files_with_several_channels(tmp_path: Path) -> None:
    for name in "ab":
        write_nifti(tmp_path / "images" / f"{name}.nii.gz", random_image(0, (12, 10, 8, 3)))
        write_nifti(tmp_path / "labels" / f"{name}.nii.gz", random_label(0, (0, 2, 5)))
    cohort = read_cohort(tmp_path)
    assert cohort.channels == ("image0", "image1", "image2")
    assert check_cohort(cohort).labels == {"label2": 2, "label5": 5}


@pytest.mark.parametrize("suffix", ["", "_mask", "-vessels"])
def test_folders_of_2d_images_read_like_pairs(tmp_path: Path, suffix: str) -> None:
    pairs = write_pairs(tmp_path / "pairs")
    for folder, ending in (("images", ""), ("labels", "_1stHO")):
        (tmp_path / "set" / folder).mkdir(parents=True)
        for name in ("Image_01L", "Image_01R", "Image_02L"):
            target = f"{name}{suffix if ending else ''}.png"
            (tmp_path / "set" / folder / target).symlink_to(pairs / f"{name}{ending}.png")
    is_usual = suffix != "-vessels"
    cohort = read_cohort(tmp_path / "set", mask_suffix=None if is_usual else suffix)
    assert cohort.layout == "folders"
    assert cohort.channels == ("red", "green", "blue")
    assert cohort.problems == ()
    assert [case.owner for case in cohort.labelled] == ["Image_01", "Image_01", "Image_02"]
    values = select_label_values(cohort, {"vessel": 1})
    expected = read_cohort(pairs)
    for case, other in zip(cohort.cases, expected.cases, strict=True):
        grid = read_image(case).grid
        np.testing.assert_array_equal(
            read_label(case, values, grid), read_label(other, expected.label_values, grid)
        )
    assert check_cohort(cohort).labels == {"foreground": 1}


def test_masks_may_number_classes(tmp_path: Path) -> None:
    classes = Image.fromarray(random_label(0, (0, 1, 2), (20, 30)))
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
        for name in "ab":
            classes.save(tmp_path / folder / f"{name}.png")
    cohort = read_cohort(tmp_path)
    assert cohort.channels == ("grey",)
    assert check_cohort(cohort).labels == {"label1": 1, "label2": 2}
    assert check_cohort(cohort).errors == []
