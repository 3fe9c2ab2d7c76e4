"""A run without interruption, which others are held against."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.runs import run


@pytest.fixture(scope="session")
def whole(strokes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without interruption."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    outcome = run(strokes, out)
    assert outcome.finished
    assert outcome.step == 6
    return outcome.folder
