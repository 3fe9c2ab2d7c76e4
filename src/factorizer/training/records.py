"""What a run says about itself in run.json: every start with its versions, machine and command, and
how it ended."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from factorizer import __version__
from factorizer.config import Preset
from factorizer.files import FileError, read_json, write_atomically
from factorizer.hardware import cpu_model
from factorizer.preset_files import load_preset

PACKAGES = ("torch", "lightning", "monai", "numpy", "nibabel")


def steps_before(folder: Path) -> int | None:
    """The length of the run that is in a folder, None where there is none."""
    file = folder / "config.yaml"
    return load_preset(file).training.max_steps if file.exists() else None


def has_ended(folder: Path) -> bool:
    """Whether the run in a folder came to its end: it has scores, or was trained on all cases for
    all its steps."""
    if folder.name != "foldall":
        return (folder / "scores.csv").is_file()
    starts, steps = read_starts(folder), steps_before(folder)
    return bool(starts) and steps is not None and starts[-1].get("step", 0) >= steps


def describe_start(folder: Path, preset: Preset, data: Path, options: dict[str, Any]) -> None:
    """Append this start to run.json: versions, machine, command and the state of the code."""
    starts = read_starts(folder)
    starts.append(
        {
            "started": now(),
            "command": sys.argv,
            "data": str(data),
            "seed": preset.training.seed,
            **options,
            "machine": f"{platform.system()} {platform.machine()}, {cpu_model()}, "
            f"{torch.get_num_threads()} threads",
            "versions": {
                "factorizer": __version__,
                "python": platform.python_version(),
                **{package: version(package) for package in PACKAGES},
            },
            "git": git_state(),
        }
    )
    write_atomically(folder / "run.json", json.dumps(starts, indent=2) + "\n")


def describe_end(folder: Path, **facts: Any) -> None:
    """Add to the last start in run.json how it ended: steps and seconds."""
    starts = read_starts(folder) or [{}]  # whoever removed it meanwhile
    starts[-1] |= {"ended": now(), **facts}
    write_atomically(folder / "run.json", json.dumps(starts, indent=2) + "\n")


def read_starts(folder: Path) -> list[dict[str, Any]]:
    """The starts of a run, as run.json lists them; none where there is no file."""
    file = folder / "run.json"
    if not file.exists():
        return []
    starts = read_json(file)
    if not isinstance(starts, list) or not all(isinstance(start, dict) for start in starts):
        raise FileError(file, "it is not a list of starts", "restore it, or remove it")
    for start in starts:
        init, step = start.get("init"), start.get("step", 0)
        if not isinstance(init, str | None) or not isinstance(step, int):
            message = f"a start has the init {init!r} and the step {step!r}"
            raise FileError(file, message, "restore it, or remove it")
    return starts


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def git_state() -> str | None:
    """The commit of the code, if it is a checkout, and whether it was changed."""
    root = Path(__file__).parents[3]
    if not (
        root / "src" / "factorizer"
    ).is_dir():  # installed: the repository around it, if any, is another
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
