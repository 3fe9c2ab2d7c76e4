"""Where and how a run computes: devices, processes, precision, and Lightning's Trainer for them."""

from __future__ import annotations

import atexit
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.strategies import DDPStrategy, Strategy

from factorizer.config import Training
from factorizer.errors import RunError
from factorizer.hardware import available_cores, choose_device
from factorizer.runs.fold import Fold
from factorizer.training.environment import processes_started
from factorizer.training.log import LogSteps, make_loggers

PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}
WAIT = timedelta(hours=12)  # of other processes while the first prepares a large data set
PAUSE_SECONDS = 0.5
LOG_EVERY = 10  # steps
PER_CORE = 4  # processes that a core can feed at most


@dataclass(frozen=True)
class Machine:
    """What a run computes on; it changes speed and memory, not the samples of a step.

    `devices` (per node) and `nodes` are those of torchrun or SLURM unless given. `accumulate`
    splits a step's batch into as many parts, one after the other. `checkpoint_activations` computes
    activations again in the backward pass.
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
                    f"--nodes is {self.nodes}, but nothing started processes there; use torchrun "
                    "or srun, as docs/cluster.md shows"
                )
            return self.devices or 1, 1
        wanted = self.devices or started[0], self.nodes or started[1]
        if wanted != started:
            raise RunError(
                f"--devices and --nodes say {wanted[0]} x {wanted[1]}, but {started[0]} x "
                f"{started[1]} processes were started; leave the options out"
            )
        return started

    def check(self) -> None:
        """Refuse what this machine cannot do."""
        device = choose_device(self.device)
        if self.precision not in PRECISIONS:
            raise RunError(f"precision is {self.precision!r}; choose {', '.join(PRECISIONS)}")
        if self.precision == "16" and device.type == "cpu":
            raise RunError("precision 16 needs a GPU; on the CPU choose 32 or bf16")
        self.check_counts(device)

    def check_counts(self, device: torch.device) -> None:
        """Refuse more processes than this machine can feed, before they are started."""
        most = PER_CORE * available_cores()
        if not 0 <= self.workers <= most:
            raise RunError(
                f"--workers is {self.workers}; give 0 to {most}, {PER_CORE} for each core of this "
                "machine"
            )
        if self.accumulate < 1:
            raise RunError(f"--accumulate is {self.accumulate}; give at least 1")
        most = (
            torch.cuda.device_count()
            if device.type == "cuda"
            else 1
            if device.type == "mps"
            else most
        )
        if not 1 <= (self.devices or 1) <= most:
            raise RunError(
                f"--devices is {self.devices}; give 1 to {most}, as many as this machine has or "
                "can feed"
            )


def is_leader() -> bool:
    """Whether this process is the one that writes files and speaks."""
    return rank_zero_only.rank == 0


def let_threads_finish() -> None:
    """To be called before one of several processes ends.

    A thread of Gloo's that lets go of a tensor while the interpreter ends aborts the process
    (PyTorch's issue 190489), and destroying the group does not wait for it. Here it has the time
    to.
    """
    time.sleep(PAUSE_SECONDS)


def share_batch(batch_size: int, accumulate: int, processes: int) -> int:
    """The patches of one process at a time; a step's batch must divide evenly."""
    if accumulate * processes > batch_size:
        raise RunError(
            f"training.batch_size is {batch_size}, which {processes} devices with {accumulate} "
            "accumulated batches cannot share; give fewer of them (--devices, --accumulate), or a "
            "larger batch"
        )
    if batch_size % (accumulate * processes):
        raise RunError(
            f"training.batch_size is {batch_size}, which {processes} devices with {accumulate} "
            f"accumulated batches cannot share; use a multiple of {accumulate * processes}"
        )
    return batch_size // (accumulate * processes)


def validation_interval(training: Training) -> int:
    """The steps between validations: at the end of a short run there is one too."""
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
    """`start_step` is that of the checkpoint to go on from: the log before it is kept. `held_out`
    is whether there are cases to validate on."""
    machine.check()
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(
            logging.WARNING
        )  # advertisements and what this module decides
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
