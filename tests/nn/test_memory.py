"""Freed memory is kept for the next map, unless the user wants it otherwise."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource, torch
from factorizer.nn.memory import keep_freed_memory
print(keep_freed_memory())
for step in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**26)  # 256 MiB
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
@pytest.mark.parametrize(("setting", "kept"), [("", True), ("system", False)])
def test_a_large_block_is_set_up_once(setting: str, kept: bool) -> None:
    environment = {"FACTORIZER_MALLOC": setting}
    done = subprocess.run([sys.executable, "-c", COUNT_FAULTS], capture_output=True, text=True, env=environment)
    said, faults = done.stdout.split()
    assert said == str(kept)
    assert (int(faults) < 100) == kept  # 65,536 pages where it is fetched anew, or 128 huge ones
