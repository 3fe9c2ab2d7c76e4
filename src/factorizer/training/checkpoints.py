"""Checkpoints of a run: the last, the one before it, and the best; and which of them a run can go on from.

Lightning writes each file whole or not at all. The last is moved aside before it is replaced, so that a crash at any
moment leaves one that can be read.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback


class Checkpoints(Callback):
    """Write last.ckpt every so many steps, and best.ckpt when the validation is better than ever."""

    def __init__(self, folder: Path, every: int) -> None:
        self.folder, self.every = folder, every
        self.best_dice = -1.0
        self.saved_step = -1

    def state_dict(self) -> dict[str, Any]:
        return {"best_dice": self.best_dice}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best_dice = state_dict["best_dice"]

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.global_step % self.every == 0:
            self.save_last(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        dice = float(trainer.callback_metrics["val_dice"])
        if dice > self.best_dice:
            self.best_dice = dice
            trainer.save_checkpoint(self.folder / "best.ckpt")

    def save_last(self, trainer: Trainer) -> None:
        """Once per step, also where gradients are accumulated."""
        if trainer.global_step == self.saved_step:
            return
        self.saved_step = trainer.global_step
        last = self.folder / "last.ckpt"
        if trainer.is_global_zero and last.exists():
            os.replace(last, self.folder / "previous.ckpt")
        trainer.save_checkpoint(last)


def newest_readable(folder: Path, warn: Callable[[str], object]) -> Path | None:
    """The checkpoint to go on from; one that is cut short is passed over with a warning.

    Nothing in a file is executed: only tensors and plain values are loaded.
    """
    for name in ("last.ckpt", "previous.ckpt"):
        file = folder / name
        if not file.exists():
            continue
        try:
            torch.load(file, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
            warn(f"{file} cannot be read ({str(error).splitlines()[0]}); trying the one before")
        else:
            return file
    return None
