"""Cases without some channels: which inputs may lack one, and what it becomes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from factorizer.data.cases import Case, DataError, Source
from factorizer.data.inputs import read_inputs
from factorizer.data.missing import note_missing, prepare_incomplete
from factorizer.data.preprocess import Preprocessing
from testkit.writing import (
    random_image,
    random_label,
    write_brats,
    write_isles,
    write_nifti,
    write_nnunet,
)

STROKE = ("DWI", "ADC")
TUMOUR = ("FLAIR", "T1", "T1Gd", "T2")


def write_files(folder: Path, *names: str) -> list[Path]:
    return [write_nifti(folder / f"{name}.nii.gz", random_image(0)) for name in names]


def isles(folder: Path) -> list[Path]:
    write_isles(folder, cases=2)
    next(folder.rglob("sub-strokecase0001*_adc.nii.gz")).unlink()
    return [folder]


def isles_case(folder: Path) -> list[Path]:
    return [isles(folder)[0] / "rawdata" / "sub-strokecase0001"]


def isles_file(folder: Path) -> list[Path]:
    return list(isles_case(folder)[0].rglob("*_dwi.nii.gz"))


def brats(folder: Path) -> list[Path]:
    write_brats(folder, ["a", "b"])
    (folder / "b" / "b_t1ce.nii.gz").unlink()
    return [folder]


def brats_case(folder: Path) -> list[Path]:
    return [brats(folder)[0] / "b"]


def nnunet(folder: Path) -> list[Path]:
    write_nnunet(folder)
    (folder / "imagesTr" / "pat_1_0001.nii.gz").unlink()
    return [folder]


def folders(folder: Path, *without_adc: str, endings: tuple[str, str] = ("dwi", "adc")) -> Path:
    for name in ("p1", "p2", "p3"):
        for ending in endings[: 1 if name in without_adc else 2]:
            write_files(folder / "images", f"{name}_{ending}")
        write_nifti(folder / "labels" / f"{name}.nii.gz", random_label(0, (0, 1)))
    return folder


def table(folder: Path, *rows: str, header: str = "case,DWI,ADC") -> list[Path]:
    write_files(folder, "a_dwi", "b_dwi", "a_adc")
    (folder / "list.csv").write_text("\n".join([header, *rows]))
    return [folder / "list.csv"]


def json_list(folder: Path) -> list[Path]:
    table(folder)
    entries = [{"case": "a", "DWI": "a_dwi.nii.gz", "ADC": None}]
    (folder / "list.json").write_text(json.dumps(entries))
    return [folder / "list.json"]


def loose(*names: str) -> Callable[[Path], list[Path]]:
    def write(folder: Path) -> list[Path]:
        write_files(folder, *names)
        return [folder]

    return write


def single(*names: str) -> Callable[[Path], list[Path]]:
    return lambda folder: write_files(folder, *names)


@pytest.mark.parametrize(
    ("write", "channels", "has", "refused"),
    [
        (isles, STROKE, {"sub-strokecase0001": "DWI"}, "_adc.nii.gz: the file is missing (ADC)"),
        (isles_case, STROKE, {"sub-strokecase0001": "DWI"}, "the file is missing (ADC)"),
        (isles_file, STROKE, {"sub-strokecase0001": "DWI"}, ""),
        (brats, TUMOUR, {"b": "FLAIR T1 T2"}, "b_t1ce.nii.gz: the file is missing (channel T1Gd)"),
        (brats_case, TUMOUR, {"b": "FLAIR T1 T2"}, "the file is missing (channel T1Gd)"),
        (nnunet, ("T2", "ADC"), {"pat_1": "T2"}, "0001.nii.gz: the file is missing (channel ADC)"),
        (lambda f: [folders(f, "p2")], STROKE, {"p2": "DWI"}, "p2_ADC.*: the file is missing"),
        (
            lambda f: [folders(f, "p2", "p3")],
            STROKE,
            {"p2": "DWI", "p3": "DWI"},
            "has the channels DWI, ADC, and the data set has DWI",
        ),
        (lambda f: [folders(f, "p2", endings=("0000", "0001"))], STROKE, {"p2": "DWI"}, "0001.*"),
        (lambda f: table(f, "a,a_dwi.nii.gz,"), STROKE, {"a": "DWI"}, "line 2: a has no ADC"),
        (lambda f: table(f, "a,,a_adc.nii.gz"), STROKE, {"a": "ADC"}, "line 2: a has no DWI"),
        (json_list, STROKE, {"a": "DWI"}, "entry 1: a has no ADC"),
        (loose("p1_dwi", "p1_adc", "p2_adc"), STROKE, {"p2": "ADC"}, "no file for channel DWI"),
        (loose("p1_0000", "p1_0001", "p2_0001"), STROKE, {"p2": "ADC"}, "p2 has the files 0001"),
        (single("p1_t1ce", "p1_flair"), TUMOUR, {"p1": "FLAIR T1Gd"}, "2 files for 4 channels"),
    ],
)
def test_a_case_may_lack_channels_only_if_the_model_takes_it(
    tmp_path: Path,
    write: Callable[[Path], list[Path]],
    channels: tuple[str, ...],
    has: dict[str, str],
    refused: str,
) -> None:
    paths = write(tmp_path)
    cases, problems = read_inputs(paths, channels, allow_missing=True)
    assert problems == []
    found = {case.name: " ".join(case.channels) for case in cases}
    assert {name: names for name, names in found.items() if len(names.split()) < len(channels)} == (
        has
    )
    try:
        cases, problems = read_inputs(paths, channels)
    except DataError as error:
        cases, problems = [], list(error.problems)
    assert refused in "\n".join(map(str, problems))
    for case in cases:
        assert len(case.channels) == len(channels)


def test_channels_that_most_cases_lack_are_found_where_they_are(tmp_path: Path) -> None:
    cases, _ = read_inputs([folders(tmp_path, "p2", "p3")], STROKE, allow_missing=True)
    assert cases[0].channels["ADC"].file.name == "p1_adc.nii.gz"


@pytest.mark.parametrize(
    ("write", "channels", "message"),
    [
        (lambda f: table(f, "a,,"), STROKE, "line 2: a has none of DWI, ADC"),
        (loose("p1_0000", "p2_0000"), STROKE, "p1 has the files 0000, but the model takes 2"),
        (isles, ("T1", "T2"), "has the channels T1, T2, and the data set has DWI, ADC"),
        (single("p1_t1", "p2_t2"), TUMOUR, "or files of one case that are named after their"),
        (single("p1_t1", "p1_x"), TUMOUR, "there are 2 files for 4 channels"),
        (single("p1_t1", "p1-t1n"), TUMOUR, "there are 2 files for 4 channels"),
    ],
)
def test_what_is_there_must_be_known(
    tmp_path: Path,
    write: Callable[[Path], list[Path]],
    channels: tuple[str, ...],
    message: str,
) -> None:
    paths = write(tmp_path)
    try:
        cases, problems = read_inputs(paths, channels, allow_missing=True)
    except DataError as error:
        cases, problems = [], list(error.problems)
    assert cases == []
    assert message in str(problems[0])


def test_a_case_with_none_of_the_channels_is_a_problem(tmp_path: Path) -> None:
    write_isles(tmp_path, cases=2, flair=True)
    next(tmp_path.rglob("sub-strokecase0001*_flair.nii.gz")).unlink()
    (case,), (problem,) = read_inputs([tmp_path], ("FLAIR", "T1"), allow_missing=True)
    assert case.name == "sub-strokecase0000"
    assert str(problem).startswith("sub-strokecase0001: it has none of FLAIR, T1 (it has DWI, ADC)")


def test_a_file_with_all_channels_stays_one(tmp_path: Path) -> None:
    file = write_nifti(tmp_path / "p1_dwi.nii.gz", np.ones((4, 4, 4, 2), np.float32))
    for path in (file, tmp_path):
        (case,), _ = read_inputs([path], STROKE, allow_missing=True)
        assert case.channels["ADC"] == Source(file, index=1, count=2)


@pytest.mark.parametrize("normalization", ["zscore-nonzero", "zscore", "none"])
@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_channel_is_zero_after_normalization(
    tmp_path: Path, normalization: str, missing: int
) -> None:
    """Clipping and normalization are those of the other channel alone."""
    image = np.zeros((9, 8, 7), np.float32)
    image[2:6, 1:5, 3:6] = np.random.default_rng(0).uniform(10, 20, (4, 4, 3))
    file = write_nifti(tmp_path / "x.nii.gz", image, np.eye(4))
    present = STROKE[1 - missing]
    clip = [(0.0, 1.0), (0.0, 1.0)]  # the missing channel's range would flatten the other
    clip[1 - missing] = (12.0, 18.0)
    preprocessing = Preprocessing(tuple(clip), None, True, normalization)  # type: ignore[arg-type]
    prepared = prepare_incomplete(
        Case("x", {present: Source(file)}), preprocessing, channels=STROKE
    )
    expected = np.clip(image, 12, 18)  # the background becomes 12, so nothing is cropped
    if normalization != "none":
        expected = (expected - expected.mean()) / expected.std()
    assert prepared.image.shape == (2, *expected.shape)
    assert not prepared.image[missing].any()
    np.testing.assert_allclose(prepared.image[1 - missing], expected, rtol=1e-4, atol=1e-5)


def test_the_box_is_that_of_the_channels_that_exist(tmp_path: Path) -> None:
    image = np.zeros((9, 8, 7), np.float32)
    image[2:6, 1:5, 3:6] = np.random.default_rng(0).uniform(10, 20, (4, 4, 3))
    file = write_nifti(tmp_path / "x.nii.gz", image, np.eye(4))
    prepared = prepare_incomplete(
        Case("x", {"ADC": Source(file)}), Preprocessing(), channels=STROKE
    )
    tissue = image[2:6, 1:5, 3:6]
    assert prepared.frame.box == (slice(2, 6), slice(1, 5), slice(3, 6))
    assert not prepared.image[0].any()
    expected = (tissue - tissue.mean()) / tissue.std()
    np.testing.assert_allclose(prepared.image[1], expected, rtol=1e-4, atol=1e-5)


def test_the_warning_says_what_is_done() -> None:
    assert note_missing("p1", []) == []
    (one,) = note_missing("p1", ["ADC"])
    assert one.severity == "warning"
    assert str(one) == "p1: ADC is missing; it is taken as zero, which the model was trained for"
    (two,) = note_missing("p1", ["T1", "T2"])
    assert "T1, T2 are missing; they are taken as zero" in str(two)


def test_without_any_channel_a_case_is_refused() -> None:
    with pytest.raises(DataError, match=r"channel DWI, ADC is missing \(the case has none\)"):
        prepare_incomplete(Case("x", {}), Preprocessing(), channels=STROKE)
