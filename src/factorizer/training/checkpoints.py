"""Checkpoints of a run: the last, the one before it, and the best; and which of them a run can go on from.

A new file is written beside the last, which is moved aside only when the new one is whole: a crash or a full disk at
any moment leaves one that can be read. The best is chosen on the held-out fold and therefore optimistic, as it says in
itself; scores are the last's.
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
        self.saving_best = False

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
            self.save(trainer, "best.ckpt")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if self.saving_best:
            checkpoint["chosen_on"] = "the held-out fold: its scores there are optimistic"

    def save_last(self, trainer: Trainer) -> None:
        """Once per step, also where gradients are accumulated."""
        if trainer.global_step != self.saved_step:
            self.save(trainer, "last.ckpt")
            self.saved_step = trainer.global_step

    def save(self, trainer: Trainer, name: str) -> None:
        """All processes take part; the first writes."""
        new, place = self.folder / f".{name}.new", self.folder / name
        self.saving_best = name == "best.ckpt"
        try:
            trainer.save_checkpoint(new)
            if trainer.is_global_zero:
                if name == "last.ckpt" and place.exists():
                    os.replace(place, self.folder / "previous.ckpt")
                os.replace(new, place)
        except OSError as error:
            new.unlink(missing_ok=True)
            kept = "the one before is kept" if (self.folder / "last.ckpt").exists() else "there is none before it"
            raise OSError(
                f"the checkpoint of step {trainer.global_step} cannot be written to {place} "
                f"({error.strerror or error}); {kept}. Make room and run the same command with --resume"
            ) from error
        finally:
            self.saving_best = False


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
