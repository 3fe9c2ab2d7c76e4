from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import settings

from factorizer.data.synthetic import write_synthetic

settings.register_profile("patient", deadline=None)  # a slow machine is no failure
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def seed() -> None:
    """Tests that draw from PyTorch's global generator draw the same numbers in every run."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def strokes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six small synthetic scans in the layout of ISLES'22; to be read only."""
    folder = tmp_path_factory.mktemp("data") / "strokes"
    write_synthetic("isles22", folder, cases=6, size=24, seed=0)
    return folder
