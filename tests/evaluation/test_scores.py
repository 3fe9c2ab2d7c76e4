"""Scores of label maps: conventions, tables, summaries, files."""

from __future__ import annotations

import json
import time
from math import isnan, sqrt
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, label
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.evaluation.label_maps import score_label_maps
from factorizer.evaluation.metrics import detect_lesions
from factorizer.evaluation.scores import (
    METRICS,
    Score,
    mean_scores,
    read_scores,
    write_scores,
)
from factorizer.preset_files import load_preset
from testkit.writing import write_nifti

BRATS = load_preset("brats").data
SPACING = (1.0, 2.0, 3.0)
HEADER = "case,region,metric,value\n"


def score(
    prediction: np.ndarray, reference: np.ndarray, **options: object
) -> dict[tuple[str, str], float]:
    rows = score_label_maps(
        "case",
        prediction,
        reference,
        targets=BRATS.targets,
        spacing_mm=SPACING,
        **options,
    )
    assert [row.metric for row in rows[: len(METRICS)]] == list(METRICS)
    return {(row.region, row.metric): row.value for row in rows}


def ball(
    centre: tuple[int, ...], radius: float, shape: tuple[int, ...] = (20, 20, 20)
) -> np.ndarray:
    grid = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    return np.linalg.norm(grid - np.array(centre), axis=-1) <= radius


def test_conventions_for_empty_masks() -> None:
    empty, edema = np.zeros((20, 20, 20), np.uint8), ball((10, 10, 10), 3).astype(np.uint8)
    both = score(empty, empty)
    assert {both["WT", m] for m in ("dice", "lesion_f1", "lesion_recall", "lesion_precision")} == {
        1.0
    }
    assert both["WT", "hd95_mm"] == 0
    diagonal = sqrt(20**2 + 40**2 + 60**2)
    for prediction, reference in ((empty, edema), (edema, empty)):
        one = score(prediction, reference)
        assert one["WT", "dice"] == one["WT", "lesion_f1"] == 0
        assert one["WT", "hd95_mm"] == pytest.approx(diagonal)
        assert one["ET", "dice"] == 1  # no enhancing tumour in either
    assert isnan(score(empty, edema, hd95_empty="nan")["WT", "hd95_mm"])
    assert score(empty, edema, hd95_empty=373.0)["WT", "hd95_mm"] == 373
    volume = edema.sum() * 6 / 1000
    missed = score(empty, edema)
    assert missed["WT", "reference_volume_ml"] == pytest.approx(volume)
    assert missed["WT", "volume_difference_ml"] == pytest.approx(-volume)


