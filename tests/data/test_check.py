"""`factorizer data check` and `factorizer data plan`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from factorizer import check_data
from factorizer.cli import app
from factorizer.data import check as check_module
from factorizer.data.cache import preparation_for
from factorizer.data.cases import DataError
from factorizer.data.check import check_cohort
from factorizer.data.images import read_image
from factorizer.data.layouts import read_cohort
from factorizer.data.plan import fit_patch, plan_strides
from factorizer.preset_files import change_preset, load_preset
from testkit.bars import CountedBars
from testkit.writing import (
    random_image,
    random_label,
    write_isles,
    write_msd,
    write_nifti,
    write_pairs,
)

runner = CliRunner()


def test_a_good_data_set_is_summarized(tmp_path: Path) -> None:
    folder = write_isles(tmp_path / "set")
    label = next((folder / "derivatives").rglob("*0001_ses-0001_msk.nii.gz"))
    write_nifti(label, np.zeros((12, 10, 8), np.uint8))
    result = runner.invoke(app, ["data", "check", str(folder), "--preset", "isles22"])
    assert result.exit_code == 0, result.output
    text = result.stdout
    for part in (
        "isles",
        "3 read, 0 of them with errors; 0 could not be read",
        "DWI, ADC",
        "12 x 10 x 8",
        "1.00 x 1.50 x 2.00",
        "in 2 cases",
    ):
        assert part in text
    assert "1 (sub-strokecase0001)" in text  # an empty mask is a real case


def test_the_numbers_of_a_report_are_right(tmp_path: Path) -> None:
    folder = write_isles(tmp_path, cases=1)
    report = check_cohort(read_cohort(folder))
    (case,) = report.cases
    image, label = random_image(0), random_label(0, (0, 1))
    assert case.ranges["DWI"] == (image.min(), image.max())
    assert case.region_ml["lesion"] == pytest.approx(label.sum() * 3.0 / 1000)
    assert case.spacing_mm == pytest.approx((1.0, 1.5, 2.0))


def test_each_defect_is_named_on_one_line_and_the_exit_code_says_so(tmp_path: Path) -> None:
    folder = write_msd(
        tmp_path / ("a-very-long-folder-name-" * 5) / "set", cases=4, channels=["T1"]
    )
    (folder / "imagesTr" / "case_000.nii.gz").write_bytes(b"x")
    write_nifti(folder / "labelsTr" / "case_001.nii.gz", random_label(0, (0, 9)))
    write_nifti(folder / "imagesTr" / "case_002.nii.gz", np.full((12, 10, 8), 7.0))
    result = runner.invoke(app, ["data", "check", str(folder)])
    assert result.exit_code == 1
    assert "2 read, 0 of them with errors; 2 could not be read" in result.stdout
    errors = [line for line in result.stderr.splitlines() if line.startswith("error ")]
    assert len(errors) == 2
    assert str(folder / "imagesTr" / "case_000.nii.gz") in errors[0]
    assert "not declared: 9" in errors[1]
    (warning,) = [line for line in result.stderr.splitlines() if line.startswith("warning ")]
    assert "every voxel of channel T1 is 7" in warning
    assert "2 errors, 1 warning" in result.stdout
    assert result.stderr.index("warning ") > result.stderr.rindex("error ")


def test_a_bug_is_a_problem_of_its_case_and_the_others_continue(
    tmp_path: Path, monkeypatch
) -> None:
    folder = write_msd(tmp_path / "set", cases=3, channels=["T1"])
    original = check_module.read_image

    def fail(case, channels):
        if case.name == "case_001":
            raise KeyError("oops")
        return original(case, channels)

    monkeypatch.setattr(check_module, "read_image", fail)
    monkeypatch.chdir(tmp_path)
    progress = CountedBars()
    report = check_cohort(read_cohort(folder), progress=progress)
    (problem,) = report.problems
    assert (problem.case, problem.severity) == ("case_001", "bug")
    assert "KeyError: 'oops'" in problem.message
    assert [case.name for case in report.cases] == ["case_000", "case_002"]
    assert progress.done == {"reading cases": (3, 3)}
    assert len(list(tmp_path.glob("factorizer-bug-*.txt"))) == 1
    assert runner.invoke(app, ["data", "check", str(folder)]).exit_code == 70


def test_json(tmp_path: Path) -> None:
    folder = write_msd(tmp_path, channels=["T1"])
    report = json.loads(runner.invoke(app, ["data", "check", str(folder), "--json"]).stdout)
    assert report["layout"] == "msd"
    assert len(report["cases"]) == 3
    assert report["problems"] == []


def test_the_library_checks_with_and_without_a_preset(tmp_path: Path) -> None:
    folder = write_isles(tmp_path)
    checked = check_data(folder)
    assert checked.report.errors == []
    assert checked.cohort.channels == ("DWI", "ADC")
    bars = CountedBars()
    report = check_data(folder, preset=load_preset("isles22"), progress=bars).report
    assert report.labels == {"lesion": 1}
    assert bars.done == {"reading cases": (len(report.cases), len(report.cases))}
    (problem,) = check_data(folder, preset=load_preset("brats")).report.errors
    assert "the preset has the channels FLAIR" in problem.message


def test_a_preset_names_the_masks_unless_a_suffix_is_given(tmp_path: Path) -> None:
    folder = write_pairs(tmp_path / "pairs", suffix="_mine")
    named = change_preset(load_preset("chasedb1"), ["data.mask_suffix=_mine"])
    assert all(case.label for case in check_data(folder, preset=named).cohort.cases)
    assert all(case.label for case in check_data(folder, mask_suffix="_mine").cohort.cases)
    with pytest.raises(DataError, match="_other"):
        check_data(folder, preset=named, mask_suffix="_other")


def test_a_preset_that_does_not_fit_is_named(tmp_path: Path) -> None:
    folder = write_isles(tmp_path)
    result = runner.invoke(app, ["data", "check", str(folder), "--preset", "brats"])
    assert result.exit_code == 1
    assert (
        "the preset has the channels FLAIR, T1, T1Gd, T2, and the data set has DWI, ADC"
        in result.stderr
    )


@pytest.mark.slow
def test_a_figure_of_the_cases_is_drawn(tmp_path: Path) -> None:
    for folder in (write_isles(tmp_path / "set"), write_pairs(tmp_path / "pairs")):
        figure = tmp_path / f"{folder.name}.png"
        result = runner.invoke(app, ["data", "check", str(folder), "--figure", str(figure)])
        assert result.exit_code == 0, result.output
        assert figure.read_bytes().startswith(b"\x89PNG")


def test_an_unknown_folder_is_an_error(tmp_path: Path) -> None:
    result = runner.invoke(app, ["data", "check", str(tmp_path / "nowhere")])
    assert result.exit_code == 2
    assert "there is no such folder" in result.stderr


@pytest.mark.slow
def test_a_plan_can_be_used_and_is_not_overwritten(tmp_path: Path) -> None:
    folder, file = write_msd(tmp_path / "set", channels=["T1"]), tmp_path / "plan.yaml"
    result = runner.invoke(app, ["data", "plan", str(folder), "-o", str(file)])
    assert result.exit_code == 0, result.output
    preset = load_preset(file)
    assert preset.data.channels == ("T1",)
    assert preset.data.labels == {"a": 1, "b": 2, "c": 3}
    assert list(preset.data.regions) == ["a", "b", "c"]
    assert preset.data.spacing_mm == (1.0, 1.5, 2.0)
    assert preset.data.patch_size == (12, 10, 8)
    assert len(preset.model.widths) == 2 + isinstance(preset.model.strides, tuple)
    again = runner.invoke(app, ["data", "plan", str(folder), "-o", str(file)])
    assert again.exit_code == 2
    assert "already exists" in again.stderr
    assert (
        runner.invoke(
            app, ["profile", "--preset", str(file), "--system", "swin-factorizer"]
        ).exit_code
        == 0
    )


def test_a_plan_for_2d_images_is_2d(tmp_path: Path) -> None:
    folder, file = write_pairs(tmp_path / "set"), tmp_path / "plan.yaml"
    assert runner.invoke(app, ["data", "plan", str(folder), "-o", str(file)]).exit_code == 0
    preset = load_preset(file)
    assert len(preset.data.patch_size) == 2
    assert preset.data.spacing_mm is None


@pytest.mark.slow
def test_thick_slices_get_their_own_strides(tmp_path: Path) -> None:
    write_msd(tmp_path / "set", cases=1, channels=["T1"])
    for kind, array in (
        ("images", random_image(0, (64, 64, 12))),
        ("labels", random_label(0, shape=(64, 64, 12))),
    ):
        write_nifti(
            tmp_path / "set" / f"{kind}Tr" / "case_000.nii.gz", array, np.diag((1.0, 1, 5, 1))
        )
    file = tmp_path / "plan.yaml"
    assert (
        runner.invoke(app, ["data", "plan", str(tmp_path / "set"), "-o", str(file)]).exit_code == 0
    )
    assert load_preset(file).model.strides != 2
    assert (
        runner.invoke(
            app, ["profile", "--preset", str(file), "--system", "swin-factorizer"]
        ).exit_code
        == 0
    )


def test_a_report_without_usable_cases_is_still_printed(tmp_path: Path) -> None:
    folder = write_msd(tmp_path / "set", cases=1, channels=["T1"])
    (folder / "imagesTr" / "case_000.nii.gz").write_bytes(b"x")
    result = runner.invoke(app, ["data", "check", str(folder), "--figure", str(tmp_path / "a.png")])
    assert result.exit_code == 1
    assert "0 read, 0 of them with errors; 1 could not be read" in result.stdout
    assert not (tmp_path / "a.png").exists()


def test_folds_are_written(tmp_path: Path) -> None:
    folder, file = write_isles(tmp_path / "set", cases=6), tmp_path / "folds.json"
    command = ["data", "folds", str(folder), "-o", str(file), "--num-folds", "3", "--stratify"]
    result = runner.invoke(app, command)
    assert result.exit_code == 0, result.output
    content = json.loads(file.read_text())
    assert content["origin"] == "seed 0, stratified by volume"
    assert [len(names) for names in content["folds"].values()] == [2, 2, 2]
    assert "already exists" in runner.invoke(app, command).stderr
    split = tmp_path / "split.csv"
    split.write_text(
        "case,fold\n" + "".join(f"sub-strokecase000{i},{i % 2 + 3}\n" for i in range(6))
    )
    taken = runner.invoke(
        app, ["data", "folds", str(folder), "-o", str(tmp_path / "b.json"), "--split", str(split)]
    )
    assert taken.stdout.splitlines() == ["fold 3: 3 cases", "fold 4: 3 cases"]


def test_patches_fit_and_divide() -> None:
    assert fit_patch([35, 50, 36], 64**3) == [35, 50, 36]
    patch = fit_patch([240, 240, 155], 64**3)
    assert np.prod(patch) <= 64**3
    assert max(patch) == min(patch) == 64
    flat = fit_patch([512, 512, 10], 64**3)
    assert flat[2] == 10
    assert 0.9 * 64**3 < np.prod(flat) <= 64**3
    assert plan_strides([35, 50, 36], [1, 1, 1]) == [(2, 2, 2)] * 3
    assert plan_strides([64, 64, 64], [2, 2, 2]) == [(2, 2, 2)] * 4
    assert plan_strides([160, 160, 12], [1, 1, 6]) == [
        (2, 2, 1),
        (2, 2, 1),
        (2, 2, 2),
        (2, 2, 1),
    ]  # thick slices last
    assert plan_strides([6, 6, 6], [1, 1, 1]) == [(2, 2, 2)]
    assert plan_strides([500, 500], [1, 1]) == [(2, 2)] * 4


def test_zero_is_a_tissue_in_ct(tmp_path: Path) -> None:
    """Air has -1000 HU and the organ about 0: the plan clips to the range of labelled voxels, and
    normalizes zeros like other voxels."""
    generator = np.random.default_rng(0)
    for index in range(2):
        label = np.zeros((16, 16, 16), np.uint8)
        label[4:12, 4:12, 4:12] = 1
        image = np.where(label, generator.integers(-50, 150, label.shape), -1000).astype(np.int16)
        image[0, 0, 0] = 2000
        write_nifti(tmp_path / "ct" / "imagesTr" / f"pat_{index}_0000.nii.gz", image)
        write_nifti(tmp_path / "ct" / "labelsTr" / f"pat_{index}.nii.gz", label)
    about = {
        "channel_names": {"0": "CT"},
        "labels": {"background": 0, "liver": 1},
        "file_ending": ".nii.gz",
    }
    (tmp_path / "ct" / "dataset.json").write_text(json.dumps(about))
    result = runner.invoke(
        app, ["data", "plan", str(tmp_path / "ct"), "-o", str(tmp_path / "ct.yaml")]
    )
    assert result.exit_code == 0, result.output
    data = load_preset(tmp_path / "ct.yaml").data
    low, high = data.clip["CT"]
    assert -50 <= low < -45
    assert 145 < high <= 150
    assert not data.crop_to_nonzero
    cohort = read_cohort(tmp_path / "ct")
    prepared = preparation_for(cohort, data).prepare(cohort.cases[0], with_label=True)
    before = read_image(cohort.cases[0]).array[0]
    around = [float(prepared.image[0][before == value].mean()) for value in (-1, 0, 1)]
    assert around[0] < around[1] < around[2]  # no hole at zero


def test_folds_have_the_labelled_cases_and_are_json(tmp_path: Path) -> None:
    folder = write_isles(tmp_path / "set", cases=4)
    next((folder / "derivatives").rglob("*0002_ses-0001_msk.nii.gz")).unlink()
    next((folder / "derivatives").rglob("*0003_ses-0001_msk.nii.gz")).write_bytes(b"broken")
    for options in ((), ("--stratify",)):
        file = tmp_path / f"folds{len(options)}.json"
        result = runner.invoke(
            app, ["data", "folds", str(folder), "-o", str(file), "--num-folds", "2", *options]
        )
        assert result.exit_code == len(options), result.output  # only --stratify reads the labels
        folds = json.loads(file.read_text())["folds"]
        assert sorted(folds["0"] + folds["1"]) == [f"sub-strokecase000{i}" for i in (0, 1, 3)]
    assert "not a NIfTI image" in result.output
    assert "fold 1: 1 case\n" in result.output
    result = runner.invoke(app, ["data", "folds", str(folder), "-o", str(tmp_path / "folds.csv")])
    assert result.exit_code == 2
    assert "give a name that ends in .json" in result.output
