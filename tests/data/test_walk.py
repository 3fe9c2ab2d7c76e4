"""Folders are listed within bounds, even with links and special files in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from factorizer.data import walk
from factorizer.data.cases import DataError
from factorizer.data.layouts import read_cohort
from testkit.writing import write_isles, write_pairs


def test_links_in_a_circle_are_followed_once(tmp_path: Path) -> None:
    """Two links to the folder itself make two to the power of forty paths."""
    write_isles(tmp_path)
    session = tmp_path / "rawdata" / "sub-strokecase0000" / "ses-0001"
    for place in (session, session / "dwi", tmp_path / "derivatives"):
        (place / "a").symlink_to(".")
        (place / "b").symlink_to("..")
    cohort = read_cohort(tmp_path)
    assert cohort.problems == ()
    assert len(cohort.labelled) == 3


def test_links_to_files_and_folders_elsewhere_are_followed(tmp_path: Path) -> None:
    store = write_isles(tmp_path / "store")
    linked = tmp_path / "linked"
    (linked / "rawdata").mkdir(parents=True)
    (linked / "derivatives").symlink_to(store / "derivatives")
    for number, patient in enumerate(sorted((store / "rawdata").iterdir())):
        place = linked / "rawdata" / patient.name
        if number:
            place.symlink_to(patient)
            continue
        for file in patient.rglob("*.nii.gz"):  # as git-annex does
            copy = place / file.relative_to(patient)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.symlink_to(os.path.relpath(file, copy.parent))
    cohort = read_cohort(linked)
    assert cohort.problems == ()
    expected = [case.name for case in read_cohort(store).cases]
    assert [case.name for case in cohort.labelled] == expected


def test_pipes_are_skipped_and_broken_links_are_kept(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to(tmp_path / "a.png")
    (tmp_path / "c.png").symlink_to("nowhere")
    (tmp_path / "d.png").symlink_to("d.png")
    (tmp_path / "e.png").write_bytes(b"")
    assert [file.name for file in walk.list_folder(tmp_path)] == ["c.png", "d.png", "e.png"]


def test_a_pipe_among_the_images_of_a_data_set_is_skipped(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    os.mkfifo(tmp_path / "A.png")
    os.mkfifo(tmp_path / "A_1stHO.png")
    assert len(read_cohort(tmp_path).cases) == 3


def test_too_many_files_of_a_case_are_one_problem(tmp_path: Path, monkeypatch) -> None:
    write_isles(tmp_path)
    monkeypatch.setattr(walk, "MOST_DEEP_ENTRIES", 10)
    for number in range(20):
        (tmp_path / "rawdata" / "sub-strokecase0001" / "ses-0001" / f"{number}.json").touch()
    cohort = read_cohort(tmp_path)
    assert len(cohort.cases) == 2
    (problem,) = cohort.problems
    assert problem.case == "sub-strokecase0001"
    assert "it holds more than 10 files" in problem.message


def test_folders_are_listed_to_a_depth(tmp_path: Path) -> None:
    place = tmp_path
    for number in range(walk.MOST_DEPTH + 3):
        (place / f"{number}.txt").touch()
        place = place / "deeper"
        place.mkdir()
    assert len(walk.list_deep(tmp_path)) == walk.MOST_DEPTH + 1


def test_too_many_entries_of_a_folder_are_an_error(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(walk, "MOST_ENTRIES", 2)
    for name in "abc":
        (tmp_path / name).touch()
    with pytest.raises(DataError, match="more than 2 files"):
        walk.list_folder(tmp_path)


def test_a_file_in_place_of_a_folder_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert walk.list_folder(tmp_path / "file") == []
