"""Folds of a data set, dealt by the library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from factorizer.data.deal import make_folds
from factorizer.errors import FactorizerError
from testkit.writing import write_isles


def test_folds_are_drawn_and_saved(tmp_path: Path) -> None:
    folder = write_isles(tmp_path / "set", cases=6)
    dealt = make_folds(folder, out=tmp_path / "folds.json", num_folds=3, seed=1)
    assert [len(names) for names in dealt.folds.values()] == [2, 2, 2]
    assert dealt.folds == make_folds(folder, num_folds=3, seed=1).folds
    content = json.loads((tmp_path / "folds.json").read_text())
    assert content["origin"] == "seed 1"
    again = make_folds(folder, split=tmp_path / "folds.json")
    assert (again.folds, again.origin) == (dealt.folds, "split folds.json")


def test_stratified_folds_read_the_labels_and_report_problems(tmp_path: Path) -> None:
    folder = write_isles(tmp_path / "set", cases=4)
    next((folder / "derivatives").rglob("*0003_ses-0001_msk.nii.gz")).write_bytes(b"broken")
    dealt = make_folds(folder, num_folds=2, stratify=True)
    assert dealt.origin == "seed 0, stratified by volume"
    (problem,) = dealt.problems
    assert "not a NIfTI image" in problem.message
    assert sum(map(len, dealt.folds.values())) == 4


def test_a_split_cannot_be_stratified(tmp_path: Path) -> None:
    with pytest.raises(FactorizerError, match="stratify is for folds that are drawn"):
        make_folds(tmp_path, stratify=True, split=tmp_path / "split.csv")
