"""Let the C library use freed memory again instead of handing it back to the system.

A large block that glibc has just got from the system costs ten times as much to fill as one it already
holds, because every page of it is set up on first touch. By default it gets every block beyond 32 MiB
anew and gives it back at once, and a feature map of 128^3 voxels is 256 MiB: keeping them makes a
training step of that size a third faster, for about a tenth more memory at its peak.

This holds for the whole process and happens when a network's layers are imported. FACTORIZER_MALLOC=system
in the environment leaves the allocator alone, as do glibc's own MALLOC_ variables.
"""

from __future__ import annotations

import ctypes
import os
import platform

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's malloc.h
KEPT_BYTES = 2**31 - 1  # of free memory at the top of the heap; the largest number mallopt takes


def keep_freed_memory() -> bool:
    """Make malloc keep up to 2 GiB of free memory; False where that is not wanted or not possible."""
    own_settings = any(name.startswith("MALLOC_") for name in os.environ)
    if own_settings or os.environ.get("FACTORIZER_MALLOC") == "system" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, KEPT_BYTES))
