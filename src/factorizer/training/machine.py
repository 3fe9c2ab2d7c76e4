"""What a training computes on: devices, processes, precision and workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from factorizer.errors import RunError
from factorizer.hardware import available_cores, choose_device
from factorizer.training.environment import processes_started

if TYPE_CHECKING:
    import torch

PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}  # Lightning's names
PER_CORE = 4  # the most processes that one core can feed


@dataclass(frozen=True)
class Machine:
    """Where a training computes. It changes speed and memory, not the samples of a step.

    Attributes:
        device: auto, cpu, cuda or mps.
        devices: Devices per node. None means as many as torchrun or SLURM started processes.
        nodes: Machines. None means as many as torchrun or SLURM started processes on.
        precision: 32, bf16 or 16.
        accumulate: The parts that a step's batch is split into. They are computed one by one.
        workers: Processes that prepare patches.
        checkpoint_activations: Whether the backward pass computes activations again.

    Example:
        >>> machine = factorizer.Machine(device="cpu", workers=0)
        >>> machine.precision
        '32'
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
                    f"nodes is {self.nodes}, but nothing started processes there; use torchrun "
                    "or srun, as docs/cluster.md shows"
                )
            return self.devices or 1, 1
        wanted = self.devices or started[0], self.nodes or started[1]
        if wanted != started:
            raise RunError(
                f"devices x nodes is {wanted[0]} x {wanted[1]}, but {started[0]} x {started[1]} "
                "processes were started; leave out both"
            )
        return started

    def check(self) -> None:
        """Refuse what this machine cannot do."""
        device = choose_device(self.device)
        if self.precision not in PRECISIONS:
            raise RunError(f"precision is {self.precision!r}; choose {', '.join(PRECISIONS)}")
        if self.precision == "16" and device.type == "cpu":
            raise RunError("precision 16 needs a GPU; on the CPU choose 32 or bf16")
        if self.accumulate < 1:
            raise RunError(f"accumulate is {self.accumulate}; give at least 1")
        self.check_processes(device)

    def check_processes(self, device: torch.device) -> None:
        """Refuse more processes than this machine can feed, before they are started."""
        most = PER_CORE * available_cores()
        if not 0 <= self.workers <= most:
            raise RunError(
                f"workers is {self.workers}; give 0 to {most}, {PER_CORE} for each core of this "
                "machine"
            )
        most = count_devices(device, most)
        if not 1 <= (self.devices or 1) <= most:
            raise RunError(
                f"devices is {self.devices}; give 1 to {most}, as many as this machine has or can "
                "feed"
            )


def count_devices(device: torch.device, most_processes: int) -> int:
    """The devices of a kind. A CPU stands for as many as it can feed."""
    import torch

    if device.type == "cuda":
        return torch.cuda.device_count()
    return 1 if device.type == "mps" else most_processes


def share_batch(batch_size: int, accumulate: int, processes: int) -> int:
    """The patches that one process computes at a time. A step's batch must divide evenly."""
    parts = accumulate * processes
    if batch_size % parts == 0:
        return batch_size // parts
    problem = (
        f"training.batch_size is {batch_size}, which {processes} devices with {accumulate} "
        "accumulated batches cannot share"
    )
    if parts > batch_size:
        raise RunError(f"{problem}; lower devices or accumulate, or raise training.batch_size")
    raise RunError(f"{problem}; use a multiple of {parts}")
