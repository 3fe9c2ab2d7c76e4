"""Cached cases: they are made once, and damaged ones are made again."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from factorizer.data import cache
from factorizer.data.cache import CaseStore, Preparation
from factorizer.data.layouts import read_cohort
from factorizer.data.preprocess import Preprocessing
from testkit.bars import CountedBars
from testkit.writing import random_image, write_msd, write_nifti

VALUES = {0: 0, 1: 1, 2: 2, 3: 3}
PREPARATION = Preparation(("T1",), VALUES, Preprocessing())


def make_store(folder: Path, preparation: Preparation = PREPARATION) -> CaseStore:
    return CaseStore(folder / "cache", read_cohort(folder / "set").cases, preparation)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_msd(tmp_path / "set", cases=2, channels=["T1"])
    return tmp_path


def count_preparations(monkeypatch) -> list[str]:
    prepared: list[str] = []
    original = cache.prepare_case

    def counting(case, *args, **options):
        prepared.append(case.name)
        return original(case, *args, **options)

    monkeypatch.setattr(cache, "prepare_case", counting)
    return prepared


def test_a_case_is_prepared_once(folder: Path, monkeypatch) -> None:
    prepared = count_preparations(monkeypatch)
    for _ in range(2):
        store = make_store(folder)
        assert store.prepare(["case_000", "case_001"]) == []
        image, label = store.open("case_000")
        assert image.shape == (1, 12, 10, 8)
        assert label.shape == (12, 10, 8)
    assert sorted(prepared) == ["case_000", "case_001"]


def test_a_changed_file_or_setting_makes_another_entry(folder: Path, monkeypatch) -> None:
    prepared = count_preparations(monkeypatch)
    before = np.array(make_store(folder).open("case_000")[0])
    write_nifti(folder / "set" / "imagesTr" / "case_000.nii.gz", random_image(77))
    changed = np.array(make_store(folder).open("case_000")[0])
    assert not np.array_equal(before, changed)
    plain = make_store(
        folder, replace(PREPARATION, preprocessing=Preprocessing(normalization="none"))
    ).open("case_000")[0]
    np.testing.assert_array_equal(plain[0], random_image(77))
    assert len(prepared) == 3


@pytest.mark.parametrize("damage", ["cut", "flip", "remove", "no-sums"])
def test_a_damaged_entry_is_made_again(folder: Path, damage: str) -> None:
    store = make_store(folder)
    good = np.array(store.open("case_000")[0])
    file = store.entries["case_000"] / "image.npy"
    content = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(content[:-100])
    elif damage == "flip":
        content[-7] ^= 255
        file.write_bytes(content)
    elif damage == "remove":
        file.unlink()
    else:
        (store.entries["case_000"] / "checksums.json").unlink()
    np.testing.assert_array_equal(make_store(folder).open("case_000")[0], good)


def test_a_bad_case_is_reported_and_the_others_continue(folder: Path) -> None:
    (folder / "set" / "imagesTr" / "case_000.nii.gz").write_bytes(b"x")
    store = make_store(folder)
    (problem,) = store.prepare(["case_000", "case_001"])
    assert problem.case == "case_000"
    assert list(store.entries) == ["case_001"]


def test_a_bug_is_a_problem_of_its_case_and_the_others_continue(folder: Path, monkeypatch) -> None:
    original = cache.prepare_case

    def fail(case, *args, **options):
        if case.name == "case_000":
            raise KeyError("oops")
        return original(case, *args, **options)

    monkeypatch.setattr(cache, "prepare_case", fail)
    monkeypatch.chdir(folder)
    store = make_store(folder)
    (problem,) = store.prepare(["case_000", "case_001"])
    assert (problem.case, problem.severity) == ("case_000", "bug")
    assert list(store.entries) == ["case_001"]
    (report,) = folder.glob("factorizer-bug-*.txt")
    assert str(report) in problem.remedy
    assert "KeyError: 'oops'" in report.read_text()


def test_a_full_disk_concerns_all_cases(folder: Path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        make_store(folder).prepare(["case_000", "case_001"])


def test_progress_counts_the_cases(folder: Path) -> None:
    progress = CountedBars()
    make_store(folder).prepare(["case_000", "case_001"], progress=progress)
    assert progress.done == {"preparing cases": (2, 2)}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_a_pipe_is_refused_without_waiting(folder: Path) -> None:
    file = folder / "set" / "imagesTr" / "case_000.nii.gz"
    cases = read_cohort(folder / "set").cases
    file.unlink()
    os.mkfifo(file)
    (problem,) = CaseStore(folder / "cache", cases, PREPARATION).prepare(["case_000", "case_001"])
    assert str(problem) == f"{file}: it is not a regular file; give a file"


def test_an_interrupted_write_leaves_nothing_behind(folder: Path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        make_store(folder).open("case_000")
    assert entries_of(folder) == []


def entries_of(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "cache").iterdir() if path.name != ".locks")


def test_an_entry_can_be_read_by_others(folder: Path) -> None:
    store = make_store(folder)
    store.open("case_000")
    ordinary = folder / "ordinary"
    ordinary.mkdir()
    assert store.entries["case_000"].stat().st_mode == ordinary.stat().st_mode


def prepare_all(folder: Path) -> int:
    """Prepare two cases, and return how many problems and empty images there are."""
    store = make_store(folder)
    problems = store.prepare(["case_000", "case_001"])
    images = [store.open(name)[0] for name in store.cases]
    return len(problems) + sum(not image.any() for image in images)


@pytest.mark.slow
def test_two_processes_may_prepare_the_same_cases(folder: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(prepare_all, [folder] * 4) == [0] * 4
    assert len(entries_of(folder)) == 2
    for path in (folder / "cache").glob("case*"):  # damaged for all at once
        (path / "image.npy").write_bytes(b"x")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(prepare_all, [folder] * 4) == [0] * 4
