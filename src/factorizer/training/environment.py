"""The processes that torchrun, SLURM or Lightning started, by the environment variables they set.

Lightning reads these variables as soon as it is imported. It mistakes those left from another job
for its own. So they are checked before: this file imports nothing heavy.
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
MOST = 1_000_000  # the largest value of any of them
INTERACTIVE = ("bash", "interactive")  # names of SLURM's jobs that start no processes
NOT_STARTED = "but neither torchrun nor srun started this process"
SHOWN = 40  # characters of a value


def check_environment(devices: int | None = None) -> None:
    """Refuse variables that are not numbers, that contradict each other, or that are left from
    another job.

    `devices` is the number of processes that this one is to start.
    """
    for name in NUMBERS:
        number_in(name)
    started = processes_started()
    if started is not None:
        check_ranks(*started)
        return
    for name in RANKS:
        if number_in(name):
            raise wrong_variable(name, NOT_STARTED)
    if "LOCAL_RANK" in os.environ:
        check_started_by_lightning(devices)
    elif (number_in("WORLD_SIZE") or 1) > 1:
        raise wrong_variable("WORLD_SIZE", NOT_STARTED)


def check_ranks(local: int, nodes: int) -> None:
    """Refuse a number of this process that is beyond the number of processes."""
    for name, bound in (("RANK", local * nodes), ("LOCAL_RANK", local)):
        if (number_in(name) or 0) >= bound:
            raise wrong_variable(name, f"but there are {bound} processes")


def check_started_by_lightning(devices: int | None) -> None:
    """Refuse a LOCAL_RANK that Lightning did not set. It sets the other variables too."""
    complete = {"WORLD_SIZE", "MASTER_PORT"} <= os.environ.keys()
    in_range = (number_in("LOCAL_RANK") or 0) < (devices or 1)
    if not (complete and in_range and number_in("WORLD_SIZE") == devices):
        raise wrong_variable("LOCAL_RANK", "but nothing started several processes")


def processes_started() -> tuple[int, int] | None:
    """Processes per node, and nodes, that torchrun or SLURM started. None if neither did."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        local, world = number_in("LOCAL_WORLD_SIZE") or 1, number_in("WORLD_SIZE") or 1
        if world % local > 0:
            raise wrong_variable(
                "WORLD_SIZE", f"which is not a multiple of LOCAL_WORLD_SIZE, {local}"
            )
        return local, world // local
    if "SLURM_NTASKS" in os.environ and os.environ.get("SLURM_JOB_NAME") not in INTERACTIVE:
        if (number_in("SLURM_NTASKS") or 1) > 1 and "SLURM_NTASKS_PER_NODE" not in os.environ:
            raise RunError(
                "SLURM was given --ntasks; give --ntasks-per-node, the number of GPUs of a node, "
                "instead"
            )
        return number_in("SLURM_NTASKS_PER_NODE") or 1, number_in("SLURM_NNODES") or 1
    return None


def number_in(name: str) -> int | None:
    """The whole number in an environment variable. None if it is not set."""
    text = os.environ.get(name)
    if text is None:
        return None
    least = 1 if name in SIZES else 0
    if not (text.isascii() and text.isdigit()) or not least <= int(text[:20]) <= MOST:
        raise wrong_variable(name, f"not a whole number from {least} to {MOST:,}")
    return int(text)


def wrong_variable(name: str, reason: str) -> RunError:
    text = ascii(os.environ.get(name))[:SHOWN]
    return RunError(
        f"the environment variable {name} is {text}, {reason}; unset it, or start with torchrun or "
        "srun as docs/cluster.md shows"
    )
