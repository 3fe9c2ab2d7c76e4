"""Time and peak memory of `factorizer predict` on large images, each in a fresh process.

Part of `make bench`. The images are a BraTS case with the paper's network, and a CT of 512 x 512 x
600 voxels with a small network and four regions. Networks are untrained and images are noise:
neither changes the cost of a prediction. Results go to docs/results/inference.md.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from factorizer.config import Preset
from factorizer.config.networks import network_of
from factorizer.data.inputs import read_inputs
from factorizer.hardware import GIB, cpu_model
from factorizer.inference.memory import estimate_bytes
from factorizer.preset_files import change_preset, load_preset
from factorizer.runs.fold import Fold
from factorizer.runs.weights import LAST

OUTPUT = Path(__file__).parents[1] / "docs" / "results" / "inference.md"
CT = [
    "data.channels=[CT]",
    "data.labels={a: 1, b: 2, c: 3, d: 4}",
    "data.regions={a: [a], b: [b], c: [c], d: [d]}",
    "data.spacing_mm=null",
    "data.crop_to_nonzero=false",
    "data.patch_size=[96,96,96]",
    "model.widths=[4,8]",
    "model.head_dim=4",
    "model.window=4",
    "inference.overlap=0.0",
]
console = Console()


@dataclass(frozen=True)
class Scan:
    """A network and the shape of an image that it predicts."""

    title: str
    preset: Preset
    shape: tuple[int, ...]
    dtype: type


def main() -> None:
    brats = load_preset("brats")
    scans = [
        Scan(
            "BraTS, the preset's Swin Factorizer, 50 % overlap",
            brats,
            (240, 240, 155, 4),
            np.float32,
        ),
        Scan(
            "CT, a Swin Factorizer of widths 4 and 8, no overlap",
            change_preset(brats, CT),
            (512, 512, 600),
            np.int16,
        ),
    ]
    rows = []
    for scan in scans:
        console.print(scan.title)
        rows.append(measure_scan(scan))
        console.print(rows[-1])
    head = "| what | image | time | peak memory | announced |\n|---|---|---|---|---|\n"
    threads = f"{torch.get_num_threads()} threads of {cpu_model()}, PyTorch {torch.__version__}"
    text = f"# Prediction of large images\n\n`python benchmarks/inference.py`, {threads}.\n\n"
    OUTPUT.write_text(text + head + "\n".join(rows) + "\n")


def measure_scan(scan: Scan) -> str:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_model(folder / "model", scan.preset)
        image = folder / "image.nii.gz"
        noise = np.random.default_rng(0).integers(1, 100, scan.shape)
        voxels: NDArray[Any] = noise.astype(scan.dtype)
        nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), image)
        (case,), _ = read_inputs([image], scan.preset.data.channels)
        announced = estimate_bytes(scan.preset, case, batch_size=1, keep_probabilities=False)
        seconds, peak = measure(image, model, folder / "out")
    size = " x ".join(map(str, scan.shape))
    memory = f"{peak:.1f} GiB | {announced / GIB:.1f} GiB"
    return f"| {scan.title} | {size} | {seconds:.0f} s | {memory} |"


def write_model(folder: Path, preset: Preset) -> Path:
    """A fold with the weights that training would start from."""
    fold = Fold(folder)
    fold.write_preset(preset)
    state = network_of(preset).state_dict()
    weights = {f"{LAST}{name}": value for name, value in state.items()}
    fold.checkpoints.mkdir()
    torch.save({"state_dict": weights}, fold.last_checkpoint)
    return folder


def measure(image: Path, model: Path, out: Path) -> tuple[float, float]:
    """Seconds and GiB of a prediction in a process of its own."""
    program = [sys.executable, "-c", "from factorizer.cli import app; app()"]
    files = ["-i", str(image), "-o", str(out)]
    start = time.perf_counter()
    with subprocess.Popen(
        [*program, "predict", "--device", "cpu", *files, "--model", str(model)]
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
    if status:
        raise RuntimeError(f"the prediction failed with status {status}")
    assert isinstance(usage, resource.struct_rusage)
    return time.perf_counter() - start, usage.ru_maxrss / 2**20


if __name__ == "__main__":
    main()
