"""Writes small data sets in every layout."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from PIL import Image

SHAPE = (12, 10, 8)


def write_nifti(file: Path, array: Any, affine: Any = None) -> Path:
    """Write a volume and the folders above it. Voxels are 1 x 1.5 x 2 mm without an affine."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if affine is None:
        affine = np.diag((1.0, 1.5, 2.0, 1.0))
    array = np.asarray(array)
    if array.dtype == bool:
        array = array.astype(np.uint8)
    nibabel.save(nibabel.Nifti1Image(array, affine), file)
    return file


def random_image(seed: int, shape: Sequence[int] = SHAPE) -> Any:
    return np.random.default_rng(seed).uniform(1, 100, shape).astype(np.float32)


def random_label(
    seed: int, values: Sequence[int] = (0, 1, 2, 3), shape: Sequence[int] = SHAPE
) -> Any:
    return np.random.default_rng(seed).choice(values, shape).astype(np.uint8)


def write_msd(
    folder: Path,
    cases: int = 3,
    channels: Sequence[str] = ("FLAIR", "T1w", "t1gd", "T2w"),
    labels: Sequence[str] = "abc",
) -> Path:
    """The Medical Segmentation Decathlon: case_000, case_001, ... with all channels in a file."""
    shape = SHAPE if len(channels) == 1 else (*SHAPE, len(channels))
    values = range(len(labels) + 1)
    training = []
    for index in range(cases):
        name = f"case_{index:03d}.nii.gz"
        write_nifti(folder / "imagesTr" / name, random_image(index, shape))
        write_nifti(folder / "labelsTr" / name, random_label(index, values))
        training.append({"image": f"./imagesTr/{name}", "label": f"./labelsTr/{name}"})
    description = {
        "modality": {str(index): name for index, name in enumerate(channels)},
        "labels": {str(value): name for value, name in enumerate(["background", *labels])},
        "training": training,
    }
    (folder / "dataset.json").write_text(json.dumps(description))
    return folder


def write_nnunet(folder: Path, cases: int = 2, labels: Any = None) -> Path:
    """nnU-Net raw data: pat_0, pat_1, ... with the channels T2 and ADC."""
    for index in range(cases):
        for channel in range(2):
            file = folder / "imagesTr" / f"pat_{index}_{channel:04d}.nii.gz"
            write_nifti(file, random_image(10 * index + channel))
        write_nifti(folder / "labelsTr" / f"pat_{index}.nii.gz", random_label(index))
    description = {
        "channel_names": {"0": "T2", "1": "ADC"},
        "labels": labels or {"background": 0, "x": 1, "y": 2, "z": 3},
        "file_ending": ".nii.gz",
    }
    (folder / "dataset.json").write_text(json.dumps(description))
    return folder


def write_isles(folder: Path, cases: int = 3, *, rawdata: bool = True, flair: bool = False) -> Path:
    """ISLES'22: sub-strokecase0000, sub-strokecase0001, ... with one session each."""
    raw = folder / "rawdata" if rawdata else folder
    for index in range(cases):
        case = f"sub-strokecase{index:04d}"
        session = Path(case) / "ses-0001"
        stem = f"{case}_ses-0001"
        write_nifti(raw / session / "dwi" / f"{stem}_dwi.nii.gz", random_image(index))
        write_nifti(raw / session / "dwi" / f"{stem}_adc.nii.gz", random_image(100 + index))
        if flair:
            write_nifti(raw / session / "anat" / f"{stem}_flair.nii.gz", random_image(200 + index))
        mask = folder / "derivatives" / session / f"{stem}_msk.nii.gz"
        write_nifti(mask, random_label(index, (0, 1)))
    return folder


def write_brats(
    folder: Path, names: Sequence[str], *, style: str = "_", labels: Sequence[Any] | None = None
) -> Path:
    """BraTS with names as before 2023 (style "_") or since 2023 (style "-")."""
    endings = {"_": ("flair", "t1", "t1ce", "t2"), "-": ("t2f", "t1n", "t1c", "t2w")}[style]
    values = {"_": (0, 1, 2, 4), "-": (0, 1, 2, 3)}[style]
    for index, name in enumerate(names):
        for channel, ending in enumerate(endings):
            file = folder / name / f"{name}{style}{ending}.nii.gz"
            write_nifti(file, random_image(10 * index + channel))
        label = random_label(index, values) if labels is None else labels[index]
        write_nifti(folder / name / f"{name}{style}seg.nii.gz", label)
    return folder


def write_pairs(
    folder: Path,
    names: Sequence[str] = ("Image_01L", "Image_01R", "Image_02L"),
    suffix: str = "_1stHO",
) -> Path:
    """Photographs of 20 x 30 pixels beside their masks."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, name in enumerate(names):
        colours = np.random.default_rng(index).integers(0, 256, (20, 30, 3)).astype(np.uint8)
        Image.fromarray(colours).save(folder / f"{name}.png")
        mask = 255 * random_label(index, (0, 1), (20, 30))
        Image.fromarray(mask).save(folder / f"{name}{suffix}.png")
    return folder
