"""Checkpoints of a run: the last, the one before it, and the best; and which of them a run can go
on from.

A new file is written beside the last, which is moved aside only when the new one is whole: a crash
or a full disk at any moment leaves one that can be read. The best is chosen on the held-out fold
and therefore optimistic, as it says in itself; scores are the last's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from factorizer.inference.weights import verify_archive
from factorizer.training.environment import RunError

REMEDY = "remove it to resume from the checkpoint before, or restore it"


class Checkpoints(Callback):
    """Write last.ckpt every so many steps, and best.ckpt when the validation is better than ever.

    Where a step is validated its checkpoint comes after that: a run that is resumed from it does
    not validate the step again. `start_step` is that of the checkpoint that the run is resumed
    from.
    """

    def __init__(
        self, folder: Path, *, every: int, validate_every: int | None, start_step: int = 0
    ) -> None:
        self.folder, self.every, self.validate_every = folder, every, validate_every
        self.best_dice = -1.0
        self.saved_step = start_step
        self.saving_best = False

    def validates(self, step: int) -> bool:
        """Whether a validation follows this step."""
        return self.validate_every is not None and step % self.validate_every == 0

    def state_dict(self) -> dict[str, Any]:
        return {"best_dice": self.best_dice}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best_dice = float(state_dict["best_dice"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Know the best of before: it may have been found after the checkpoint that the run goes on
        from."""
        best = read_checkpoint(self.folder / "best.ckpt")
        with suppress(KeyError, TypeError):  # one that is damaged says nothing
            if best is not None and 0 < best["global_step"] <= trainer.global_step:
                self.best_dice = max(self.best_dice, best["callbacks"][self.state_key]["best_dice"])

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.global_step % self.every == 0 and not self.validates(trainer.global_step):
            self.save_last(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        dice = float(trainer.callback_metrics["val_dice"])
        if dice > self.best_dice:
            self.best_dice = dice
            self.save(trainer, "best.ckpt")
        if trainer.global_step % self.every == 0:
            self.save_last(trainer)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self.saving_best:
            checkpoint["chosen_on"] = "the held-out fold: its scores there are optimistic"

    def save_last(self, trainer: Trainer) -> None:
        """Once per step, also where gradients are accumulated."""
        if trainer.global_step != self.saved_step:
            self.save(trainer, "last.ckpt")
            self.saved_step = trainer.global_step

    def save(self, trainer: Trainer, name: str) -> None:
        """All processes take part; the first writes."""
        new, place = unfinished(self.folder, name), self.folder / name
        self.saving_best = name == "best.ckpt"
        try:
            trainer.save_checkpoint(new)
            if trainer.is_global_zero:
                if name == "last.ckpt" and place.exists():
                    os.replace(place, self.folder / "previous.ckpt")
                os.replace(new, place)
            trainer.strategy.barrier()  # whoever goes on finds the file in its place
        except OSError as error:
            new.unlink(missing_ok=True)
            kept = (
                "the one before is kept"
                if (self.folder / "last.ckpt").exists()
                else "there is none before it"
            )
            raise OSError(
                f"the checkpoint of step {trainer.global_step} cannot be written to {place} "
                f"({error.strerror or error}); {kept}. Make room and let the run go on"
            ) from error
        finally:
            self.saving_best = False


def remove_unfinished(folder: Path) -> None:
    """Remove what a run that was killed while it wrote a checkpoint left; only under the lock of
    its fold."""
    for name in ("last.ckpt", "best.ckpt"):
        unfinished(folder, name).unlink(missing_ok=True)


def unfinished(folder: Path, name: str) -> Path:
    """Where a checkpoint is written before it is put in its place."""
    return folder / f".{name}.new"


def newest_readable(folder: Path, warn: Callable[[str], object]) -> tuple[Path | None, int]:
    """The checkpoint to go on from and its step; one that is cut short is passed over with a
    warning."""
    for name in ("last.ckpt", "previous.ckpt"):
        file = folder / name
        if file.exists():
            checkpoint = read_checkpoint(file)
            if checkpoint is not None:
                return file, step_of(file, checkpoint)
            warn(f"{file} cannot be read; trying the one before")
    return None, 0


def step_of(file: Path, checkpoint: dict[str, Any]) -> int:
    step = checkpoint["global_step"]
    if type(step) is not int or step < 0:
        raise RunError(f"{file} is of step {step!r}, which is no number of steps; {REMEDY}")
    return step


def read_checkpoint(file: Path) -> dict[str, Any] | None:
    """What is in a file, or None where it cannot be read. Nothing in it is executed: only tensors
    and plain values are loaded."""
    try:
        verify_archive(file)
        checkpoint = torch.load(file, map_location="cpu", weights_only=True)
        return checkpoint if isinstance(checkpoint, dict) and "global_step" in checkpoint else None
    except Exception:  # bytes of any kind raise errors of any kind
        return None
