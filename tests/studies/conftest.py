from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def fold(stroke_run: Path, tmp_path: Path) -> Path:
    """A trained fold that a test may change."""
    return shutil.copytree(stroke_run, tmp_path / "strokes") / "fold0"
