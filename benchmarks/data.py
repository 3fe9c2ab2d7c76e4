"""Does the data stage keep up, and does it take every real scan?

Samples per second with one and two workers, beside what a training step of the Swin Factorizer
takes at the ISLES'22 preset (64^3 patches, all augmentations). With `--real FOLDER` also every case
of the data sets in that folder is read, preprocessed and cut into patches. Writes
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
from factorizer.data.cache import CaseStore, Settings
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
    """Preprocess all cases; the patches, and the number of cases that failed."""
    data = PRESET.data
    volumes = cohort.layout != "pairs"
    spacing = data.spacing_mm if cohort.layout == "isles" else None
    settings = Settings(cohort.channels, cohort.label_values, Preprocessing(None, spacing, volumes))
    store = CaseStore(cache, cohort.cases, settings)
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
    """After the first sample, which waits for the workers to start."""
    loader = DataLoader(dataset, batch_size=1, num_workers=workers)
    samples = iter(loader)
    next(samples)
    start = time.perf_counter()
    count = sum(1 for _ in samples)
    return count / (time.perf_counter() - start)


def step_seconds() -> float:
    options = build_options(PRESET, "swin-factorizer")
    step = make_step(build_model("swin-factorizer", **options), make_input(options), "training")
    step()
    start = time.perf_counter()
    for _ in range(3):
        step()
    return (time.perf_counter() - start) / 3


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
        write_synthetic("isles22", root / "strokes", cases=4, size=96, seed=0)
        dataset, _ = make_patches(read_cohort(root / "strokes"), root / "cache", 60, progress)
        for workers in (1, 2):
            lines.append(
                f"| {workers} worker{'s' * (workers > 1)} | "
                f"{samples_per_second(dataset, workers):.1f} |"
            )
        lines.append(
            f"| used by training the preset's `swin-factorizer` | {1 / step_seconds():.2f} |"
        )
        if args.real:
            lines += [
                "",
                "| real data set | cases | failed | seconds to preprocess all | patches taken |",
                "|---|---|---|---|---|",
            ]
            for path in sorted(p for p in args.real.iterdir() if p.is_dir()):
                start = time.perf_counter()
                cohort = read_cohort(path)
                dataset, failed = make_patches(
                    cohort, root / path.name, len(cohort.cases), progress
                )
                seconds = time.perf_counter() - start
                taken = sum(bool(dataset[i]["image"].isfinite().all()) for i in range(len(dataset)))
                lines.append(
                    f"| {path.name} | {len(cohort.cases)} | {failed} | {seconds:.0f} | {taken} |"
                )
    text = "\n".join(lines) + "\n"
    args.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
