from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import settings

from factorizer.data.synthetic import write_synthetic
from factorizer.preset_files import change_preset, load_preset

settings.register_profile("patient", deadline=None)  # a slow machine is no failure
settings.load_profile("patient")

# a network that learns a little in a few steps
LEARNING = [
    "training.learning_rate=0.02",
    "training.validate_every=100",
    "model.widths=[8,16]",
    "model.window=4",
    "data.patch_size=[16,16,16]",
]


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


@pytest.fixture(scope="session")
def tumours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six small synthetic scans in the layout of BraTS in the Decathlon; to be read only."""
    folder = tmp_path_factory.mktemp("data") / "tumours"
    write_synthetic("brats", folder, cases=6, size=24, seed=0)
    return folder


@pytest.fixture(scope="session")
def stroke_fold(strokes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fold 1 of a run of three folds on `strokes`, trained without interruption; to be read only.

    A test that changes a run copies it first.
    """
    from testkit.runs import run  # Lightning is imported by tests that train, not by all

    outcome = run(strokes, tmp_path_factory.mktemp("runs") / "strokes")
    assert outcome.finished
    assert outcome.step == 6
    return outcome.folder


@pytest.fixture(scope="session")
def stroke_run(strokes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two folds on `strokes`, three cases held out in each; to be read only."""
    from testkit.runs import train_folds

    preset = change_preset(load_preset("isles22"), [*LEARNING, "model.head_dim=2"])
    preset = change_preset(preset, ["training.folds=2", "training.max_steps=6"])
    return train_folds(preset, strokes, tmp_path_factory.mktemp("runs") / "strokes", folds=(0, 1))


@pytest.fixture(scope="session")
def tumour_run(tumours: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of three folds of a run on `tumours`; to be read only."""
    from testkit.runs import train_folds

    preset = change_preset(load_preset("brats"), [*LEARNING, "training.folds=3"])
    preset = change_preset(preset, ["training.max_steps=8"])
    return train_folds(preset, tumours, tmp_path_factory.mktemp("runs") / "tumours", folds=(0, 1))
