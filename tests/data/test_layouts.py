"""Every layout is recognized and read, and what is missing is said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from factorizer.data.cases import DataError
from factorizer.data.check import check_cohort
from factorizer.data.images import read_image, read_label
from factorizer.data.layouts import isles, read_cohort
from factorizer.data.matching import note_renamed_labels, select_channels, select_label_values
from factorizer.data.pictures import read_mask, read_picture
from factorizer.preset_files import load_preset
from testkit.writing import (
    random_label,
    write_brats,
    write_isles,
    write_msd,
    write_nifti,
    write_nnunet,
    write_pairs,
)

BRATS = load_preset("brats").data


def test_msd(tmp_path: Path) -> None:
    cohort = read_cohort(write_msd(tmp_path))
    assert cohort.layout == "msd"
    assert cohort.channels == ("FLAIR", "T1", "T1Gd", "T2")
    assert cohort.labels == {"a": 1, "b": 2, "c": 3}
    assert [case.name for case in cohort.cases] == ["case_000", "case_001", "case_002"]
    assert cohort.problems == ()
    image = read_image(cohort.cases[0], ("T2", "FLAIR"))
    assert image.array.shape == (2, 12, 10, 8)


def test_msd_with_one_channel(tmp_path: Path) -> None:
    cohort = read_cohort(write_msd(tmp_path, channels=["MRI"], labels=["Anterior", "Posterior"]))
    assert read_image(cohort.cases[0]).array.shape == (1, 12, 10, 8)
    assert select_channels(cohort, ["T1"]) == ("MRI",)  # another name for the only one


def test_channels_of_one_name_are_numbered(tmp_path: Path) -> None:
    write_nnunet(tmp_path)
    description = json.loads((tmp_path / "dataset.json").read_text())
    description["channel_names"] = {"0": "CT", "1": "CT"}
    (tmp_path / "dataset.json").write_text(json.dumps(description))
    cohort = read_cohort(tmp_path)
    assert cohort.channels == ("CT", "CT_1")
    first, second = read_image(cohort.cases[0]).array
    assert not np.array_equal(first, second)


def test_nnunet_reports_a_channel_too_many_and_reads_ignore_as_background(tmp_path: Path) -> None:
    write_nnunet(tmp_path, labels={"background": 0, "x": 1, "y": 2, "ignore": 3})
    write_nifti(tmp_path / "imagesTr" / "pat_0_0002.nii.gz", random_label(0))
    cohort = read_cohort(tmp_path)
    assert cohort.labels == {"x": 1, "y": 2}
    warning, error = cohort.problems
    assert warning.severity == "warning"
    assert "there are 3 channels, but dataset.json names 2" in error.message
    (case,) = cohort.cases
    label = read_label(case, cohort.label_values, read_image(case).grid)
    assert set(np.unique(label)) == {0, 1, 2}


def test_labels_go_by_name_where_the_names_are_the_same(tmp_path: Path) -> None:
    folder = write_nnunet(
        tmp_path, labels={"background": 0, "necrosis": 1, "edema": 2, "enhancing": 3}
    )
    assert select_label_values(read_cohort(folder), BRATS.labels) == {0: 0, 1: 2, 2: 1, 3: 3}
    other = write_nnunet(
        tmp_path / "b", labels={"background": 0, "necrosis": 1, "edema": 2, "other": 3}
    )
    with pytest.raises(DataError, match="are not the preset's"):
        select_label_values(read_cohort(other), BRATS.labels)


def test_nnunet(tmp_path: Path) -> None:
    cohort = read_cohort(write_nnunet(tmp_path))
    assert cohort.layout == "nnunet"
    assert cohort.channels == ("T2", "ADC")
    assert cohort.labels == {"x": 1, "y": 2, "z": 3}
    assert [case.name for case in cohort.cases] == ["pat_0", "pat_1"]
    assert cohort.regions == {}


def test_nnunet_regions(tmp_path: Path) -> None:
    labels = {"background": 0, "whole": [1, 2, 3], "core": [2, 3], "enhancing": 3}
    cohort = read_cohort(write_nnunet(tmp_path, labels=labels))
    assert cohort.labels == {"label1": 1, "label2": 2, "enhancing": 3}
    assert cohort.regions == {
        "whole": ("label1", "label2", "enhancing"),
        "core": ("label2", "enhancing"),
        "enhancing": ("enhancing",),
    }


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


@pytest.mark.parametrize(
    ("style", "name"), [("_", "BraTS2021_00001"), ("-", "BraTS-GLI-00001-000")]
)
def test_brats(tmp_path: Path, style: str, name: str) -> None:
    cohort = read_cohort(write_brats(tmp_path, [name], style=style))
    assert cohort.layout == "brats"
    assert cohort.channels == BRATS.channels
    assert cohort.cases[0].owner == {"_": name, "-": "BraTS-GLI-00001"}[style]


def test_brats_cases_one_level_down(tmp_path: Path) -> None:
    write_brats(tmp_path / "HGG", ["p1", "p2"])
    write_brats(tmp_path / "LGG", ["q1"])
    assert [case.name for case in read_cohort(tmp_path).cases] == ["p1", "p2", "q1"]


def test_two_files_for_one_channel_are_an_error(tmp_path: Path) -> None:
    write_brats(tmp_path, ["a", "b"])
    write_nifti(tmp_path / "a" / "copy_flair.nii.gz", random_label(0))
    cohort = read_cohort(tmp_path)
    assert [case.name for case in cohort.cases] == ["b"]
    assert "a_flair.nii.gz and copy_flair.nii.gz both end in _flair" in cohort.problems[0].message


def test_label_4_is_enhancing_tumour_only_where_it_was(tmp_path: Path) -> None:
    old = read_cohort(write_brats(tmp_path / "old", ["a"], style="_"))
    assert old.label_values == {0: 0, 1: 2, 2: 1, 3: 3, 4: 3}
    new = read_cohort(write_brats(tmp_path / "new", ["a"], style="-"))
    assert 4 not in new.label_values  # a resection cavity since 2024
    case = old.cases[0]
    assert case.label is not None
    write_nifti(case.label, random_label(0, (0, 3, 4)))
    with pytest.raises(DataError, match="its values 0, 3, 4 name a label twice"):
        read_label(case, old.label_values, read_image(case).grid)


def test_masks_in_the_folder_of_a_pipeline(tmp_path: Path) -> None:
    write_isles(tmp_path)
    (tmp_path / "derivatives").rename(tmp_path / "manual")
    (tmp_path / "derivatives").mkdir()
    (tmp_path / "manual").rename(tmp_path / "derivatives" / "manual")
    for folder in (tmp_path, tmp_path / "rawdata"):
        cohort = read_cohort(folder)
        assert cohort.problems == ()
        assert all(case.label for case in cohort.cases)


def test_the_three_ways_of_labelling_tumours_give_the_same_regions(tmp_path: Path) -> None:
    """Necrosis, oedema and enhancing tumour are 2, 1, 3 in the Decathlon, 1, 2, 4 or 1, 2, 3 in the
    challenge."""
    msd = random_label(0)
    to_old, to_new = np.array([0, 2, 1, 4]), np.array([0, 2, 1, 3])
    cohorts = [
        write_brats(tmp_path / "old", ["a"], style="_", labels=[to_old[msd].astype(np.uint8)]),
        write_brats(tmp_path / "new", ["a"], style="-", labels=[to_new[msd].astype(np.uint8)]),
        write_msd(tmp_path / "msd", cases=1),
    ]
    write_nifti(tmp_path / "msd" / "labelsTr" / "case_000.nii.gz", msd)
    masks = []
    for folder in cohorts:
        cohort = read_cohort(folder)
        case = cohort.cases[0]
        label = read_label(case, select_label_values(cohort, BRATS.labels), read_image(case).grid)
        masks.append(BRATS.targets.masks(label))
    np.testing.assert_array_equal(masks[0], masks[1])
    np.testing.assert_array_equal(masks[0], masks[2])
    assert masks[0].any()


def test_pairs(tmp_path: Path) -> None:
    cohort = read_cohort(write_pairs(tmp_path))
    assert cohort.layout == "pairs"
    assert [case.owner for case in cohort.cases] == ["Image_01", "Image_01", "Image_02"]
    image = read_image(cohort.cases[0])
    assert image.array.shape == (3, 20, 30)
    label = read_label(cohort.cases[0], cohort.label_values, image.grid)
    assert set(np.unique(label)) == {0, 1}  # 255 on disk


def test_pairs_with_another_suffix(tmp_path: Path) -> None:
    write_pairs(tmp_path, suffix="-vessels")
    with pytest.raises(DataError, match="no known layout"):
        read_cohort(tmp_path)
    assert len(read_cohort(tmp_path, mask_suffix="-vessels").cases) == 3


def test_grey_pictures_of_any_depth(tmp_path: Path) -> None:
    deep = np.random.default_rng(0).integers(0, 60_000, (20, 30)).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "a.png")
    Image.fromarray(255 * random_label(0, (0, 1), (20, 30))).save(tmp_path / "a_mask.png")
    cohort = read_cohort(tmp_path)
    assert cohort.channels == ("grey",)
    np.testing.assert_array_equal(read_image(cohort.cases[0]).array[0], deep)


@pytest.mark.parametrize("mode", ["P", "RGB", "1"])
def test_masks_of_any_kind(tmp_path: Path, mode: str) -> None:
    write_pairs(tmp_path, names=["a"])
    wanted = random_label(5, (0, 1), (20, 30))
    if mode == "P":
        mask = Image.fromarray(wanted, mode="P")
        mask.putpalette([0, 0, 0, 0, 255, 0])
    else:
        green = np.stack((0 * wanted, 255 * wanted, 0 * wanted), -1)
        mask = (
            Image.fromarray(green) if mode == "RGB" else Image.fromarray(255 * wanted).convert("1")
        )
    mask.save(tmp_path / "a_1stHO.png")
    (case,) = read_cohort(tmp_path).cases
    label = read_label(case, read_cohort(tmp_path).label_values, read_image(case).grid)
    np.testing.assert_array_equal(label, wanted)


def test_deep_masks_keep_their_classes(tmp_path: Path) -> None:
    values = np.array([[0, 1], [2, 1]])
    for name, array in {"a": values.astype(np.uint16), "b": 300 * values.astype(np.uint16)}.items():
        Image.fromarray(array).save(tmp_path / f"{name}.png")
    kept = read_mask("a", tmp_path / "a.png")
    np.testing.assert_array_equal(kept, values)
    foreground = read_mask("b", tmp_path / "b.png")
    np.testing.assert_array_equal(foreground, values > 0)


def test_a_second_observer_is_no_image(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    for name in ("Image_01L", "Image_01R", "Image_02L"):
        Image.fromarray(random_label(0, (0, 255), (20, 30))).save(tmp_path / f"{name}_2ndHO.png")
    cohort = read_cohort(tmp_path)
    assert len(cohort.cases) == 3
    assert cohort.problems == ()


def test_a_mask_suffix_that_fits_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no image has a mask named NAME-x; correct the suffix"):
        read_cohort(write_msd(tmp_path), mask_suffix="-x")


def test_hidden_files_are_not_cases(tmp_path: Path) -> None:
    write_nnunet(tmp_path)
    (tmp_path / "imagesTr" / "._pat_9_0000.nii.gz").write_bytes(b"x")
    assert len(read_cohort(tmp_path).cases) == 2


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


def test_a_case_that_is_listed_twice_is_named(tmp_path: Path) -> None:
    write_msd(tmp_path, cases=2)
    description = json.loads((tmp_path / "dataset.json").read_text())
    description["training"].append(description["training"][0])
    (tmp_path / "dataset.json").write_text(json.dumps(description))
    cohort = read_cohort(tmp_path)
    assert [case.name for case in cohort.cases] == ["case_001"]
    (problem,) = cohort.problems
    assert problem.case == "case_000"
    assert "stands for 2 cases" in problem.message


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "it is not JSON"),
        ("[]", "it holds no description"),
        (
            '{"modality": "MRI", "labels": {"1": "a"}, "training": []}',
            'modality is "MRI"; it should be names',
        ),
        (
            '{"modality": {"0": "MRI"}, "labels": ["a"], "training": []}',
            "labels is .*; it should be names with values",
        ),
        ('{"modality": {"0": "MRI"}, "training": []}', "labels is missing"),
        (
            '{"modality": {"0": "MRI"}, "labels": {"1": "a"}, "training": [{}]}',
            "image of an entry .* is missing",
        ),
        ('{"channel_names": {"0": "CT"}, "labels": {"background": 0}}', "its labels are none"),
        (
            '{"channel_names": {"0": "CT"}, "labels": {"a": 1e400}}',
            "label a is Infinity; it should be a whole number",
        ),
        (
            '{"channel_names": {"0": ["CT"]}, "labels": {"a": 1}}',
            "it should be text in quotation marks",
        ),
        (
            '{"channel_names": {"0": "CT"}, "labels": {"a": 1}, "file_ending": 5}',
            "file_ending is 5; it should be text",
        ),
        (
            '{"modality": {"0": "MRI"}, "labels": {"1": "a"}, "training": [{"image": 5}]}',
            "training is 5; it should be text",
        ),
        (
            json.dumps(
                {"modality": {str(i): "x" for i in range(99)}, "labels": {}, "training": []}
            ),
            "at most 64",
        ),
        ("[" * 200_000, "nested too deep"),
        (
            '{"channel_names": {"0": "CT"}, "labels": {"a": 300}}',
            "its labels are a = 300; give labels with values from",
        ),
    ],
)
def test_a_malformed_description_is_one_error(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "dataset.json").write_text(content)
    with pytest.raises(DataError, match=message):
        read_cohort(tmp_path)


def test_our_own_mistakes_are_not_blamed_on_a_description(tmp_path: Path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a mistake of ours")

    write_isles(tmp_path)
    monkeypatch.setattr(isles, "find_mask", fail)
    with pytest.raises(KeyError, match="a mistake of ours"):
        read_cohort(tmp_path)


def test_a_folder_without_permission_is_said(tmp_path: Path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match="the folder cannot be read; give yourself permission"):
        read_cohort(write_msd(tmp_path))


def test_channels_that_the_data_do_not_have_are_named(tmp_path: Path) -> None:
    cohort = read_cohort(write_isles(tmp_path))
    assert select_channels(cohort, ["ADC", "DWI"]) == ("ADC", "DWI")
    with pytest.raises(DataError, match="wants the channels DWI, T1, the data set has DWI, ADC"):
        select_channels(cohort, ["DWI", "T1"])


def test_a_jpeg_mask_is_what_is_brighter_than_half(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    wanted = np.zeros((64, 64), bool)
    wanted[10:40, 20:50] = True
    for file in tmp_path.glob("*_1stHO*"):
        file.unlink()
    for mode in ("L", "RGB"):
        Image.fromarray(255 * wanted.astype(np.uint8)).convert(mode).save(
            tmp_path / "m_1stHO.jpg", quality=60
        )
        ringing = read_picture("m", tmp_path / "m_1stHO.jpg")
        assert len(np.unique(ringing)) > 2
        read = read_mask("m", tmp_path / "m_1stHO.jpg")
        np.testing.assert_array_equal(read > 0, wanted)


def test_pictures_with_several_classes_or_several_masks_are_refused(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    cohort = read_cohort(tmp_path)
    Image.fromarray(random_label(0, (0, 1, 2), (20, 30))).save(cohort.cases[0].label)
    with pytest.raises(DataError, match="0, 1, 2 look like several classes"):
        read_label(cohort.cases[0], cohort.label_values, read_image(cohort.cases[0]).grid)
    Image.fromarray(random_label(0, (0, 255), (20, 30))).save(
        tmp_path / f"{cohort.cases[0].name}_mask.png"
    )
    with pytest.raises(DataError, match=r"NAME_1stHO and NAME_mask; set mask_suffix to"):
        read_cohort(tmp_path)
    assert len(read_cohort(tmp_path, mask_suffix="_1stHO").cases) == 3


def test_labels_taken_by_value_are_named(tmp_path: Path) -> None:
    cohort = read_cohort(
        write_nnunet(tmp_path, labels={"background": 0, "NCR": 1, "ED": 2, "ET": 3})
    )
    (warning,) = note_renamed_labels(cohort, BRATS.labels)
    assert warning.severity == "warning"
    assert "NCR as edema, ED as necrosis, ET as enhancing" in str(warning)
    assert (
        note_renamed_labels(cohort, {name.lower(): value for name, value in cohort.labels.items()})
        == []
    )
    report = check_cohort(cohort, targets=BRATS.targets)
    assert [p for p in report.problems if "taken by value" in p.message] == [warning]
