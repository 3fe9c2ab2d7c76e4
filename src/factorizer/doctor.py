"""What `factorizer doctor` reports: versions, devices, cores, memory, and what is present or
missing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from math import isinf
from pathlib import Path
from typing import Any

from factorizer import __version__
from factorizer.hardware import GIB, available_cores, cpu_model, free_bytes, total_bytes

# package -> what it is for; scikit-learn is optional
PACKAGES = {
    "torch": "the models",
    "numpy": "arrays",
    "monai": "UNETR, Swin UNETR and nnFormer",
    "einops": "the same",
    "lightning": "training",
    "nibabel": "NIfTI images",
    "scipy": "synthetic scans",
    "matplotlib": "figures",
    "pydantic": "presets",
    "scikit-learn": "an independent NMF, for the tests",
}


@dataclass(frozen=True)
class Finding:
    """One thing looked for, whether it is there, and what to do if it is wanted and not."""

    name: str
    found: str
    present: bool = True
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def examine() -> list[Finding]:
    """Look at this machine and this Python environment."""
    return [*examine_versions(), *examine_hardware(), *examine_build_tools()]


def examine_versions() -> list[Finding]:
    findings = [
        Finding("factorizer", __version__),
        Finding("Python", f"{platform.python_version()} {sys.executable}"),
    ]
    for package, purpose in PACKAGES.items():
        try:
            findings.append(Finding(package, version(package)))
        except PackageNotFoundError:
            remedy = (
                f"for {purpose}: run make setup, or pip install with the repository's "
                "constraints.txt"
            )
            findings.append(Finding(package, "not installed", present=False, remedy=remedy))
    return findings


def examine_hardware() -> list[Finding]:
    try:
        import torch
    except ImportError as error:
        return [
            Finding(
                "devices",
                f"PyTorch cannot be imported: {error}",
                present=False,
                remedy="run make setup",
            )
        ]
    cuda = ", ".join(
        f"cuda:{i} {torch.cuda.get_device_name(i)}, "
        f"{torch.cuda.get_device_properties(i).total_memory / 2**30:.1f} GiB"
        for i in range(torch.cuda.device_count())
    )
    mps = torch.backends.mps.is_available()
    return [
        Finding("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
        Finding("processor", cpu_model()),
        Finding(
            "cores", f"{available_cores()} available, {torch.get_num_threads()} PyTorch threads"
        ),
        Finding("memory", memory()),
        Finding(
            "CUDA",
            cuda or "no device",
            bool(cuda),
            "a CUDA build of PyTorch and an NVIDIA GPU; not needed",
        ),
        Finding("MPS", "available" if mps else "no device", mps, "an Apple GPU; not needed"),
    ]


def examine_build_tools() -> list[Finding]:
    """torch.compile needs a C++ compiler and Python's headers on the CPU; nothing else does."""
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return [
        Finding(
            "C++ compiler",
            first_line([compiler, "--version"]) if compiler else "not found",
            bool(compiler),
            "for torch.compile: install g++",
        ),
        Finding(
            "Python headers",
            str(header) if header.exists() else "not found",
            header.exists(),
            "for torch.compile: install your system's python3-dev",
        ),
    ]


def memory() -> str:
    """Total and, where the system tells, free memory."""
    total, free = total_bytes(), free_bytes()
    text = f"{total / GIB:.1f} GiB" if total else "unknown"
    return text if isinf(free) else f"{text}, {free / GIB:.1f} GiB available"


def first_line(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.partition(
        "\n"
    )[0]
