"""How channels are recognized, and the plan for a data set."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from typer.testing import CliRunner

from factorizer import plan_data
from factorizer.cli import app
from factorizer.data.cases import DataError
from factorizer.data.check import check_cohort
from factorizer.data.images import read_image
from factorizer.data.intensities import describe_intensities, judge_channel
from factorizer.data.layouts import read_cohort
from factorizer.data.plan import plan_preset, round_range
from factorizer.preset_files import load_preset
from testkit.places import REAL_DATA, needs_real_data
from testkit.writing import write_isles, write_msd, write_nifti

SHAPE = (24, 24, 24)
NAMELESS = "channel 1"
runner = CliRunner()


def body() -> Any:
    """A ball, a third of the volume."""
    grid = np.indices(SHAPE) - 11.5
    return np.sqrt((grid**2).sum(axis=0)) < 10


def ct(air: float, padding: float | None, seed: int = 0) -> Any:
    """Tissue of 0 to 100 HU in air, and corners that the scanner did not see."""
    generator = np.random.default_rng(seed)
    scan = np.where(body(), generator.uniform(0, 100, SHAPE), air + generator.normal(0, 10, SHAPE))
    if padding is not None:
        corners = np.abs(np.indices(SHAPE) - 11.5).sum(axis=0) > 20
        scan[corners] = padding
    return np.rint(scan).astype(np.int16)


def mri(seed: int = 0) -> Any:
    """A skull-stripped brain with zeros around it."""
    return np.where(body(), np.random.default_rng(seed).gamma(9, 20, SHAPE), 0).astype(np.float32)


def judge(array: Any, name: str = NAMELESS) -> str:
    return judge_channel(name, [describe_intensities(np.asarray(array, np.float32))]).kind


@pytest.mark.parametrize("air", [-1000, -1024])
@pytest.mark.parametrize("padding", [None, -2000, -3024, 0])
def test_ct_is_recognized_by_its_air(air: float, padding: float | None) -> None:
    assert judge(ct(air, padding)) == "CT"
    assert judge(ct(air, padding), "CT") == "CT"


def test_ct_without_air_needs_its_name() -> None:
    """The inside of a belly: fat at -100, organs at 50."""
    belly = np.random.default_rng(0).choice([-100, 50], SHAPE, p=[0.3, 0.7])
    assert judge(belly, "venous CT") == "CT"
    assert judge(belly) == "signed"


def test_a_spike_below_zero_is_not_ct() -> None:
    for name in (NAMELESS, "ADC"):
        scan = mri() * 1e-5
        scan[0, 0, 0], scan[12, 12, 12] = -50, 3
        assert judge(scan, name) == "air at zero"


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        (
            "signed",
            np.random.default_rng(0).normal(0, 0.05, SHAPE),
        ),  # susceptibility, in parts per million
        ("signed", np.random.default_rng(0).integers(-4096, 4096, SHAPE)),  # phase
        ("signed", (mri() - mri().mean()) / mri().std()),  # a z-score over everything
        (
            "air at zero",
            np.where(body(), np.random.default_rng(0).normal(0, 1, SHAPE), 0),
        ),  # over the brain only
        (
            "air at zero",
            mri() + np.random.default_rng(0).normal(0, 2, SHAPE),
        ),  # interpolated: air of both signs
        ("air at zero", mri() + 1),  # no zero at all
    ],
    ids=[
        "susceptibility",
        "phase",
        "z-score",
        "z-score of the brain",
        "bias corrected",
        "positive",
    ],
)
def test_mri_without_a_name_is_recognized_by_the_bulk_of_its_voxels(kind: str, array: Any) -> None:
    assert judge(array) == kind
    assert judge(array, "T2w") == "air at zero"


def test_zeros_that_a_scaled_file_has_rounded_are_zeros() -> None:
    assert describe_intensities(mri() - np.float32(0.002)).zero == describe_intensities(mri()).zero


def test_a_name_counts_even_if_the_voxels_contradict_it() -> None:
    judged = judge_channel("MRI", [describe_intensities(ct(-1000, None))])
    assert judged.kind == "air at zero"
    assert "although 69 % of voxels have the values of air in CT" in judged.reason


def test_the_median_case_decides() -> None:
    cases = [describe_intensities(array) for array in (mri(0), mri(1), ct(-1000, None))]
    assert judge_channel(NAMELESS, cases).kind == "air at zero"
    assert judge_channel(NAMELESS, [*cases[1:], cases[-1]]).kind == "CT"


@pytest.mark.parametrize(
    ("ends", "rounded"),
    [
        ((0.000208371, 0.003259182), (0.000208, 0.003259)),
        ((-50.0512, 148.7498), (-50.1, 148.7)),
        ((-1000.04, 2000.06), (-1000.0, 2000.1)),
        ((0.12345, 0.98765), (0.1235, 0.9877)),
    ],
)
def test_a_clip_range_keeps_enough_digits(
    ends: tuple[float, float], rounded: tuple[float, float]
) -> None:
    assert round_range(*ends) == rounded


def write_scans(folder: Path, arrays: list[Any], name: str) -> Path:
    """A data set in nnU-Net's layout. The inner part is labelled."""
    label = np.zeros(SHAPE, np.uint8)
    label[8:16, 8:16, 8:16] = 1
    for index, array in enumerate(arrays):
        write_nifti(folder / "imagesTr" / f"pat_{index}_0000.nii.gz", array)
        write_nifti(folder / "labelsTr" / f"pat_{index}.nii.gz", label)
    about = {
        "channel_names": {"0": name},
        "labels": {"background": 0, "organ": 1},
        "file_ending": ".nii.gz",
    }
    (folder / "dataset.json").write_text(json.dumps(about))
    return folder


