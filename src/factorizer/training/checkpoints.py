"""Checkpoints of a fold: the last, the one before it, and the best.

A new checkpoint is written beside the last one. Only when it is whole, the last one is moved aside.
So a crash or a full disk always leaves one that can be read. The best is chosen on the held-out
cases. Its scores there are optimistic, and it says so. The scores of the fold are those of the last
one.
"""

from __future__ import annotations

import os
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from factorizer.errors import RunError
from factorizer.progress import Progress
from factorizer.runs.fold import Fold
from factorizer.runs.weights import verify_archive

RESTORING = "lightning.pytorch.trainer.connectors.checkpoint_connector"  # the module that does
REMEDY = "remove it to resume from the checkpoint before, or restore it"


class Checkpoints(Callback):
    """Write last.ckpt every so many steps, and best.ckpt when the validation is better than ever.

    If a step is validated, its checkpoint is written afterwards. So a resumed training does not
    validate the step again. `start_step` is the step of the checkpoint to resume from.
    """

    def __init__(
        self, fold: Fold, *, every: int, validate_every: int | None, start_step: int = 0
    ) -> None:
        self.fold = fold
        self.every = every
        self.validate_every = validate_every
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
        """Remember the best Dice. It may be newer than the checkpoint to resume from."""
        best = read_checkpoint(self.fold.best_checkpoint)
        with suppress(KeyError, TypeError):  # a damaged checkpoint says nothing
            if best is not None and 0 < best["global_step"] <= trainer.global_step:
                self.best_dice = max(self.best_dice, best["callbacks"][self.state_key]["best_dice"])

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.global_step % self.every == 0 and not self.validates(trainer.global_step):
            self.save_last(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        dice = float(trainer.callback_metrics["val_dice"])
        if dice > self.best_dice:
            self.best_dice = dice
            self.save(trainer, self.fold.best_checkpoint)
        if trainer.global_step % self.every == 0:
            self.save_last(trainer)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self.saving_best:
            checkpoint["chosen_on"] = "the held-out fold: its scores there are optimistic"

    def save_last(self, trainer: Trainer) -> None:
        """Write last.ckpt, once per step even if gradients are accumulated."""
        if trainer.global_step != self.saved_step:
            self.save(trainer, self.fold.last_checkpoint)
            self.saved_step = trainer.global_step

    def save(self, trainer: Trainer, place: Path) -> None:
        """Write a checkpoint beside its place, then put it there. All processes take part."""
        new = unfinished(place)
        self.saving_best = place == self.fold.best_checkpoint
        try:
            trainer.save_checkpoint(new)
            if trainer.is_global_zero:
                if place == self.fold.last_checkpoint and place.exists():
                    os.replace(place, self.fold.previous_checkpoint)
                os.replace(new, place)
            trainer.strategy.barrier()  # every process then finds the file in its place
        except OSError as error:
            new.unlink(missing_ok=True)
            raise OSError(self.explain_full_disk(trainer.global_step, place, error)) from error
        finally:
            self.saving_best = False

    def explain_full_disk(self, step: int, place: Path, error: OSError) -> str:
        exists = self.fold.last_checkpoint.exists()
        kept = "the one before is kept" if exists else "none was written before"
        return (
            f"the checkpoint of step {step} cannot be written to {place} "
            f"({error.strerror or error}); {kept}. Make room and resume the run"
        )

    def remove_unfinished(self) -> None:
        """Remove checkpoints that a killed process left half written."""
        for place in (self.fold.last_checkpoint, self.fold.best_checkpoint):
            unfinished(place).unlink(missing_ok=True)


def unfinished(place: Path) -> Path:
    """Where a checkpoint is written before it is put in its place."""
    return place.with_name(f".{place.name}.new")


def newest_readable(fold: Fold, progress: Progress) -> tuple[Path | None, int]:
    """The checkpoint to resume from and its step. One that cannot be read is skipped."""
    for file in (fold.last_checkpoint, fold.previous_checkpoint):
        if file.exists():
            checkpoint = read_checkpoint(file)
            if checkpoint is not None:
                return file, step_of(file, checkpoint)
            progress.say(f"{file} cannot be read; trying the one before")
    return None, 0


def step_of(file: Path, checkpoint: dict[str, Any]) -> int:
    step = checkpoint["global_step"]
    if type(step) is not int or step < 0:
        raise RunError(f"{file} has the step {step!r}, which is not a number; {REMEDY}")
    return step


def arose_in_checkpoint(error: BaseException) -> bool:
    """Whether an error arose while Lightning restored a checkpoint.

    A damaged checkpoint raises errors of any kind there. Anywhere else they are not its fault.
    """
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__") == RESTORING for frame, _ in frames)


def read_checkpoint(file: Path) -> dict[str, Any] | None:
    """The content of a checkpoint, or None if it cannot be read. Nothing in it is executed."""
    try:
        verify_archive(file)
        checkpoint = torch.load(file, map_location="cpu", weights_only=True)
        return checkpoint if isinstance(checkpoint, dict) and "global_step" in checkpoint else None
    except Exception:  # bytes of any kind raise errors of any kind
        return None
