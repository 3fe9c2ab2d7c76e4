"""Lightning's Trainer for a fold, and which of several processes leads."""

from __future__ import annotations

import atexit
import logging
import time
from collections.abc import Sequence
from datetime import timedelta

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.strategies import DDPStrategy, Strategy

from factorizer.config import Training
from factorizer.runs.fold import Fold
from factorizer.training.log import LogSteps, make_loggers
from factorizer.training.machine import PRECISIONS, Machine, share_batch

WAIT = timedelta(hours=12)  # for the first process, while it prepares a large data set
PAUSE_SECONDS = 0.5
LOG_EVERY = 10  # steps


def is_leader() -> bool:
    """Whether this process is the one that writes files and speaks."""
    return rank_zero_only.rank == 0


def let_threads_finish() -> None:
    """Wait for a moment before one of several processes ends.

    A thread of Gloo that releases a tensor while the interpreter ends aborts the process (PyTorch's
    issue 190489). Destroying the process group does not wait for it. This pause gives it time.
    """
    time.sleep(PAUSE_SECONDS)


def validation_interval(training: Training) -> int:
    """The steps between two validations. A short training is validated at its end."""
    return min(training.validate_every, training.max_steps)


def make_trainer(
    training: Training,
    fold: Fold,
    callbacks: Sequence[Callback],
    machine: Machine,
    *,
    start_step: int = 0,
    held_out: bool = True,
) -> Trainer:
    """Lightning's Trainer, with the log of the fold.

    `start_step` is the step of the checkpoint to resume from: the log keeps the rows before it.
    `held_out` says whether some cases are held out to validate on.
    """
    machine.check()
    for name in ("lightning.pytorch", "lightning.fabric"):  # their advice does not apply here
        logging.getLogger(name).setLevel(logging.WARNING)
    devices, nodes = machine.processes()
    share_batch(training.batch_size, machine.accumulate, devices * nodes)
    return Trainer(
        accelerator={"cuda": "gpu"}.get(machine.device, machine.device),
        devices=devices,
        num_nodes=nodes,
        strategy=make_strategy(devices * nodes),
        precision=PRECISIONS[machine.precision],
        accumulate_grad_batches=machine.accumulate,
        max_steps=training.max_steps,
        max_epochs=-1,
        val_check_interval=validation_interval(training) * machine.accumulate,
        limit_val_batches=1.0 if held_out else 0,
        check_val_every_n_epoch=None,
        gradient_clip_val=training.gradient_clip,
        callbacks=[LogSteps(min(LOG_EVERY, training.max_steps)), *callbacks],
        logger=make_loggers(fold, start_step),
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def make_strategy(processes: int) -> Strategy | str:
    """How several processes train together."""
    if processes == 1:
        return "auto"
    atexit.unregister(let_threads_finish)  # registered by the fold before
    atexit.register(let_threads_finish)
    return DDPStrategy(timeout=WAIT)
