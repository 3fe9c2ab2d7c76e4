"""Tell how a training goes: loss, learning rate, samples per second and the time that is left."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from factorizer.progress import Progress, Task
from factorizer.training.time_left import TimeLeft


class ReportProgress(Callback):
    """A bar for the training, and one for each validation."""

    def __init__(self, progress: Progress, batch_size: int) -> None:
        self.progress = progress
        self.batch_size = batch_size
        self.open_bars = ExitStack()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.left = make_time_left(trainer, pl_module, self.batch_size)
        self.training = self.open_bar("training", trainer.max_steps)
        self.training.update(completed=trainer.global_step)

    def open_bar(self, label: str, total: int) -> Task:
        return self.open_bars.enter_context(self.progress.task(label, total=total))

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        metrics = trainer.callback_metrics
        if "learning_rate" not in metrics:  # the first parts of an accumulated batch
            return
        self.left.end_step(trainer.global_step, time.monotonic())
        loss, rate = float(metrics["loss"]), float(metrics["learning_rate"])
        state = f"loss {loss:.4f}  rate {rate:.2e}"
        if self.left.step_seconds is not None:
            speed = self.batch_size / self.left.step_seconds
            state += f"  {speed:.2f} samples/s  {self.left.text()}"
        self.training.update(completed=trainer.global_step, state=state)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.validation_start = time.monotonic()
        self.validation_bar = ExitStack()
        bar = self.progress.task("validating", total=len(trainer.datamodule.held_out))
        self.validating = self.validation_bar.enter_context(bar)

    def on_validation_batch_end(self, *args: Any) -> None:
        self.validating.advance()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.left.end_validation(time.monotonic() - self.validation_start)
        self.validation_bar.close()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.open_bars.close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        if hasattr(self, "validation_bar"):
            self.validation_bar.close()
        self.open_bars.close()


def make_time_left(trainer: Trainer, module: LightningModule, batch_size: int) -> TimeLeft:
    """An estimate that knows how many patches a validation predicts."""
    held_out = trainer.datamodule.held_out
    patches = 0
    for name in held_out.names:
        _, label = held_out.store.open(name)
        patches += module.sliding.count(label.shape)
    every = int(trainer.val_check_interval) // trainer.accumulate_grad_batches
    return TimeLeft(
        step=trainer.global_step,
        max_steps=trainer.max_steps,
        validate_every=max(1, every),
        batch_size=batch_size,
        patches=patches,
    )
