"""What `factorizer doctor` reports: versions, devices, cores, memory, and what is missing."""

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

# package -> what it is for
PACKAGES = {
    "torch": "the models",
    "numpy": "arrays",
    "monai": "UNETR, Swin UNETR and nnFormer",
    "einops": "UNETR, Swin UNETR and nnFormer",
    "lightning": "training",
    "nibabel": "NIfTI images",
    "scipy": "synthetic scans",
    "matplotlib": "figures",
    "pydantic": "presets",
    "scikit-learn": "an independent NMF, for the tests",
}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for: whether it exists, and what to do if it is missing."""

    name: str
    found: str
    present: bool = True
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def examine() -> list[Finding]:
    """Report on this machine and this Python environment."""
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
        message = f"PyTorch cannot be imported: {error}"
        return [Finding("devices", message, present=False, remedy="run make setup")]
    cores = f"{available_cores()} available, {torch.get_num_threads()} PyTorch threads"
    cuda = describe_cuda()
    mps = torch.backends.mps.is_available()
    return [
        Finding("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
        Finding("processor", cpu_model()),
        Finding("cores", cores),
        Finding("memory", describe_memory()),
        examine_native(),
        Finding(
            "CUDA",
            cuda or "no device",
            present=bool(cuda),
            remedy="optional: an NVIDIA GPU and a CUDA build of PyTorch",
        ),
        Finding(
            "MPS",
            "available" if mps else "no device",
            present=mps,
            remedy="optional: an Apple GPU",
        ),
    ]


def examine_native() -> Finding:
    """Whether NMF on the CPU runs in C++, and for which processors."""
    from factorizer.nn.native import SWITCH, describe

    found = describe()
    remedy = f"slower: install g++ and run make setup again; or unset {SWITCH} if it is 0"
    return Finding("native core", found or "not in use", present=bool(found), remedy=remedy)


def describe_cuda() -> str:
    """The CUDA devices with their memory; "" if none exists."""
    import torch

    devices = []
    for index in range(torch.cuda.device_count()):
        memory = torch.cuda.get_device_properties(index).total_memory / GIB
        devices.append(f"cuda:{index} {torch.cuda.get_device_name(index)}, {memory:.1f} GiB")
    return ", ".join(devices)


def examine_build_tools() -> list[Finding]:
    """Only torch.compile on the CPU needs these: a C++ compiler and Python's headers."""
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return [
        Finding(
            "C++ compiler",
            first_line([compiler, "--version"]) if compiler else "not found",
            present=bool(compiler),
            remedy="for torch.compile: install g++",
        ),
        Finding(
            "Python headers",
            str(header) if header.exists() else "not found",
            present=header.exists(),
            remedy="for torch.compile: install your system's python3-dev",
        ),
    ]


def describe_memory() -> str:
    """Total memory and, if the system tells, free memory."""
    total, free = total_bytes(), free_bytes()
    text = f"{total / GIB:.1f} GiB" if total else "unknown"
    return text if isinf(free) else f"{text}, {free / GIB:.1f} GiB available"


def first_line(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0]
