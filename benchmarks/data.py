"""Whether the data stage keeps up with training, and can read every real scan.

It measures samples per second with one and two workers, and the training steps per second of the
Swin Factorizer at the ISLES'22 preset (64^3 patches, all augmentations). With `--real FOLDER` it
also reads, preprocesses and cuts every case of the data sets in that folder. Writes
docs/results/data.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from datetime import date
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from torch.utils.data import DataLoader

from factorizer.config import build_options
from factorizer.data.cache import CaseStore, Preparation
from factorizer.data.cases import Cohort
from factorizer.data.check import targets_of
from factorizer.data.layouts import read_cohort
from factorizer.data.patches import PatchDataset
from factorizer.data.preprocess import Preprocessing
from factorizer.data.synthetic import write_synthetic
from factorizer.hardware import cpu_model
from factorizer.models.registry import build_model
from factorizer.preset_files import load_preset
from factorizer.profiling.measure import make_input, make_step

ROOT = Path(__file__).parents[1]
PRESET = load_preset("isles22")


def make_patches(
    cohort: Cohort, cache: Path, length: int, progress: Progress
) -> tuple[PatchDataset, int]:
    """Preprocess all cases: the patches, and the number of cases that failed."""
    data = PRESET.data
    volumes = cohort.layout != "pairs"
    spacing = data.spacing_mm if cohort.layout == "isles" else None
    preparation = Preparation(
        cohort.channels, cohort.label_values, Preprocessing(None, spacing, volumes)
    )
    store = CaseStore(cache, cohort.cases, preparation)
    progress.console.print(f"preprocessing {cohort.root.name}")
    problems = store.prepare(list(store.cases))
    for problem in problems:
        progress.console.print(str(problem))
    dataset = PatchDataset(
        store,
        list(store.entries),
        length=length,
        patch_size=data.patch_size if volumes else (128, 128),
        targets=targets_of(cohort),
        seed=0,
        augmentation=data.augmentation,
    )
    return dataset, len(problems)


def samples_per_second(dataset: PatchDataset, workers: int) -> float:
    """The rate after the first sample, which waits for the workers to start."""
    loader = DataLoader(dataset, batch_size=1, num_workers=workers)
    samples = iter(loader)
    next(samples)
    start = time.perf_counter()
    count = sum(1 for _ in samples)
    return count / (time.perf_counter() - start)


def step_seconds() -> float:
    """The time of a training step, the mean of three after one to warm up."""
    options = build_options(PRESET, "swin-factorizer")
    step = make_step(build_model("swin-factorizer", **options), make_input(options), "training")
    step()
    start = time.perf_counter()
    for _ in range(3):
        step()
    return (time.perf_counter() - start) / 3


def describe_synthetic(folder: Path, progress: Progress) -> list[str]:
    """The rows of the first table."""
    write_synthetic("isles22", folder / "strokes", cases=4, size=96, seed=0)
    cohort = read_cohort(folder / "strokes")
    dataset, _ = make_patches(cohort, folder / "cache", 60, progress)
    return [
        f"| 1 worker | {samples_per_second(dataset, 1):.1f} |",
        f"| 2 workers | {samples_per_second(dataset, 2):.1f} |",
        f"| used by training the preset's `swin-factorizer` | {1 / step_seconds():.2f} |",
    ]


def describe_real(path: Path, cache: Path, progress: Progress) -> str:
    """The row of a real data set in the second table."""
    start = time.perf_counter()
    cohort = read_cohort(path)
    count = len(cohort.cases)
    dataset, failed = make_patches(cohort, cache, count, progress)
    seconds = time.perf_counter() - start
    taken = 0
    for index in range(len(dataset)):
        taken += bool(dataset[index]["image"].isfinite().all())
    return f"| {path.name} | {count} | {failed} | {seconds:.0f} | {taken} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--real", type=Path, help="a folder of data sets")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "data.md")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", module="monai")
    lines = [
        "# The data stage",
        "",
        f"`benchmarks/data.py`, {date.today().isoformat()}, on {cpu_model()}, "
        f"{torch.get_num_threads()} threads. Patches of 64^3 with two channels from synthetic "
        "strokes of 96^3 voxels, all augmentations of the paper.",
        "",
        "| | samples per second |",
        "|---|---|",
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        Progress(console=Console(stderr=True)) as progress,
    ):
        root = Path(folder)
        lines += describe_synthetic(root, progress)
        if args.real:
            lines += [
                "",
                "| real data set | cases | failed | seconds to preprocess all | patches taken |",
                "|---|---|---|---|---|",
            ]
            for path in sorted(p for p in args.real.iterdir() if p.is_dir()):
                lines.append(describe_real(path, root / path.name, progress))
    text = "\n".join(lines) + "\n"
    args.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
