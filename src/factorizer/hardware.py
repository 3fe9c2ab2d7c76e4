"""What this machine has: devices, cores and memory."""

from __future__ import annotations

import os
import platform
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from factorizer.errors import FactorizerError

if TYPE_CHECKING:
    import torch

GIB = 2**30
PROCESS = Path("/proc/self/statm")
STATUS = Path("/proc/self/status")
MEMORY = Path("/proc/meminfo")
CONTAINER = Path("/sys/fs/cgroup")


class DeviceError(FactorizerError):
    """A device that does not exist here."""


def choose_device(name: str) -> torch.device:
    """The device with this name. auto is CUDA or MPS if one exists, otherwise the CPU."""
    import torch

    exists = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        return torch.device(next(device for device in exists if exists[device]))
    if name not in exists:
        raise DeviceError(f"device is {name!r}; choose auto, cpu, cuda or mps")
    if not exists[name]:
        raise DeviceError(
            f"this machine has no {name} device; `factorizer doctor` lists the devices it has"
        )
    return torch.device(name)


def available_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model() -> str:
    """The name of the processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def total_bytes() -> int:
    """Memory of the machine; 0 if the system does not tell."""
    if not hasattr(os, "sysconf"):
        return 0
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def held_bytes() -> int:
    """Memory that this process holds; 0 if the system does not tell."""
    if not PROCESS.exists():
        return 0
    return int(PROCESS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def free_bytes() -> float:
    """Memory that this process can still get, limited by the machine and by its container.

    It is infinite if the system does not tell.
    """
    if not MEMORY.exists():
        return inf
    lines = MEMORY.read_text().splitlines()
    line = next(line for line in lines if line.startswith("MemAvailable"))  # in KiB
    return float(min(int(line.split()[1]) * 1024, free_in_container()))


def free_in_container() -> float:
    """Memory that the container of this process has left; infinite if it has no limit."""
    limit, used = CONTAINER / "memory.max", CONTAINER / "memory.current"
    if not limit.exists() or not used.exists() or limit.read_text().strip() == "max":
        return inf
    statistics = (CONTAINER / "memory.stat").read_text().split()
    reclaimable = int(statistics[statistics.index("inactive_file") + 1])
    return int(limit.read_text()) - int(used.read_text()) + reclaimable


def usable_bytes() -> float:
    """Memory that this process can have in all: what it holds plus what it can still get."""
    return free_bytes() + held_bytes()


def device_bytes(device: torch.device) -> float:
    """Memory that a training can have on a device: what is free on a GPU, otherwise what this
    process can have."""
    import torch

    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else usable_bytes()


def peak_bytes() -> int:
    """The most memory that this process has held so far (Linux only)."""
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
