from __future__ import annotations

from pathlib import Path

import pytest

from factorizer.preset_files import change_preset, load_preset
from testkit.runs import CPU

CHANGES = [
    "training.max_steps=2",
    "training.folds=2",
    "model.widths=[8,16]",
    "model.window=4",
    "model.head_dim=2",
    "data.patch_size=[16,16,16]",
]


@pytest.fixture(scope="module")
def data(strokes: Path) -> Path:
    return strokes


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from factorizer.training.run import train_fold

    preset = change_preset(load_preset("isles22"), CHANGES)
    out = tmp_path_factory.mktemp("run") / "run"
    return train_fold(preset, data=data, fold=0, out=out, machine=CPU).folder
