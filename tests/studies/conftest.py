from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from factorizer.preset_files import change_preset, load_preset

CHANGES = [
    "training.max_steps=2",
    "training.folds=2",
    "model.widths=[8,16]",
    "model.window=4",
    "model.head_dim=2",
    "data.patch_size=[16,16,16]",
]


@pytest.fixture(scope="session")
def stroke_run(strokes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two folds on `strokes`, three cases held out in each; to be read only."""
    from factorizer.training.session import train_fold
    from testkit.runs import CPU

    preset = change_preset(load_preset("isles22"), CHANGES)
    out = tmp_path_factory.mktemp("runs") / "strokes"
    for number in (0, 1):
        assert train_fold(preset, data=strokes, fold=number, out=out, machine=CPU).finished
    return out


@pytest.fixture
def fold(stroke_run: Path, tmp_path: Path) -> Path:
    """A trained fold that a test may change."""
    return shutil.copytree(stroke_run, tmp_path / "strokes") / "fold0"
