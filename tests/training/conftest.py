from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def whole(stroke_fold: Path) -> Path:
    """A run without interruption, with which others are compared."""
    return stroke_fold
