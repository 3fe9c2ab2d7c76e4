"""Small training runs for the tests, and callbacks that watch and disturb them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback

from factorizer.config import Preset
from factorizer.preset_files import change_preset, load_preset
from factorizer.training.machine import Machine
from factorizer.training.session import train_fold

CHANGES = [
    "training.max_steps=6",
    "training.checkpoint_every=2",
    "training.validate_every=3",
    "training.folds=3",
    "model.widths=[8,16]",
    "model.window=4",
    "model.dropout=0.1",
    "data.patch_size=[16,16,16]",
]
PRESET = change_preset(load_preset("isles22"), CHANGES)
CPU = Machine(device="cpu", workers=0)


def run(data: Path, out: Path, preset: Preset = PRESET, **options: Any):
    return train_fold(preset, data=data, fold=1, out=out, **({"machine": CPU} | options))


def train_folds(preset: Preset, data: Path, out: Path, folds: Sequence[int]) -> Path:
    """Train some folds of a run one after the other; the folder of the run."""
    for fold in folds:
        assert train_fold(preset, data=data, fold=fold, out=out, machine=CPU).finished
    return out


def weights(folder: Path, name: str = "last") -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)["state_dict"]


def assert_same(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (one / "scores.csv").read_text() == (other / "scores.csv").read_text()


class At(Callback):
    """Do something at the end of a step."""

    def __init__(self, step: int, action) -> None:
        self.step, self.action = step, action

    def on_train_batch_end(self, trainer, *_: object) -> None:
        if trainer.global_step == self.step:
            self.action()


def crash() -> None:
    raise RuntimeError("power cut")


class Samples(Callback):
    """The numbers of the samples that are trained on."""

    def __init__(self) -> None:
        self.indices: list[int] = []

    def on_train_batch_start(self, trainer, module, batch, batch_index) -> None:
        self.indices += batch["index"].tolist()


class Validated(Callback):
    """The steps at which a run is validated."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_validation_start(self, trainer, module) -> None:
        self.steps.append(trainer.global_step)


class Rates(Callback):
    """The learning rates that steps are made with."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_before_optimizer_step(self, trainer, module, optimizer) -> None:
        self.seen.append(optimizer.param_groups[0]["lr"])
