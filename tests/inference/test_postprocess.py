"""Cleaning label maps, and choosing how."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import nibabel
import numpy as np
import pytest
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.data.layouts import read_cohort
from factorizer.inference.cleaning import clean_labels, clean_mask
from factorizer.preset_files import load_preset
from factorizer.runs.rules import FILE, Cleaning, read_rules
from factorizer.studies.postprocessing import (
    CANDIDATES,
    Held,
    Packed,
    choose,
    choose_rules,
    try_candidates,
)

BRATS = load_preset("brats").data
SPACING = (2.0, 2.0, 2.0)  # 0.008 ml a voxel


def masks() -> np.ndarray:
    """A lesion of 27 voxels, one of 8, one of 1."""
    mask = np.zeros((12, 12, 12), bool)
    mask[1:4, 1:4, 1:4] = mask[6:8, 6:8, 6:8] = mask[10, 10, 10] = True
    return mask


@pytest.mark.parametrize(
    ("rule", "voxels"),
    [
        (Cleaning(), 36),
        (Cleaning(min_volume_ml=0.008), 36),
        (Cleaning(min_volume_ml=0.05), 35),
        (Cleaning(min_volume_ml=0.1), 27),
        (Cleaning(min_volume_ml=1.0), 0),
        (Cleaning(largest=True), 27),
        (Cleaning(min_volume_ml=1.0, largest=True), 0),
    ],
)
def test_rules(rule: Cleaning, voxels: int) -> None:
    assert np.count_nonzero(clean_mask(masks(), rule, SPACING)) == voxels
    assert not clean_mask(np.zeros((3, 3, 3), bool), rule, SPACING).any()


def clean(label_map: np.ndarray, **rules: Cleaning) -> np.ndarray:
    return clean_labels(label_map, rules, targets=BRATS.targets, spacing_mm=SPACING)


def test_what_an_inner_region_loses_goes_to_the_one_around_it() -> None:
    label_map = np.zeros((12, 12, 12), np.uint8)
    label_map[1:8, 1:8, 1:8] = 1
    label_map[2:5, 2:5, 2:5] = 2
    label_map[3, 3, 3] = label_map[6, 6, 6] = 3
    np.testing.assert_array_equal(clean(label_map), label_map)
    cleaned = clean(label_map, ET=Cleaning(largest=True))
    assert np.count_nonzero(cleaned == 3) == 1
    assert np.count_nonzero(cleaned) == np.count_nonzero(label_map)
    gone = clean(label_map, WT=Cleaning(min_volume_ml=100.0))
    assert not gone.any()


def test_the_best_candidate_is_chosen_and_the_gentlest_of_equals() -> None:
    truth = masks()
    truth[10, 10, 10] = truth[6:8, 6:8, 6:8] = False
    scores = [try_candidates(masks(), truth, SPACING) for _ in range(3)]
    assert CANDIDATES[choose(scores)] == Cleaning(min_volume_ml=0.1)
    assert CANDIDATES[choose([try_candidates(truth, truth, SPACING)])] == Cleaning()


def test_a_rule_that_costs_another_region_something_is_not_taken() -> None:
    reference = np.zeros((12, 12, 12), np.uint8)
    reference[1:4, 1:4, 1:4] = 1  # whole tumour without a core
    reference[10, 10, 10] = 3  # and enhancing tumour apart from it
    predicted = reference.copy()
    predicted[6:8, 6:8, 6:8] = 1
    case = Held(Packed(predicted), Packed(reference), SPACING)
    best = choose(np.array([try_candidates(predicted > 0, reference > 0, SPACING)]))
    assert CANDIDATES[best] == Cleaning(
        min_volume_ml=0.1
    )  # of the whole tumour by itself; the core would go with it
    choices = {choice.region: choice for choice in choose_rules([case], BRATS)}
    assert all(choice.rule == Cleaning() for choice in choices.values())
    assert choices["ET"].before == choices["ET"].after == 1
    reference[10, 10, 10] = 0
    alone = {
        c.region: c
        for c in choose_rules([Held(Packed(predicted), Packed(reference), SPACING)], BRATS)
    }
    assert alone["WT"].rule == Cleaning(min_volume_ml=0.1)
    assert alone["WT"].after == 1
    assert alone["ET"].after == 1  # what was predicted of it in error went too


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "nested too deep"),
        ("[1]", "it holds no rules by region"),
        ('{"ET": 3}', "the rule of ET is 3"),
        ('{"ET": {"volume": 3}}', "it may have min_volume_ml and largest"),
        (
            '{"ET": {"min_volume_ml": "a"}}',
            "it must be a number of at least 0",
        ),
        ('{"ET": {"min_volume_ml": -1}}', "min_volume_ml of ET is -1"),
        ('{"ET": {"min_volume_ml": NaN}}', "min_volume_ml of ET is nan"),
        ('{"ET": {"min_volume_ml": Infinity}}', "min_volume_ml of ET is inf"),
        ('{"ET": {"min_volume_ml": true}}', "min_volume_ml of ET is True"),
        ('{"ET": {"largest": 1}}', "largest of ET is 1; it must be true or false"),
    ],
)
def test_rules_that_cannot_be(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "postprocessing.json").write_text(text)
    with pytest.raises(ValueError, match=rf"postprocessing.json: .*{message}"):
        read_rules(tmp_path / FILE, list(BRATS.regions))


@pytest.mark.slow
def test_a_cross_validation_chooses_and_predict_applies(
    strokes: Path, stroke_run: Path, tmp_path: Path
) -> None:
    data, run = strokes, shutil.copytree(stroke_run, tmp_path / "run")
    choose_command = ["postprocess", "--run", str(run), "--data", str(data), "--device", "cpu"]
    shutil.move(run / "fold1", tmp_path / "fold1")
    early = CliRunner().invoke(app, choose_command)
    assert "has no fold 1; finish the cross-validation first" in early.stderr
    shutil.move(tmp_path / "fold1", run / "fold1")
    scores = (run / "fold1" / "scores.csv").rename(tmp_path / "aside.csv")
    assert "fold1 is not finished" in CliRunner().invoke(app, choose_command).stderr
    scores.rename(run / "fold1" / "scores.csv")
    result = CliRunner().invoke(app, [*choose_command, "--json"])
    assert result.exit_code == 0, result.output
    (choice,) = json.loads(result.stdout)
    assert choice["cases"] == 6
    assert choice["after"] >= choice["before"]
    (run / "postprocessing.json").write_text(
        json.dumps({"lesion": {"min_volume_ml": 1e6, "largest": False}})
    )
    for name, options in {"plain": [], "clean": ["--postprocess"]}.items():
        command = [
            "predict",
            "-i",
            str(data),
            "-o",
            str(tmp_path / name),
            "--model",
            str(run / "fold0"),
            *options,
        ]
        assert CliRunner().invoke(app, command).exit_code == 0
    case = read_cohort(data).cases[0].name
    assert not np.any(nibabel.load(tmp_path / "clean" / f"{case}.nii.gz").dataobj)
    shutil.rmtree(tmp_path / "clean")
    (run / "postprocessing.json").write_text(json.dumps({"heart": {}}))
    assert "is about the region heart" in CliRunner().invoke(app, command).stderr
