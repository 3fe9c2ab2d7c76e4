"""The processes of a run as torchrun, SLURM or Lightning started them, from the environment
variables that they set.

Lightning reads these variables as soon as it is imported, and takes leftovers of another job for
its own. So they are looked at before: this file imports nothing heavy.
"""

from __future__ import annotations

import os

from factorizer.errors import RunError

RANKS = ("RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")  # of this process among all
NUMBERS = (
    *RANKS,
    *("LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_PORT"),
    *("SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NNODES"),
)
SIZES = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NNODES")
MOST = 1_000_000  # of any of them


def check_environment(devices: int | None = None) -> None:
    """Refuse variables that are no numbers, that contradict each other, or that are left from
    another job.

    `devices` are those that this process is to start itself.
    """
    for name in NUMBERS:
        number_in(name)
    started = processes_started()
    if started is not None:
        local, nodes = started
        for name, bound in (("RANK", local * nodes), ("LOCAL_RANK", local)):
            refuse(name, f"but there are {bound} processes", when=(number_in(name) or 0) >= bound)
        return
    for name in RANKS:
        refuse(
            name, "but neither torchrun nor srun started this process", when=bool(number_in(name))
        )
    if (
        "LOCAL_RANK" in os.environ
    ):  # Lightning sets it for the processes that it starts, with the others
        whole = {"WORLD_SIZE", "MASTER_PORT"} <= os.environ.keys()
        odd = (number_in("LOCAL_RANK") or 0) >= (devices or 1) or number_in("WORLD_SIZE") != devices
        refuse("LOCAL_RANK", "but nothing started several processes", when=not whole or odd)
    else:
        size = number_in("WORLD_SIZE") or 1
        refuse("WORLD_SIZE", "but neither torchrun nor srun started this process", when=size > 1)


def processes_started() -> tuple[int, int] | None:
    """Processes per node and nodes as torchrun or SLURM started them; None where neither did."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        local, world = number_in("LOCAL_WORLD_SIZE") or 1, number_in("WORLD_SIZE") or 1
        refuse(
            "WORLD_SIZE",
            f"which is no multiple of LOCAL_WORLD_SIZE, {local}",
            when=world % local > 0,
        )
        return local, world // local
    if "SLURM_NTASKS" in os.environ and os.environ.get("SLURM_JOB_NAME") not in (
        "bash",
        "interactive",
    ):
        if (number_in("SLURM_NTASKS") or 1) > 1 and "SLURM_NTASKS_PER_NODE" not in os.environ:
            raise RunError(
                "SLURM was given --ntasks; give --ntasks-per-node, the number of GPUs of a node, "
                "instead"
            )
        return number_in("SLURM_NTASKS_PER_NODE") or 1, number_in("SLURM_NNODES") or 1
    return None


def number_in(name: str) -> int | None:
    """The whole number in an environment variable; None where it is not set."""
    text = os.environ.get(name)
    if text is None:
        return None
    least = 1 if name in SIZES else 0
    if not (text.isascii() and text.isdigit()) or not least <= int(text[:20]) <= MOST:
        refuse(name, f"not a whole number from {least} to {MOST:,}", when=True)
    return int(text)


def refuse(name: str, reason: str, *, when: bool) -> None:
    if when:
        text = ascii(os.environ.get(name))[:40]
        raise RunError(
            f"the environment variable {name} is {text}, {reason}; unset it, or start with "
            "torchrun or srun as docs/cluster.md shows"
        )