def lesions_by_hand(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    structure = np.ones((3,) * ours.ndim)
    shares = []
    for a, b in ((ours, theirs), (theirs, ours)):
        parts, count = label(a, structure)
        shares.append(sum(bool((b & (parts == i)).any()) for i in range(1, count + 1)) / count)
    return shares[0], shares[1]


@pytest.mark.parametrize("seed", range(5))
def test_lesions_against_a_count_one_by_one(seed: int) -> None:
    fields = [
        gaussian_filter(np.random.default_rng((seed, i)).standard_normal((24, 20, 16)), 1.2)
        for i in (0, 1)
    ]
    ours, theirs = (field > 2 * field.std() for field in fields)
    precision, recall = lesions_by_hand(ours, theirs)
    found = detect_lesions(ours, theirs)
    assert (found.precision, found.recall) == (precision, recall)
    assert found.f1 == pytest.approx(
        2 * precision * recall / (precision + recall) if precision + recall else 0
    )


def test_lesions_that_touch_at_a_corner_are_one() -> None:
    mask = np.zeros((4, 4), bool)
    mask[1, 1] = mask[2, 2] = True
    other = np.zeros_like(mask)
    other[1, 1] = True
    assert detect_lesions(other, mask) == (1, 1, 1)


def test_means_tell_hd95_both_ways() -> None:
    def case(name: str, hd95: float, volumes: tuple[float, float]) -> list[Score]:
        values = {
            "dice": 0.5,
            "hd95_mm": hd95,
            "volume_ml": volumes[0],
            "reference_volume_ml": volumes[1],
        }
        return [Score(name, "WT", metric, value) for metric, value in values.items()]

    means = mean_scores(
        [
            *case("a", 4, (1, 1)),
            *case("b", 8, (2, 3)),
            *case("c", 300, (0, 5)),
            *case("d", 0, (0, 0)),
        ]
    )
    assert means["WT"].cases == 4
    assert means["WT"].undefined == 1
    assert means["WT"].hd95_mm == 4
    assert means["WT"].penalized_hd95_mm == 78
    elsewhere = mean_scores(
        [Score("a", "x", "hd95_mm", 2.0), Score("b", "x", "hd95_mm", float("nan"))]
    )["x"]
    assert (elsewhere.undefined, elsewhere.hd95_mm) == (1, 2)


def test_a_table_that_is_wrong_is_named(tmp_path: Path) -> None:
    file = tmp_path / "scores.csv"
    rows = [Score("a", "WT", "dice", 0.5), Score("a, b", "WT", "dice", 1.0)]
    write_scores(file, rows)
    assert read_scores(file) == rows
    for text, message in (
        (
            "case,region\na,b\n",
            "has the columns case, region, but not metric, value; a scores.csv has",
        ),
        ("case,region,metric,value\n", "it has no scores"),
        ("case,region,metric,value\n,b,dice,1\n", "line 2: the case is empty"),
        ("case,region,metric,value\na,b,dice,x\n", "line 2: the value is 'x'"),
        ("case,region,metric,value\na,b,dice,1\na,b,dice,1\n", "line 3: a, b, dice appears twice"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_scores(file)


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("dice", "50"),
        ("dice", "-5"),
        ("dice", "1e300"),
        ("dice", "inf"),
        ("lesion_f1", "1.1"),
        ("hd95_mm", "-1"),
        ("hd95_mm", "1e300"),
        ("volume_ml", "-0.1"),
        ("reference_volume_ml", "inf"),
        ("volume_difference_ml", "-1e300"),
        ("surface_dice", "1e300"),
    ],
)
def test_values_that_cannot_be_are_refused_by_every_reader(
    tmp_path: Path, metric: str, value: str
) -> None:
    file = tmp_path / "scores.csv"
    file.write_text(f"{HEADER}a,WT,dice,0.5\nb,WT,{metric},{value}\n")
    command = ["compare", f"one={file}", f"two={file}", "-o", str(tmp_path / "out")]
    compared = CliRunner().invoke(app, command)
    profiled = CliRunner().invoke(
        app, ["profile", "--preset", "isles22", "--scores", f"nnunet={file}"]
    )
    for result in (compared, profiled):
        assert result.exit_code == 2
        assert f"{file}: line 3: {metric} is {float(value):g}; it must be from" in result.stderr


def test_values_that_can_be_are_read_and_an_endless_distance_is_undefined(tmp_path: Path) -> None:
    file = tmp_path / "scores.csv"
    lines = ["hd95_mm,inf", "dice,nan", "volume_difference_ml,-12.5", "surface_dice,-3"]
    file.write_text(
        "\ufeffCase;Region;Metric;Value\n" + "".join(f"a;WT;{x.replace(',', ';')}\n" for x in lines)
    )
    values = [row.value for row in read_scores(file)]
    assert isnan(values[0])
    assert isnan(values[1])
    assert values[2:] == [-12.5, -3]


@pytest.mark.parametrize(
    "name", ["=1+1", "+a", "-a", "@a", "a|b", "[/x]", 'a"b', "a\nb", "\x1b[31m"]
)
def test_names_are_the_same_when_they_are_read(tmp_path: Path, name: str) -> None:
    write_scores(tmp_path / "scores.csv", [Score(name, name, "dice", 0.5)])
    assert read_scores(tmp_path / "scores.csv") == [Score(name, name, "dice", 0.5)]


@pytest.mark.slow
def test_a_large_case_takes_less_than_two_seconds() -> None:
    shape = (240, 240, 155)
    distances = [ball_distance(centre, shape) for centre in ((120, 90, 70), (126, 93, 72))]
    maps = [np.select([d < 20, d < 35, d < 55], [3, 2, 1], 0).astype(np.uint8) for d in distances]
    seconds = []
    for _ in range(2):
        start = time.process_time()
        score(*maps)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 2


def ball_distance(centre: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    axes = np.meshgrid(
        *(np.arange(n, dtype=np.float32) - c for n, c in zip(shape, centre, strict=True)),
        indexing="ij",
    )
    return np.sqrt(sum(axis**2 for axis in axes))


def evaluate(tmp_path: Path, *options: str):
    command = [
        "evaluate",
        "-p",
        str(tmp_path / "p"),
        "-r",
        str(tmp_path / "r"),
        "--preset",
        "brats",
    ]
    return CliRunner().invoke(app, [*command, "-o", str(tmp_path / "scores.csv"), *options])


def test_folders_of_label_files(tmp_path: Path) -> None:
    truth = (ball((10, 10, 10), 5).astype(np.uint8) + 2 * ball((10, 10, 10), 2)).astype(np.uint8)
    for name in ("a", "b", "only_reference"):
        write_nifti(tmp_path / "r" / f"{name}.nii.gz", truth)
    for name in ("a", "only_prediction"):
        write_nifti(tmp_path / "p" / f"{name}.nii.gz", truth)
    write_nifti(tmp_path / "p" / "b.nii.gz", np.zeros_like(truth))
    write_nifti(tmp_path / "p" / "a_probabilities.nii.gz", np.zeros((20, 20, 20, 3), np.float32))
    result = evaluate(tmp_path, "--json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed["means"]["WT"]["dice"] == 0.5
    assert printed["means"]["WT"]["undefined"] == 1
    assert printed["unmatched"] == {
        "predictions": ["only_prediction"],
        "references": ["only_reference"],
    }
    assert "HD95 is the diagonal of the image" in printed["conventions"]
    assert {row.case for row in read_scores(tmp_path / "scores.csv")} == {"a", "b"}
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert set(summary) == {"foreground_mean", "mean", "metric_per_case"}
    assert set(summary["mean"]) == {"3", "(2, 3)", "(1, 2, 3)"}
    first = summary["metric_per_case"][0]["metrics"]["(1, 2, 3)"]
    assert first["Dice"] == 1
    assert first["TP"] == first["n_ref"] == np.count_nonzero(truth)
    assert first["TP"] + first["TN"] == truth.size
    again = evaluate(tmp_path)
    assert again.exit_code == 2
    assert "already exists" in again.stderr


def test_grids_that_differ_are_an_error_and_the_others_continue(tmp_path: Path) -> None:
    truth = ball((10, 10, 10), 5).astype(np.uint8)
    for name in ("a", "b", "c"):
        write_nifti(tmp_path / "r" / f"{name}.nii.gz", truth)
    write_nifti(tmp_path / "p" / "a.nii.gz", truth)
    write_nifti(tmp_path / "p" / "b.nii.gz", truth[:-1])
    write_nifti(tmp_path / "p" / "c.nii.gz", truth * 9)
    result = evaluate(tmp_path)
    assert result.exit_code == 1
    assert "the prediction is not on the grid of its reference" in result.stderr
    assert "its shape is (19, 20, 20), not (20, 20, 20)" in result.stderr
    assert "values that are not declared: 9" in result.stderr
    assert {row.case for row in read_scores(tmp_path / "scores.csv")} == {"a"}


@pytest.mark.parametrize("penalty", ["nan", "100"])
def test_the_penalty_can_be_chosen(tmp_path: Path, penalty: str) -> None:
    truth = ball((10, 10, 10), 5).astype(np.uint8)
    write_nifti(tmp_path / "r" / "a.nii.gz", truth)
    write_nifti(tmp_path / "p" / "a.nii.gz", np.zeros_like(truth))
    assert evaluate(tmp_path, "--hd95-empty", penalty).exit_code == 0
    values = {(row.region, row.metric): row.value for row in read_scores(tmp_path / "scores.csv")}
    assert str(values["WT", "hd95_mm"]) == ("nan" if penalty == "nan" else "100.0")


def test_the_same_name_twice_is_an_error(tmp_path: Path) -> None:
    truth = ball((10, 10, 10), 5).astype(np.uint8)
    write_nifti(tmp_path / "r" / "a.nii.gz", truth)
    for ending in (".nii", ".nii.gz"):
        write_nifti(tmp_path / "p" / f"a{ending}", truth)
    assert "the name stands for 2 cases" in evaluate(tmp_path).stderr


def test_a_preset_for_other_labels_is_refused(tmp_path: Path, strokes: Path) -> None:
    """Where the data know no enhancing tumour, two empty masks would make a perfect score."""
    write_nifti(tmp_path / "p" / "sub-strokecase0001.nii.gz", np.zeros((24, 24, 24), np.uint8))
    command = ["evaluate", "-p", str(tmp_path / "p"), "-r", str(strokes), "--preset", "brats"]
    result = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "scores.csv")])
    assert result.exit_code == 2
    assert "its labels (lesion = 1) are not the preset's" in result.stderr


def test_what_does_not_match_is_said(tmp_path: Path) -> None:
    truth = ball((10, 10, 10), 5).astype(np.uint8)
    write_nifti(tmp_path / "r" / "a.nii.gz", truth)
    write_nifti(tmp_path / "p" / "b.nii.gz", truth)
    assert "no prediction (b) has the name of a reference (a)" in evaluate(tmp_path).stderr
    assert "hd95_empty is 'x'" in evaluate(tmp_path, "--hd95-empty", "x").stderr
    assert not (tmp_path / "scores.csv").exists()
