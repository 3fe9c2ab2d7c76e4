"""Predictions against references, from the library and the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.errors import FactorizerError
from factorizer.evaluation.evaluate import evaluate as evaluate_labels
from factorizer.evaluation.label_pairs import read_pair
from factorizer.evaluation.scores import read_scores
from factorizer.preset_files import load_preset
from testkit.telling import Listener
from testkit.writing import random_label, write_brats, write_isles, write_nifti, write_nnunet


def evaluate(folder: Path, preset: str, *options: str, output: str = "scores.csv"):
    command = [
        "evaluate",
        "-p",
        str(folder / "p"),
        "-r",
        str(folder / "r"),
        "--preset",
        preset,
        "--json",
    ]
    return CliRunner().invoke(app, [*command, "-o", str(folder / output), *options])


@pytest.mark.parametrize("style", ["_", "-"])
def test_copies_of_a_challenge_labels_are_perfect_in_its_values(tmp_path: Path, style: str) -> None:
    """BraTS swaps edema and necrosis against the Decathlon: the same files, read as one or the
    other."""
    names = ["BraTS-GLI-00001-000", "BraTS-GLI-00002-000"]
    write_brats(tmp_path / "r", names, style=style)
    (tmp_path / "p").mkdir()
    for name in names:
        shutil.copy(
            tmp_path / "r" / name / f"{name}{style}seg.nii.gz", tmp_path / "p" / f"{name}.nii.gz"
        )
    result = evaluate(tmp_path, "brats", "--prediction-values", "dataset")
    assert result.exit_code == 0, result.output
    means = json.loads(result.stdout)["means"]
    assert [means[region]["dice"] for region in ("ET", "TC", "WT")] == [1.0, 1.0, 1.0]
    assert "edema = 2, necrosis = 1" in result.stderr
    mistaken = evaluate(tmp_path, "brats", output="mistaken/scores.csv")
    assert "edema = 1, necrosis = 2" in mistaken.stderr
    if style == "-":
        assert json.loads(mistaken.stdout)["means"]["TC"]["dice"] < 0.9
    assert evaluate(tmp_path, "brats", "--prediction-values", "mine").exit_code == 2


def test_voxels_that_nobody_judged_are_left_out(tmp_path: Path) -> None:
    labels = {"background": 0, "anterior": 1, "posterior": 2, "ignore": 3}
    write_nnunet(tmp_path / "r", labels=labels)
    for index in range(2):
        truth = random_label(index, (0, 1, 2))
        write_nifti(tmp_path / "p" / f"pat_{index}.nii.gz", truth)
        truth[:6] = 3
        write_nifti(tmp_path / "r" / "labelsTr" / f"pat_{index}.nii.gz", truth)
    result = evaluate(tmp_path, "hippocampus")
    assert result.exit_code == 0, result.output
    assert {means["dice"] for means in json.loads(result.stdout)["means"].values()} == {1.0}
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["foreground_mean"]["FP"] == 0


def test_a_wrong_preset_is_said_a_few_times(tmp_path: Path) -> None:
    for index in range(9):
        write_nifti(tmp_path / "r" / f"case{index}.nii.gz", random_label(index, (0, 1, 2)))
    shutil.copytree(tmp_path / "r", tmp_path / "p")
    result = evaluate(tmp_path, "isles22")
    assert result.exit_code == 1
    assert result.stderr.count("choose a preset that declares them") == 5
    assert "and 4 more for the same reason" in result.stderr


def test_labels_without_their_images_are_explained(tmp_path: Path) -> None:
    write_isles(tmp_path / "set", cases=1)
    write_nifti(tmp_path / "p" / "sub-strokecase0000.nii.gz", np.zeros((12, 10, 8), np.uint8))
    shutil.move(tmp_path / "set" / "derivatives", tmp_path / "derivatives")
    command = [
        "evaluate",
        "-p",
        str(tmp_path / "p"),
        "-r",
        str(tmp_path / "derivatives"),
        "--preset",
        "isles22",
    ]
    result = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "scores.csv")])
    assert result.exit_code == 2
    assert f"give {tmp_path}" in result.stderr.replace("\n", "")


def test_many_cases_without_a_prediction_are_counted_on_one_short_line(tmp_path: Path) -> None:
    for index in range(9):
        write_nifti(tmp_path / "r" / f"case{index}.nii.gz", random_label(index, (0, 1, 2)))
    shutil.copytree(tmp_path / "r", tmp_path / "p")
    for index in range(1, 9):
        (tmp_path / "p" / f"case{index}.nii.gz").unlink()
    result = evaluate(tmp_path, "hippocampus")
    assert (
        "8 references without a prediction: case1, case2, case3, case4, case5 and 3 more"
        in result.stderr
    )
    assert len(json.loads(result.stdout)["unmatched"]["references"]) == 8


def write_three_cases(folder: Path) -> None:
    """Perfect predictions of three cases, with labels of the hippocampus."""
    for index in range(3):
        label = random_label(index, (0, 1, 2))
        write_nifti(folder / "r" / f"case{index}.nii.gz", label)
        write_nifti(folder / "p" / f"case{index}.nii.gz", label)


def test_the_library_returns_everything_and_writes_what_it_says(tmp_path: Path) -> None:
    write_three_cases(tmp_path)
    folders = (tmp_path / "p", tmp_path / "r")
    preset = load_preset("hippocampus")
    result = evaluate_labels(*folders, preset, out=tmp_path / "out" / "scores_a.csv")
    assert [file.name for file in result.files] == ["scores_a.csv", "summary_a.json"]
    written = {(row.case, row.region, row.metric) for row in read_scores(result.files[0])}
    assert written == {(row.case, row.region, row.metric) for row in result.scores}
    assert {means.dice for means in result.means.values()} == {1.0}
    assert not result.problems
    by_name = evaluate_labels(*folders, "hippocampus", hd95_empty=373)
    assert not by_name.files
    assert "HD95 is 373.0 mm" in by_name.conventions
    assert by_name.scores == result.scores


def test_existing_files_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "summary.json").touch()
    nowhere = tmp_path / "nowhere"
    with pytest.raises(FactorizerError, match=r"summary\.json already exists"):
        evaluate_labels(nowhere, nowhere, "hippocampus", out=tmp_path / "scores.csv")
    with pytest.raises(FactorizerError, match=r"out is .*scores\.txt; give a name that ends in"):
        evaluate_labels(nowhere, nowhere, "hippocampus", out=tmp_path / "scores.txt")


def test_a_bug_in_one_case_leaves_the_others_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_three_cases(tmp_path)
    monkeypatch.chdir(tmp_path)  # the report of the bug goes here

    def read_with_a_bug(predicted, name, *rest):
        return {}[name] if name == "case1" else read_pair(predicted, name, *rest)

    monkeypatch.setattr("factorizer.evaluation.evaluate.read_pair", read_with_a_bug)
    result = evaluate(tmp_path, "hippocampus")
    assert result.exit_code == 70
    assert "a bug in Factorizer (KeyError: 'case1')" in result.stderr
    assert {row.case for row in read_scores(tmp_path / "scores.csv")} == {"case0", "case2"}
    assert "read_with_a_bug" in next(tmp_path.glob("factorizer-bug-*.txt")).read_text()


def test_the_library_says_which_label_values_it_reads(tmp_path: Path) -> None:
    write_brats(tmp_path / "r", ["BraTS-GLI-00001-000"], style="-")
    write_nifti(tmp_path / "p" / "BraTS-GLI-00001-000.nii.gz", random_label(0, (0, 1, 2, 3)))
    lines: list[str] = []
    evaluate_labels(tmp_path / "p", tmp_path / "r", "brats", progress=Listener(lines))
    assert len(lines) == 1
    assert lines[0].endswith("those of the preset: edema = 1, necrosis = 2, enhancing = 3")
