"""Where tests find what the repository does not contain: real scans and reference networks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]  # of the repository
TESTS = ROOT / "tests"


def place(variable: str, default: Path) -> Path:
    """The folder that an environment variable names, or the default."""
    return Path(os.environ.get(variable) or default).resolve()


REAL_DATA = place("FACTORIZER_TEST_DATA", ROOT.parent / "shared" / "data")
REFERENCE = place("FACTORIZER_TEST_REFERENCE", ROOT.parent / "shared" / "reference")


def needs(folder: Path, what: str, variable: str) -> pytest.MarkDecorator:
    """Skip a test where a folder is missing, and say which variable names its place."""
    reason = f"{what} are not in {folder}; set {variable} to their folder"
    return pytest.mark.skipif(not folder.is_dir(), reason=reason)


needs_real_data = needs(REAL_DATA, "the real scans", "FACTORIZER_TEST_DATA")
needs_reference = needs(REFERENCE, "the networks of others", "FACTORIZER_TEST_REFERENCE")
