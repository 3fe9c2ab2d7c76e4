"""Time and peak memory of `factorizer predict` on large images. Part of `make bench`.

There is a BraTS case with the paper's network, and a CT of 512 x 512 x 600 voxels with a small
network and four regions. Each is predicted in a fresh process. Networks are untrained and images
are noise: neither changes what prediction costs. Results are written to docs/results/inference.md.
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

import nibabel
import numpy as np
import torch
from rich.console import Console

from factorizer.config import Preset, build_options
from factorizer.data.inputs import read_inputs
from factorizer.hardware import cpu_model
from factorizer.inference.memory import estimate_bytes
from factorizer.models.build import build_network
from factorizer.preset_files import change_preset, load_preset, to_yaml

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
class Job:
    """An image of noise and the network that predicts it."""

    title: str
    preset: Preset
    shape: tuple[int, ...]
    dtype: type[np.generic]


def main() -> None:
    rows = []
    for job in jobs():
        console.print(job.title)
        with tempfile.TemporaryDirectory() as name:
            rows.append(measure_job(job, Path(name)))
        console.print(rows[-1])
    threads = f"{torch.get_num_threads()} threads of {cpu_model()}, PyTorch {torch.__version__}"
    lines = [
        "# Prediction of large images",
        "",
        f"`python benchmarks/inference.py`, {threads}.",
        "",
        "| what | image | time | peak memory | announced |",
        "|---|---|---|---|---|",
        *rows,
    ]
    OUTPUT.write_text("\n".join(lines) + "\n")


def jobs() -> list[Job]:
    brats = load_preset("brats")
    ct = change_preset(brats, CT)
    return [
        Job(
            "BraTS, the preset's Swin Factorizer, 50 % overlap",
            brats,
            (240, 240, 155, 4),
            np.float32,
        ),
        Job(
            "CT, a Swin Factorizer of widths 4 and 8, no overlap",
            ct,
            (512, 512, 600),
            np.int16,
        ),
    ]


def measure_job(job: Job, folder: Path) -> str:
    """The row of the table for a job."""
    run, image = write_run(folder / "run", job.preset), folder / "image.nii.gz"
    voxels = np.random.default_rng(0).integers(1, 100, job.shape).astype(job.dtype)
    nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), image)
    (case,), _ = read_inputs([image], job.preset.data.channels)
    estimate = estimate_bytes(job.preset, case, batch_size=1, keep_probabilities=False)
    seconds, peak = measure(image, run, folder / "out")
    size = " x ".join(map(str, job.shape))
    return (
        f"| {job.title} | {size} | {seconds:.0f} s | {peak:.1f} GiB | {estimate / 2**30:.1f} GiB |"
    )


def write_run(folder: Path, preset: Preset) -> Path:
    """A run with the weights that training would start from."""
    name = preset.model.name
    network = build_network(name, build_options(preset, name), seed=preset.training.seed)
    weights = {f"network.{key}": value for key, value in network.state_dict().items()}
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(to_yaml(preset))
    torch.save({"state_dict": weights}, folder / "checkpoints" / "last.ckpt")
    return folder


def measure(image: Path, run: Path, out: Path) -> tuple[float, float]:
    """The seconds and the peak GiB of a prediction in a fresh process."""
    program = [sys.executable, "-c", "from factorizer.cli import app; app()"]
    arguments = ["predict", "--device", "cpu", "-i", image, "-o", out, "--run", run]
    start = time.perf_counter()
    with subprocess.Popen([*program, *map(str, arguments)]) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
    seconds = time.perf_counter() - start
    if status:
        raise RuntimeError(f"the prediction failed with status {status}")
    assert isinstance(usage, resource.struct_rusage)
    return seconds, usage.ru_maxrss / 2**20


if __name__ == "__main__":
    main()
