"""The record of a fold, run.json: every start of its training, and how it ended.

A start says when, with which command, versions and machine, and on which data.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from factorizer import __version__
from factorizer.files import FileError, read_json, write_atomically
from factorizer.hardware import cpu_model

PACKAGES = ("torch", "lightning", "monai", "numpy", "nibabel")
REMEDY = "restore it, or remove it"
Start = dict[str, Any]


def describe_start(*, data: Path, seed: int, threads: int, options: Mapping[str, Any]) -> Start:
    """A start of a training now, by this process, with the options that were chosen for it."""
    versions = {"factorizer": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        versions[package] = version(package)
    machine = f"{platform.system()} {platform.machine()}, {cpu_model()}, {threads} threads"
    return {
        "started": now(),
        "command": sys.argv,
        "data": str(data),
        "seed": seed,
        **options,
        "machine": machine,
        "versions": versions,
        "git": git_state(),
    }


def with_end(starts: list[Start], *, step: int, seconds: Mapping[str, float]) -> list[Start]:
    """The starts, with the end of the last one."""
    before = starts or [{}]  # if somebody removed the file meanwhile
    rounded = {name: round(value, 1) for name, value in seconds.items()}
    return [*before[:-1], before[-1] | {"ended": now(), "step": step, "seconds": rounded}]


def write_starts(file: Path, starts: list[Start]) -> None:
    write_atomically(file, json.dumps(starts, indent=2) + "\n")


def read_starts(file: Path) -> list[Start]:
    """The starts in a file, the first one first. Empty if the file is missing."""
    if not file.exists():
        return []
    starts = read_json(file)
    if not isinstance(starts, list) or not all(isinstance(start, dict) for start in starts):
        raise FileError(file, "it is not a list of starts", REMEDY)
    for start in starts:
        init, step = start.get("init"), start.get("step", 0)
        if not isinstance(init, str | None) or not isinstance(step, int):
            raise FileError(file, f"a start has the init {init!r} and the step {step!r}", REMEDY)
    return starts


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def git_state() -> str | None:
    """The commit of the code, and whether the code was changed since. None without a checkout."""
    root = Path(__file__).parents[3]
    if not (root / "src" / "factorizer").is_dir():  # installed in somebody's repository, perhaps
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
