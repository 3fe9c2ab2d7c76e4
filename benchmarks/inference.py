"""Time and peak memory of `factorizer predict` on large images, each in a fresh process. Part of
`make bench`.

A BraTS case with the paper's network, and a CT of 512 x 512 x 600 voxels with a small network and
four regions. Networks are untrained and images are noise: neither changes what prediction costs.
Results go to docs/results/inference.md.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nibabel
import numpy as np
import torch
from rich.console import Console

from factorizer.config import Preset
from factorizer.data.inputs import read_inputs
from factorizer.hardware import cpu_model
from factorizer.inference.load import make_network
from factorizer.inference.memory import estimate_bytes
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


def main() -> None:
    brats = load_preset("brats")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, preset, shape, dtype in (
            (
                "BraTS, the preset's Swin Factorizer, 50 % overlap",
                brats,
                (240, 240, 155, 4),
                np.float32,
            ),
            (
                "CT, a Swin Factorizer of widths 4 and 8, no overlap",
                change_preset(brats, CT),
                (512, 512, 600),
                np.int16,
            ),
        ):
            console.print(title)
            run, image = write_run(folder / "run", preset), folder / "image.nii.gz"
            voxels = np.random.default_rng(0).integers(1, 100, shape).astype(dtype)
            nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), image)
            (case,), _ = read_inputs([image], preset.data.channels)
            estimate = estimate_bytes(preset, case, batch_size=1, keep_probabilities=False) / 2**30
            seconds, peak = measure(image, run, folder / "out")
            rows.append(
                f"| {title} | {' x '.join(map(str, shape))} | {seconds:.0f} s | {peak:.1f} GiB | "
                f"{estimate:.1f} GiB |"
            )
            console.print(rows[-1])
    head = "| what | image | time | peak memory | announced |\n|---|---|---|---|---|\n"
    threads = f"{torch.get_num_threads()} threads of {cpu_model()}, PyTorch {torch.__version__}"
    text = f"# Prediction of large images\n\n`python benchmarks/inference.py`, {threads}.\n\n"
    OUTPUT.write_text(text + head + "\n".join(rows) + "\n")


def write_run(folder: Path, preset: Preset) -> Path:
    """A run with the weights that training would start from."""
    weights = {
        f"network.{name}": value for name, value in make_network(preset).state_dict().items()
    }
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(to_yaml(preset))
    torch.save({"state_dict": weights}, folder / "checkpoints" / "last.ckpt")
    return folder


def measure(image: Path, run: Path, out: Path) -> tuple[float, float]:
    """Seconds and GiB of a prediction in a process of its own."""
    command = [
        sys.executable,
        "-c",
        "from factorizer.cli import app; app()",
        "predict",
        "--device",
        "cpu",
    ]
    start = time.perf_counter()
    with subprocess.Popen(
        [*command, "-i", str(image), "-o", str(out), "--run", str(run)]
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
    if status:
        raise RuntimeError(f"the prediction failed with status {status}")
    for file in out.iterdir():
        file.unlink()
    assert isinstance(usage, resource.struct_rusage)
    return time.perf_counter() - start, usage.ru_maxrss / 2**20


if __name__ == "__main__":
    main()
