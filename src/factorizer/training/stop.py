"""Ctrl-C and SIGTERM: a training saves, stops, and can be resumed bit for bit."""

from __future__ import annotations

import signal
import threading
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from factorizer.training.checkpoints import Checkpoints
from factorizer.training.signals import Interrupted


class Stopped(Exception):  # noqa: N818
    """A signal asked a training to end, and it saved."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class StopOnSignal(Callback):
    """End a training at Ctrl-C or SIGTERM with an exact checkpoint.

    All processes finish the current step and its validation first. The handler of SIGTERM replaces
    Lightning's, which may stop anywhere. A second Ctrl-C stops at once.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints = checkpoints
        self.asked = 0  # the signal that this process got
        self.stopping = 0  # the signal that some process got
        self.step = 0
        self.saved = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.step = trainer.global_step
        if threading.current_thread() is threading.main_thread():
            self.before = signal.getsignal(signal.SIGINT)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self.ask)

    def ask(self, number: int, frame: Any) -> None:
        if self.asked and number == signal.SIGINT and not self.saved:
            raise Interrupted(number)
        self.asked = int(number)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.global_step == self.step:  # within an accumulated batch
            return
        self.step = trainer.global_step
        asked = torch.tensor(self.asked, device=trainer.strategy.root_device)
        self.stopping = int(trainer.strategy.reduce(asked, reduce_op="max"))
        if not self.checkpoints.validates(self.step):
            self.stop_if_asked(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.stop_if_asked(trainer)

    def stop_if_asked(self, trainer: Trainer) -> None:
        if self.stopping and trainer.global_step < trainer.max_steps:
            self.checkpoints.save_last(trainer)
            self.saved = True
            raise Stopped(self.stopping)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if hasattr(self, "before"):
            signal.signal(signal.SIGINT, self.before)
