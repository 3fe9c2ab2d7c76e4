"""How much memory there is, and what a case gets that would take more, or whose file cannot be
opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path

from factorizer.data.cases import DataError, Problem

GIB = 2**30
REMEDY = "close other programs, resample or crop the image, or use a machine with more memory"


def available_bytes() -> float:
    """Memory that this process can have: of the machine, or of its container; infinite where that
    is not known."""
    if not Path("/proc/meminfo").exists():
        return inf
    held = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        cache = Path("/sys/fs/cgroup/memory.stat").read_text().split()
        reclaimable = int(cache[cache.index("inactive_file") + 1])
        free = min(free, int(limit.read_text()) - int(used.read_text()) + reclaimable)
    return float(free + held)


def refuse_too_large(case: str, file: str, wanted: float, what: str) -> None:
    """An error where something with a case takes more bytes than there are."""
    free = available_bytes()
    if wanted > free:
        message = f"{what} takes about {wanted / GIB:.1f} GiB, and {free / GIB:.1f} GiB are free"
        raise DataError(Problem(case, file, message, REMEDY))


@contextmanager
def memory_errors(case: str, file: str = "") -> Iterator[None]:
    """Memory that runs out is a problem of the case, so that others can be worked on."""
    try:
        yield
    except MemoryError:
        raise DataError(Problem(case, file, "it takes more memory than there is", REMEDY)) from None
    except RuntimeError as error:
        if "allocate memory" not in str(error):  # as PyTorch says it
            raise
        raise DataError(Problem(case, file, "it takes more memory than there is", REMEDY)) from None


@contextmanager
def opening_errors(case: str, file: Path) -> Iterator[None]:
    """A file that is missing, forbidden or larger than memory is a problem of its case."""
    try:
        with memory_errors(case, str(file)):
            yield
    except FileNotFoundError:
        raise DataError(
            Problem(case, str(file), "the file is missing", "add it, or remove the case")
        ) from None
    except PermissionError:
        raise DataError(
            Problem(case, str(file), "the file cannot be read", "give yourself permission")
        ) from None
