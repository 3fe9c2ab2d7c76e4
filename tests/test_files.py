"""A file is replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from factorizer.files import write_atomically


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
