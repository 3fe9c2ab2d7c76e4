"""Files are replaced completely or not at all, and are read within bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from factorizer.files import (
    FileError,
    parse_yaml,
    read_csv,
    read_json,
    read_text,
    remove_leftovers,
    write_atomically,
)


def test_folders_are_made_and_a_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b.txt"
    write_atomically(file, "one")
    write_atomically(file, b"two")
    assert file.read_text() == "two"
    assert list(file.parent.iterdir()) == [file]
    ordinary = tmp_path / "c"
    ordinary.touch()
    assert file.stat().st_mode == ordinary.stat().st_mode


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "b.txt"
    file.write_text("old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_only_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """Leftovers have the name that `write_atomically` gives."""
    pid = os.fork()
    if not pid:
        os.fsync = lambda _: os._exit(0)
        write_atomically(tmp_path / "b.txt", "new")
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    (left,) = tmp_path.iterdir()
    others = {".b.txt.backup", ".b.txt.abcdefgh.gz", ".c.txt.abcdefgh", "b.txt.abcdefgh"}
    for name in others:
        (tmp_path / name).touch()
    remove_leftovers(tmp_path / "b.txt", tmp_path / "nowhere" / "b.txt")
    assert not left.exists()
    assert {file.name for file in tmp_path.iterdir()} == others


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_tables_may_have_any_separator_a_byte_order_mark_and_capitals(
    tmp_path, separator: str
) -> None:
    file = tmp_path / "t.csv"
    file.write_text(f"\ufeffCase{separator} DWI\na{separator}x.nii\n\nb\n")
    assert read_csv(file) == [(2, {"case": "a", "dwi": "x.nii"}), (4, {"case": "b", "dwi": ""})]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("case,Case\n", "name each column once"),
        ("case,fold\na,1,2\n", "line 2 has 3 cells for 2 columns"),
        ("case\n" + "x" * 200_000, "field larger than field limit"),
        (b"\xff\xfe", "not text in UTF-8"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    file = tmp_path / "t.csv"
    write_atomically(file, content)
    with pytest.raises(FileError, match=message):
        read_csv(file)


def test_pipes_huge_files_and_deep_nesting_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="not a regular file"):
        read_text(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(10**9)
    with pytest.raises(FileError, match="1,000,000,000 bytes"):
        read_text(tmp_path / "huge")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(FileError, match="nested too deep"):
        read_json(tmp_path / "deep.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x [1]\nb: *x", "aliases"),
        ("[" * 40 + "]" * 40, "too deep"),
        ("a: 2001-99-99", "month"),
        ("#" * 2**21, "are read"),
    ],
)
def test_yaml_is_bounded(text: str, message: str) -> None:
    with pytest.raises(yaml.YAMLError, match=message):
        parse_yaml(text)
