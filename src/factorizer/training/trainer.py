"""Where and how a run computes: devices, processes, precision, and Lightning's Trainer for them."""

from __future__ import annotations

import atexit
import csv
import logging
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.loggers.logger import rank_zero_experiment
from lightning.pytorch.strategies import DDPStrategy, Strategy

from factorizer.config import Training
from factorizer.inference.load import choose_device
from factorizer.training.checkpoints import Checkpoints
from factorizer.training.folder import RunError

PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}
WAIT = timedelta(hours=12)  # of other processes while the first prepares a large data set
PAUSE_SECONDS = 0.5


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
        if started is None:
            if (self.nodes or 1) > 1:
                raise RunError(
                    f"--nodes is {self.nodes}, but nothing started processes there; use torchrun or srun, as "
                    "docs/cluster.md shows"
                )
            return self.devices or 1, 1
        wanted = self.devices or started[0], self.nodes or started[1]
        if wanted != started:
            raise RunError(
                f"--devices and --nodes say {wanted[0]} x {wanted[1]}, but {started[0]} x {started[1]} processes were "
                "started; leave the options out"
            )
        return started

    def check(self) -> None:
        """Refuse what this machine cannot do."""
        device = choose_device(self.device)
        if self.precision not in PRECISIONS:
            raise RunError(f"precision is {self.precision!r}; choose {', '.join(PRECISIONS)}")
        if self.precision == "16" and device.type == "cpu":
            raise RunError("precision 16 needs a GPU; on the CPU choose 32 or bf16")


def processes_started() -> tuple[int, int] | None:
    """Processes per node and nodes as torchrun or SLURM started them; None where neither did."""
    here = os.environ.get
    if "TORCHELASTIC_RUN_ID" in os.environ:
        local = int(here("LOCAL_WORLD_SIZE", "1"))
        return local, int(here("WORLD_SIZE", "1")) // local
    if "SLURM_NTASKS" in os.environ and here("SLURM_JOB_NAME") not in ("bash", "interactive"):
        if int(here("SLURM_NTASKS", "1")) > 1 and "SLURM_NTASKS_PER_NODE" not in os.environ:
            raise RunError("SLURM was given --ntasks; give --ntasks-per-node, the number of GPUs of a node, instead")
        return int(here("SLURM_NTASKS_PER_NODE", "1")), int(here("SLURM_NNODES", "1"))
    return None


def is_leader() -> bool:
    """Whether this process is the one that writes files and speaks."""
    return rank_zero_only.rank == 0


def let_threads_finish() -> None:
    """To be called before one of several processes ends.

    A thread of Gloo's that lets go of a tensor while the interpreter ends aborts the process (PyTorch's issue 190489),
    and destroying the group does not wait for it. Here it has the time to.
    """
    time.sleep(PAUSE_SECONDS)


def share_batch(batch_size: int, accumulate: int, processes: int) -> int:
    """The patches of one process at a time; a step's batch must divide evenly."""
    if batch_size % (accumulate * processes):
        raise RunError(
            f"training.batch_size is {batch_size}, which {processes} devices with {accumulate} accumulated "
            f"batches cannot share; use a multiple of {accumulate * processes}"
        )
    return batch_size // (accumulate * processes)


def make_trainer(
    training: Training, folder: Path, callbacks: Sequence[Callback], machine: Machine, start_step: int = 0
) -> Trainer:
    """`start_step` is that of the checkpoint to go on from: the log before it is kept."""
    machine.check()
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)  # advertisements and what this module decides
    devices, nodes = machine.processes()
    share_batch(training.batch_size, machine.accumulate, devices * nodes)
    strategy: Strategy | str = "auto"
    if devices * nodes > 1:
        strategy = DDPStrategy(timeout=WAIT)
        atexit.unregister(let_threads_finish)  # of a fold before
        atexit.register(let_threads_finish)
    return Trainer(
        accelerator={"cuda": "gpu"}.get(machine.device, machine.device),
        devices=devices,
        num_nodes=nodes,
        strategy=strategy,
        precision=PRECISIONS[machine.precision],
        accumulate_grad_batches=machine.accumulate,
        max_steps=training.max_steps,
        max_epochs=-1,
        val_check_interval=min(training.validate_every, training.max_steps) * machine.accumulate,
        check_val_every_n_epoch=None,
        gradient_clip_val=training.gradient_clip,
        callbacks=list(callbacks),
        logger=make_loggers(folder, start_step),
        log_every_n_steps=min(10, training.max_steps),
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def make_loggers(folder: Path, start_step: int) -> list[Logger]:
    """log/metrics.csv always, events for TensorBoard beside it where that is installed."""
    loggers: list[Logger] = [ContinuedLog(folder, start_step)]
    if find_spec("tensorboard"):
        loggers.append(TensorBoardLogger(folder, name="log", version=""))
    return loggers


class ContinuedLog(CSVLogger):
    """Lightning's metrics.csv, which starts anew with every Trainer, with the rows of before a step kept."""

    def __init__(self, folder: Path, start_step: int) -> None:
        super().__init__(folder, name="log", version="")
        self.kept: list[dict[str, Any]] = []
        file = folder / "log" / "metrics.csv"
        if start_step and file.is_file():
            rows = csv.DictReader(file.read_text().splitlines())
            whole = [row for row in rows if (row.get("step") or "").isdigit()]  # a kill may cut the last line
            self.kept = [{k: v for k, v in row.items() if k and v} for row in whole if int(row["step"]) < start_step]

    @property
    @rank_zero_experiment  # type: ignore[untyped-decorator]
    def experiment(self) -> Any:
        fresh = self._experiment is None
        writer = super().experiment
        if fresh and self.kept:
            writer.metrics.extend(self.kept)
            writer.save()
        return writer


class Stopped(Exception):  # noqa: N818
    """A run that was asked to end, and saved."""


class StopOnSignal(Callback):
    """A polite kill or Ctrl-C ends training after the step at hand, in all processes, with a checkpoint that is exact.

    SIGTERM's handler takes the place of Lightning's, which may stop anywhere; a second Ctrl-C stops at once.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints, self.asked, self.step = checkpoints, False, 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.step = trainer.global_step
        if threading.current_thread() is threading.main_thread():
            self.before = signal.getsignal(signal.SIGINT)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self.ask)

    def ask(self, number: int, frame: Any) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.global_step == self.step:  # within an accumulated batch
            return
        self.step = trainer.global_step
        asked = trainer.strategy.reduce_boolean_decision(self.asked, all=False)
        if asked and trainer.global_step < trainer.max_steps:
            self.checkpoints.save_last(trainer)
            raise Stopped

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if hasattr(self, "before"):
            signal.signal(signal.SIGINT, self.before)
