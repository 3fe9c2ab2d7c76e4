"""`factorizer data synth`: synthetic data sets in the layouts of BraTS (Decathlon), ISLES'22 and
Hippocampus.

brains.py makes the anatomy. This file adds MRI contrasts, a bias field, noise and slices, and
writes the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from scipy.ndimage import gaussian_filter

from factorizer.data import brains
from factorizer.data.brains import Array, Generator
from factorizer.data.cases import DataError, Problem
from factorizer.errors import FactorizerError
from factorizer.files import write_atomically
from factorizer.progress import SILENT, Progress

# mean intensity of each tissue, in the order of brains.py: outside, fluid, grey, white, edema,
# necrosis, enhancing, vessel, spot, cyst, stroke, shine
CONTRASTS = {
    "FLAIR": (0, 0.20, 0.62, 0.50, 0.78, 0.42, 0.70, 0.68, 0.77, 0.44, 0.75, 0.70),
    "T1": (0, 0.22, 0.55, 0.75, 0.52, 0.36, 0.50, 0.50, 0.54, 0.37, 0.50, 0.60),
    "T1Gd": (0, 0.22, 0.56, 0.74, 0.53, 0.36, 0.90, 0.91, 0.55, 0.37, 0.50, 0.60),
    "T2": (0, 0.95, 0.60, 0.45, 0.78, 0.85, 0.66, 0.64, 0.77, 0.84, 0.72, 0.70),
    "DWI": (0, 0.20, 0.55, 0.48, 0.52, 0.40, 0.55, 0.50, 0.58, 0.30, 0.88, 0.86),
    "ADC": (0, 1.00, 0.36, 0.32, 0.55, 0.80, 0.45, 0.40, 0.45, 0.80, 0.20, 0.38),
}
CASES_PER_SEED = 1000  # numbers of cases that are kept free for each seed
BRATS_LABELS = {brains.EDEMA: 1, brains.NECROSIS: 2, brains.ENHANCING: 3}


@dataclass(frozen=True)
class Scan:
    """One synthetic case: channels (C, X, Y, Z), label map, and the size of a voxel."""

    image: Array
    label: Array
    spacing_mm: tuple[float, float, float]


def make_synthetic(
    kind: str,
    folder: Path,
    *,
    cases: int = 10,
    size: int = 64,
    seed: int = 0,
    progress: Progress = SILENT,
) -> list[str]:
    """Write a synthetic data set in the layout of a real one, and return its cases' names.

    Args:
        kind: brats, isles22 or hippocampus.
        folder: Where the data set goes. The folder must be empty or not exist.
        cases: The number of cases.
        size: Voxels along the longest axis, at least 24.
        seed: The same seed gives the same cases. Cases of different seeds have different names.
        progress: Where bars go.

    Example:
        >>> factorizer.make_synthetic("isles22", Path("more"), cases=2, size=32)
        ['sub-strokecase0001', 'sub-strokecase0002']
    """
    first = CASES_PER_SEED * seed + 1
    return write_synthetic(
        kind, folder, cases=cases, size=size, seed=seed, first=first, progress=progress
    )


def write_synthetic(
    kind: str,
    folder: Path,
    *,
    cases: int,
    size: int,
    seed: int,
    first: int = 1,
    progress: Progress = SILENT,
) -> list[str]:
    """Write a data set of the kind brats, isles22 or hippocampus, and return its cases' names.

    The folder must be empty or not exist. Cases are numbered from `first`.
    """
    if kind not in KINDS:
        raise FactorizerError(
            f"there is no synthetic data set {kind!r}; choose one of {', '.join(KINDS)}"
        )
    if size < 24 or cases < 1:
        raise FactorizerError(f"got {cases} cases of size {size}; give at least 1 case of size 24")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        remedy = "give another folder; nothing is overwritten"
        raise DataError(Problem("", str(folder), "the folder is not empty", remedy))
    recipe = KINDS[kind]
    names = []
    for index in progress.track(range(cases), "drawing scans"):
        scan = recipe.make(size, np.random.default_rng((seed, index)), index)
        names.append(recipe.write_case(folder, first + index, scan))
    recipe.finish(folder, names)
    return names


def render(tissue: Array, channel: str, generator: Generator) -> Array:
    """An MRI contrast of a tissue map, with partial volume, bias and noise.

    The means of tissues differ from scan to scan, as between scanners.
    """
    means = np.array(CONTRASTS[channel]) + generator.normal(0, 0.025, len(CONTRASTS[channel]))
    inside = tissue != brains.OUTSIDE
    image = gaussian_filter(means[tissue], 0.5)
    bias = np.exp(0.12 * brains.smooth_noise(tissue.shape, min(tissue.shape) / 3, generator))
    noisy = image * bias + generator.normal(0, generator.uniform(0.02, 0.045), tissue.shape)
    return np.where(inside, np.maximum(noisy, 0.005), 0) * generator.uniform(0.8, 1.25)


def make_brats(size: int, generator: Generator, index: int) -> Scan:
    tissue, depth = brains.make_brain((size, size, size), generator)
    brains.add_lookalikes(tissue, depth, generator)
    brains.add_tumour(tissue, depth, generator)
    contrasts = ("FLAIR", "T1", "T1Gd", "T2")
    image = np.stack([render(tissue, contrast, generator) for contrast in contrasts])
    label = np.zeros(tissue.shape, np.uint8)
    for kind, value in BRATS_LABELS.items():
        label[tissue == kind] = value
    return Scan(1000 * image, label, (1.0, 1.0, 1.0))


def make_isles(size: int, generator: Generator, index: int) -> Scan:
    """A brain with strokes. Every seventh case has no lesion, every third has thick slices."""
    tissue, depth = brains.make_brain((size, size, size), generator)
    brains.add_lookalikes(tissue, depth, generator)
    if index % 7 != 6:
        brains.add_strokes(tissue, depth, generator)
    brains.add_shine(tissue, depth, generator)
    dwi = 800 * render(tissue, "DWI", generator)
    adc = 2500 * render(tissue, "ADC", generator)
    label = (tissue == brains.STROKE).astype(np.uint8)
    scan = Scan(np.stack((dwi, adc)), label, (2.0, 2.0, 2.0))
    return thicken_slices(scan, 3) if index % 3 == 2 else scan


def make_hippocampus(size: int, generator: Generator, index: int) -> Scan:
    """A crop around the hippocampus.

    The scale of the intensities differs by orders of magnitude, as in the real data set.
    """
    shape = (round(0.7 * size), size, round(0.72 * size))
    tissue, label = brains.make_hippocampus(shape, generator)
    image = render(tissue, "T1", generator)[None]
    return Scan(image * 10 ** generator.uniform(2, 5), label, (1.0, 1.0, 1.0))


def thicken_slices(scan: Scan, factor: int) -> Scan:
    """Average every `factor` slices. A voxel is labelled if at least half of it is."""
    depth = scan.label.shape[2] // factor * factor
    slabs = scan.image[..., :depth].reshape(*scan.image.shape[:3], -1, factor).mean(-1)
    votes = scan.label[..., :depth].reshape(*scan.label.shape[:2], -1, factor).mean(-1)
    spacing_mm = (*scan.spacing_mm[:2], scan.spacing_mm[2] * factor)
    return Scan(slabs, (votes >= 0.5).astype(np.uint8), spacing_mm)


def save_nifti(file: Path, array: Array, spacing_mm: tuple[float, ...]) -> None:
    """Write an image whose first axis points to the left, as scanners do."""
    affine = np.diag((-spacing_mm[0], *spacing_mm[1:], 1.0))
    half = [spacing * size / 2 for spacing, size in zip(spacing_mm, array.shape[:3], strict=True)]
    affine[:3, 3] = half[0], -half[1], -half[2]
    image = nibabel.Nifti1Image(array[::-1], affine)
    image.header.set_xyzt_units("mm")
    file.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(image, file)


def write_msd_case(prefix: str) -> Callable[[Path, int, Scan], str]:
    def write(folder: Path, number: int, scan: Scan) -> str:
        name = f"{prefix}_{number:03d}"
        image = np.moveaxis(scan.image, 0, -1).astype(np.float32)
        if image.shape[-1] == 1:
            image = image[..., 0]
        save_nifti(folder / "imagesTr" / f"{name}.nii.gz", image, scan.spacing_mm)
        save_nifti(folder / "labelsTr" / f"{name}.nii.gz", scan.label, scan.spacing_mm)
        return name

    return write


def finish_msd(
    title: str, modality: list[str], labels: list[str]
) -> Callable[[Path, list[str]], None]:
    def finish(folder: Path, names: list[str]) -> None:
        pairs = []
        for name in names:
            file = f"{name}.nii.gz"
            pairs.append({"image": f"./imagesTr/{file}", "label": f"./labelsTr/{file}"})
        description: dict[str, Any] = {
            "name": title,
            "description": "Synthetic; procedural anatomy, no patient",
            "licence": "CC0 1.0",
            "tensorImageSize": "4D" if len(modality) > 1 else "3D",
            "modality": numbered(modality),
            "labels": numbered(["background", *labels]),
            "numTraining": len(names),
            "training": pairs,
        }
        write_atomically(folder / "dataset.json", json.dumps(description, indent=1) + "\n")

    return finish


def numbered(names: list[str]) -> dict[str, str]:
    return {str(number): name for number, name in enumerate(names)}


def write_isles_case(folder: Path, number: int, scan: Scan) -> str:
    case, session = f"sub-strokecase{number:04d}", "ses-0001"
    for array, channel in zip(scan.image, ("dwi", "adc"), strict=True):
        file = folder / "rawdata" / case / session / "dwi" / f"{case}_{session}_{channel}.nii.gz"
        save_nifti(file, array.astype(np.float32), scan.spacing_mm)
    file = folder / "derivatives" / case / session / f"{case}_{session}_msk.nii.gz"
    save_nifti(file, scan.label, scan.spacing_mm)
    return case


def finish_isles(folder: Path, names: list[str]) -> None:
    description = {"Name": "Synthetic ISLES", "BIDSVersion": "1.6.0", "License": "CC0 1.0"}
    write_atomically(folder / "dataset_description.json", json.dumps(description, indent=1) + "\n")


@dataclass(frozen=True)
class Kind:
    """How to make a synthetic data set."""

    make: Callable[[int, Generator, int], Scan]  # from size, generator and index
    write_case: Callable[[Path, int, Scan], str]  # returns the case's name
    finish: Callable[[Path, list[str]], None]  # writes the description of the data set


KINDS: Mapping[str, Kind] = {
    "brats": Kind(
        make_brats,
        write_msd_case("BRATS"),
        finish_msd(
            "Synthetic BraTS",
            ["FLAIR", "T1w", "t1gd", "T2w"],
            ["edema", "non-enhancing tumor", "enhancing tumour"],
        ),
    ),
    "isles22": Kind(make_isles, write_isles_case, finish_isles),
    "hippocampus": Kind(
        make_hippocampus,
        write_msd_case("hippocampus"),
        finish_msd("Synthetic Hippocampus", ["MRI"], ["Anterior", "Posterior"]),
    ),
}
