"""Nothing is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from factorizer.errors import FactorizerError
from factorizer.files import refuse_existing, require_empty_folder


def test_an_existing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    refuse_existing(tmp_path / "a")
    with pytest.raises(FactorizerError, match="b already exists; give another name"):
        refuse_existing(tmp_path / "a", tmp_path / "b")


def test_a_folder_must_be_new_or_empty(tmp_path: Path) -> None:
    require_empty_folder(tmp_path)
    require_empty_folder(tmp_path / "new")
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(FactorizerError, match="is not an empty folder; give another folder"):
            require_empty_folder(place)
