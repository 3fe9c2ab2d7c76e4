from __future__ import annotations

import pytest
import torch
from hypothesis import settings

settings.register_profile("patient", deadline=None)  # a slow machine is no failure
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def seed() -> None:
    """Tests that draw from PyTorch's global generator draw the same numbers in every run."""
    torch.manual_seed(0)
