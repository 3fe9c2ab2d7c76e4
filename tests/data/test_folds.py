"""Folds, drawn or given. A patient is never in two of them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from factorizer.data.cases import Case, DataError
from factorizer.data.folds import (
    Folds,
    draw_folds,
    read_folds,
    read_own_folds,
    split_fold,
    write_folds,
)


def make_cases(count: int, per_patient: int = 1) -> list[Case]:
    cases = []
    for index in range(count):
        patient = f"patient{index // per_patient}"
        cases.append(Case(f"case{index:03d}", {}, None, patient))
    return cases


def test_folds_are_even_and_follow_the_seed() -> None:
    cases = make_cases(23)
    folds = draw_folds(cases, num_folds=5, seed=0)
    assert sorted(len(names) for names in folds.values()) == [4, 4, 5, 5, 5]
    assert sorted(chain.from_iterable(folds.values())) == [case.name for case in cases]
    assert folds == draw_folds(list(reversed(cases)), num_folds=5, seed=0)
    assert folds != draw_folds(cases, num_folds=5, seed=1)


def test_a_patient_stays_in_one_fold() -> None:
    cases = make_cases(30, per_patient=3)
    for names in draw_folds(cases, num_folds=5, seed=2).values():
        patients = {case.owner for case in cases if case.name in names}
        assert len(names) == 3 * len(patients)


def test_stratified_folds_have_similar_volumes() -> None:
    cases = make_cases(100)
    volumes: dict[str, float] = {}
    for index, case in enumerate(cases):
        volumes[case.name] = float(10 ** np.random.default_rng(index).uniform(-1, 3))

    def spread(folds: Folds) -> float:
        means = []
        for names in folds.values():
            means.append(np.mean(np.log([volumes[name] for name in names])))
        return float(np.std(means))

    drawn = [draw_folds(cases, num_folds=5, seed=seed) for seed in range(10)]
    stratified = [draw_folds(cases, num_folds=5, seed=s, volumes=volumes) for s in range(10)]
    assert max(map(spread, stratified)) < 0.3 * np.mean([spread(folds) for folds in drawn])
    assert stratified[0] != stratified[1]


def test_folds_are_written_and_read(tmp_path: Path) -> None:
    cases = make_cases(10)
    folds = draw_folds(cases, num_folds=5, seed=0)
    write_folds(tmp_path / "folds.json", folds, origin="seed 0")
    assert json.loads((tmp_path / "folds.json").read_text())["origin"] == "seed 0"
    assert read_folds(tmp_path / "folds.json", cases) == folds


def test_a_given_fold_may_have_any_number(tmp_path: Path) -> None:
    file = tmp_path / "folds.csv"
    file.write_text("case,fold\ncase000,1\ncase001,4\ncase002,1\nother,2\n")
    folds = read_folds(file, make_cases(3))
    assert folds == {1: ["case000", "case002"], 4: ["case001"]}
    assert split_fold(folds, 4) == (["case000", "case002"], ["case001"])
    with pytest.raises(DataError, match="fold 0 has no cases; choose one of the folds 1, 4"):
        split_fold(folds, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,fold\na,1\n", "its columns are name, fold; give the columns case and fold"),
        ("case,fold\ncase000,1\n", r"no fold for 1 case \(case001\)"),
        ("case,fold\ncase000,x\ncase001,1\n", "case case000 has the fold 'x'"),
        ("case,fold\ncase000,1\ncase001,1\ncase000,2\n", "case000 is in two folds"),
        ("case,fold\ncase000,1\ncase001,2\n", "patient patient0 is in the folds 1 and 2"),
        ("case,fold\ncase000\n", "line 2: case case000 has the fold ''"),
    ],
)
def test_folds_that_cannot_be_used_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "folds.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        read_folds(file, make_cases(2, per_patient=2))


def test_a_table_with_a_byte_order_mark_and_a_missing_one(tmp_path: Path) -> None:
    file = tmp_path / "folds.csv"
    file.write_text("case,fold\ncase000,0\ncase001,0\n", encoding="utf-8-sig")
    assert read_folds(file, make_cases(2)) == {0: ["case000", "case001"]}
    with pytest.raises(DataError, match="there is no such file; give a CSV"):
        read_folds(tmp_path / "nowhere.csv", make_cases(2))


def test_a_table_with_semicolons_and_capitals(tmp_path: Path) -> None:
    file = tmp_path / "folds.csv"
    file.write_text("Case;FOLD\r\ncase000; 0 \r\ncase001;1\r\n", encoding="utf-8-sig")
    assert read_folds(file, make_cases(2)) == {0: ["case000"], 1: ["case001"]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "folds.csv",
            f"case,fold\ncase000,{'9' * 5000}\n",
            "line 2: case case000 has the fold '999",
        ),
        ("folds.csv", "case,fold\ncase000,\u00b2\n", "has the fold '\u00b2'; give whole numbers"),
        ("folds.csv", f"case,fold\n{'x' * 140_000},0\n", "it is not a table"),
        ("folds.csv", "case,fold\n,0\n", "line 2 has no case"),
        ("folds.json", "[" * 200_000, "nested too deep; give a CSV"),
        (
            "folds.json",
            '{"folds": {"0": "case000"}}',
            "it holds no folds .folds has no list of names '0'",
        ),
        ("folds.json", '{"folds": {"0": [["case000"]]}}', "it holds no folds"),
        ("folds.json", '{"folds": {"-1": ["case000"]}}', "has the fold '-1'"),
        ("folds.json", '{"folds": [1]}', "it holds no folds"),
        ("folds.json", '[{"val": ["case000"]}]', "split 0 has no list of names 'train'"),
        ("folds.json", "5", "it holds no folds"),
        ("folds.json", "[]", "it holds no folds"),
    ],
)
def test_hostile_files_are_one_error(tmp_path: Path, name: str, content: str, message: str) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(DataError, match=message):
        read_folds(file, make_cases(1))


def test_a_case_in_two_folds_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "folds.json"
    file.write_text('{"folds": {"0": ["case000"], "1": ["case000", "case001"]}}')
    with pytest.raises(DataError, match="case000 is in two folds"):
        read_folds(file, make_cases(2))


def test_a_run_keeps_its_own_folds(tmp_path: Path) -> None:
    """Even with a patient in two folds, a case that is new, and one that is missing."""
    file = tmp_path / "folds.json"
    write_folds(file, {0: ["case000", "gone"], 1: ["case001"]}, origin="before")
    cases = make_cases(3, per_patient=2)
    assert read_own_folds(file, cases) == {0: ["case000"], 1: ["case001"]}
    message = r"none of the 1 case is in it \(case000, gone, case001, ...\)"
    with pytest.raises(DataError, match=message):
        read_own_folds(file, [Case("other", {})])
    with pytest.raises(DataError, match="no fold for 1 case"):
        read_folds(file, cases)
    with pytest.raises(DataError, match="patient patient0 is in the folds 0 and 1"):
        read_folds(file, cases[:2])
    guessed = [replace(case, patient_is_sure=False) for case in cases[:2]]
    # whoever gives folds may know the patients better
    assert read_folds(file, guessed) == {0: ["case000"], 1: ["case001"]}


def test_too_few_patients_are_an_error() -> None:
    with pytest.raises(DataError, match="3 labelled patients cannot be divided into 5 folds"):
        draw_folds(make_cases(9, per_patient=3), num_folds=5, seed=0)


def test_splits_of_nnunet_are_read(tmp_path: Path) -> None:
    cases = make_cases(4)
    file = tmp_path / "splits_final.json"
    names = [case.name for case in cases]
    splits = [{"train": names[2:], "val": names[:2]}, {"train": names[:2], "val": names[2:]}]
    file.write_text(json.dumps(splits))
    assert read_folds(file, cases) == {0: names[:2], 1: names[2:]}
    file.write_text(json.dumps(splits[:1]))  # with a single split, two cases are never held out
    assert split_fold(read_folds(file, cases), 0) == (names[2:], names[:2])
    file.write_text(json.dumps([splits[0], splits[0]]))
    with pytest.raises(DataError, match="is in two folds"):
        read_folds(file, cases)
    file.write_text("[1, 2]")
    with pytest.raises(DataError, match=r"it holds no folds .* give a CSV"):
        read_folds(file, cases)
