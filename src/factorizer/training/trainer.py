"""Where and how a run computes: devices, processes, precision, and Lightning's Trainer for them."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy, Strategy

from factorizer.config import Training
from factorizer.training.folder import RunError

PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}
WAIT = timedelta(hours=12)  # of other processes while the first prepares a large data set


@dataclass(frozen=True)
class Machine:
    """What a run computes on; it changes speed and memory, not the samples of a step.

    `devices` (per node) and `nodes` are those of torchrun or SLURM unless given. `accumulate` splits a step's batch
    into as many parts, one after the other. `checkpoint_activations` computes activations again in the backward pass.
    """

    device: str = "auto"
    devices: int | None = None
    nodes: int | None = None
    precision: str = "32"
    accumulate: int = 1
    workers: int = 2
    checkpoint_activations: bool = False

    def processes(self) -> tuple[int, int]:
        """Processes per node, and nodes."""
        started = processes_started()
        return self.devices or started[0], self.nodes or started[1]


def processes_started() -> tuple[int, int]:
    """Processes per node and nodes as torchrun or SLURM started them; one of one where neither did."""
    here = os.environ.get
    if "TORCHELASTIC_RUN_ID" in os.environ:
        local = int(here("LOCAL_WORLD_SIZE", "1"))
        return local, int(here("WORLD_SIZE", "1")) // local
    if "SLURM_NTASKS" in os.environ and here("SLURM_JOB_NAME") not in ("bash", "interactive"):
        return int(here("SLURM_NTASKS_PER_NODE", "1")), int(here("SLURM_NNODES", "1"))
    return 1, 1


def is_leader() -> bool:
    """Whether this process is the one that writes files and speaks."""
    return rank_zero_only.rank == 0


def share_batch(batch_size: int, accumulate: int, processes: int) -> int:
    """The patches of one process at a time; a step's batch must divide evenly."""
    if batch_size % (accumulate * processes):
        raise RunError(
            f"training.batch_size is {batch_size}, which {processes} devices with {accumulate} accumulated "
            f"batches cannot share; use a multiple of {accumulate * processes}"
        )
    return batch_size // (accumulate * processes)


def make_trainer(training: Training, folder: Path, callbacks: Sequence[Callback], machine: Machine) -> Trainer:
    if machine.precision not in PRECISIONS:
        raise RunError(f"precision is {machine.precision!r}; choose {', '.join(PRECISIONS)}")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)  # advertisements and what this module decides
    devices, nodes = machine.processes()
    share_batch(training.batch_size, machine.accumulate, devices * nodes)
    strategy: Strategy | str = DDPStrategy(timeout=WAIT) if devices * nodes > 1 else "auto"
    return Trainer(
        accelerator={"cuda": "gpu"}.get(machine.device, machine.device),
        devices=devices,
        num_nodes=nodes,
        strategy=strategy,
        precision=PRECISIONS[machine.precision],
        accumulate_grad_batches=machine.accumulate,
        max_steps=training.max_steps,
        max_epochs=-1,
        val_check_interval=training.validate_every * machine.accumulate,
        check_val_every_n_epoch=None,
        gradient_clip_val=training.gradient_clip,
        callbacks=list(callbacks),
        logger=make_loggers(folder),
        log_every_n_steps=min(10, training.max_steps),
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def make_loggers(folder: Path) -> list[Logger]:
    """log/metrics.csv always, events for TensorBoard beside it where that is installed."""
    loggers: list[Logger] = [CSVLogger(folder, name="log", version="")]
    if find_spec("tensorboard"):
        loggers.append(TensorBoardLogger(folder, name="log", version=""))
    return loggers


class StopOnSigterm(Callback):
    """A polite kill ends training after the step at hand, in all processes, where a checkpoint is exact.

    It takes the place of Lightning's handler, which may stop anywhere, and which puts back the one before.
    """

    def __init__(self) -> None:
        self.asked = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        def stop(*_: Any) -> None:
            self.asked = True

        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, stop)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.strategy.reduce_boolean_decision(self.asked, all=False):
            trainer.should_stop = True
