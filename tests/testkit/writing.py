"""Small data sets in every layout, for the tests."""

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
    file.parent.mkdir(parents=True, exist_ok=True)
    affine = np.diag((1.0, 1.5, 2.0, 1.0)) if affine is None else affine
    array = np.asarray(array)
    nibabel.save(
        nibabel.Nifti1Image(array.astype(np.uint8) if array.dtype == bool else array, affine), file
    )
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
    names = [f"case_{index:03d}" for index in range(cases)]
    for index, name in enumerate(names):
        shape = SHAPE if len(channels) == 1 else (*SHAPE, len(channels))
        write_nifti(folder / "imagesTr" / f"{name}.nii.gz", random_image(index, shape))
        write_nifti(
            folder / "labelsTr" / f"{name}.nii.gz", random_label(index, range(len(labels) + 1))
        )
    description = {
        "modality": {str(i): name for i, name in enumerate(channels)},
        "labels": {str(i): name for i, name in enumerate(["background", *labels])},
        "training": [
            {"image": f"./imagesTr/{n}.nii.gz", "label": f"./labelsTr/{n}.nii.gz"} for n in names
        ],
    }
    (folder / "dataset.json").write_text(json.dumps(description))
    return folder


def write_nnunet(folder: Path, cases: int = 2, labels: Any = None) -> Path:
    for index in range(cases):
        for channel in range(2):
            write_nifti(
                folder / "imagesTr" / f"pat_{index}_{channel:04d}.nii.gz",
                random_image(10 * index + channel),
            )
        write_nifti(folder / "labelsTr" / f"pat_{index}.nii.gz", random_label(index))
    description = {
        "channel_names": {"0": "T2", "1": "ADC"},
        "labels": labels or {"background": 0, "x": 1, "y": 2, "z": 3},
        "file_ending": ".nii.gz",
    }
    (folder / "dataset.json").write_text(json.dumps(description))
    return folder


def write_isles(folder: Path, cases: int = 3, *, rawdata: bool = True, flair: bool = False) -> Path:
    raw = folder / "rawdata" if rawdata else folder
    for index in range(cases):
        case, session = f"sub-strokecase{index:04d}", "ses-0001"
        stem = f"{case}_{session}"
        write_nifti(raw / case / session / "dwi" / f"{stem}_dwi.nii.gz", random_image(index))
        write_nifti(raw / case / session / "dwi" / f"{stem}_adc.nii.gz", random_image(100 + index))
        if flair:
            write_nifti(
                raw / case / session / "anat" / f"{stem}_flair.nii.gz", random_image(200 + index)
            )
        write_nifti(
            folder / "derivatives" / case / session / f"{stem}_msk.nii.gz",
            random_label(index, (0, 1)),
        )
    return folder


def write_brats(
    folder: Path, names: Sequence[str], *, style: str = "_", labels: Sequence[Any] | None = None
) -> Path:
    endings = {"_": ("flair", "t1", "t1ce", "t2"), "-": ("t2f", "t1n", "t1c", "t2w")}[style]
    values = {"_": (0, 1, 2, 4), "-": (0, 1, 2, 3)}[style]
    for index, name in enumerate(names):
        for channel, ending in enumerate(endings):
            write_nifti(
                folder / name / f"{name}{style}{ending}.nii.gz", random_image(10 * index + channel)
            )
        label = random_label(index, values) if labels is None else labels[index]
        write_nifti(folder / name / f"{name}{style}seg.nii.gz", label)
    return folder


def write_pairs(
    folder: Path,
    names: Sequence[str] = ("Image_01L", "Image_01R", "Image_02L"),
    suffix: str = "_1stHO",
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for index, name in enumerate(names):
        picture = np.random.default_rng(index).integers(0, 256, (20, 30, 3)).astype(np.uint8)
        Image.fromarray(picture).save(folder / f"{name}.png")
        mask = 255 * random_label(index, (0, 1), (20, 30))
        Image.fromarray(mask).save(folder / f"{name}{suffix}.png")
    return folder