@pytest.mark.parametrize("name", ["CT", "image"])
def test_ct_is_clipped_to_its_labels_and_the_reason_is_printed(tmp_path: Path, name: str) -> None:
    folder = write_scans(tmp_path / "set", [ct(-1024, -2000, seed) for seed in range(2)], name)
    result = runner.invoke(app, ["data", "plan", str(folder), "-o", str(tmp_path / "plan.yaml")])
    assert result.exit_code == 0, result.output
    data = load_preset(tmp_path / "plan.yaml").data
    low, high = data.clip[name]
    assert -1 < low < 3
    assert 97 < high < 101
    assert (data.crop_to_nonzero, data.normalization) == (False, "zscore")
    assert f"{name}: taken for CT, " in result.stdout
    assert "the range of labelled voxels" in result.stdout


def test_a_small_clip_range_is_not_rounded_away(tmp_path: Path) -> None:
    folder = write_scans(tmp_path / "set", [ct(-1000, None).astype(np.float32) * 1e-6], "CT")
    clip = plan_preset(read_cohort(folder), check_cohort(read_cohort(folder))).preset.data.clip
    assert clip["CT"] == pytest.approx((0.0, 1e-4), abs=2e-6)


def test_signed_mri_is_neither_clipped_nor_cropped(tmp_path: Path) -> None:
    susceptibility = np.random.default_rng(0).normal(0, 0.05, SHAPE).astype(np.float32)
    folder = write_scans(tmp_path / "set", [susceptibility], "QSM")
    plan = plan_preset(read_cohort(folder), check_cohort(read_cohort(folder)))
    data = plan.preset.data
    assert (data.clip, data.crop_to_nonzero, data.normalization) == ({}, False, "zscore")
    (reason,) = plan.reasons
    assert reason.startswith("QSM: taken for values of both signs, because ")


def test_one_case_is_written_in_the_singular(tmp_path: Path) -> None:
    folder = write_isles(tmp_path / "set", cases=1)
    plan = plan_preset(read_cohort(folder), check_cohort(read_cohort(folder)))
    assert plan.preset.title == "set: planned from 1 case in isles layout"
    result = runner.invoke(app, ["data", "check", str(folder)])
    assert "in 1 case;" in result.stdout


@pytest.mark.slow
@needs_real_data
def test_no_scanner_makes_mri_look_like_ct() -> None:
    """A few stroke cases of every shape and voxel size, each by itself, with the channels' names
    and without."""
    cohort = read_cohort(REAL_DATA / "ISLES-2022")
    groups = defaultdict(list)
    for case in cohort.cases:
        header = nibabel.load(case.channels["DWI"].file).header
        groups[header.get_data_shape(), tuple(np.round(header.get_zooms(), 1))].append(case)
    assert len(groups) > 5
    for cases in groups.values():
        for case in cases[:: max(1, len(cases) // 4)][:4]:
            for channel, array in zip(
                ("DWI", "ADC"), read_image(case, ("DWI", "ADC")).array, strict=True
            ):
                intensities = [describe_intensities(array)]
                for name in (channel, NAMELESS):
                    assert judge_channel(name, intensities).kind == "air at zero", (
                        f"{case.name}, {channel}"
                    )


@pytest.mark.parametrize(("cases", "folds"), [(1, 5), (3, 3), (6, 5)])
def test_there_are_no_more_folds_than_patients(tmp_path: Path, cases: int, folds: int) -> None:
    cohort = read_cohort(write_isles(tmp_path, cases))
    assert plan_preset(cohort, check_cohort(cohort)).preset.training.folds == folds


def test_the_library_plans_from_a_folder(tmp_path: Path) -> None:
    folder = write_msd(tmp_path / "set", cases=2, channels=["T1"])
    planned = plan_data(folder)
    cohort = read_cohort(folder)
    assert planned.plan == plan_preset(cohort, check_cohort(cohort))
    assert len(planned.report.cases) == 2
    for file in (folder / "imagesTr").iterdir():
        file.write_bytes(b"x")
    with pytest.raises(DataError, match="there is no usable case to plan from") as refusal:
        plan_data(folder)
    assert len(refusal.value.problems) == 3, "what is wrong with each case, and the consequence"
