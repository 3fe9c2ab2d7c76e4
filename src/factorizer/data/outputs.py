"""Writing predictions: NIfTI with the grid, affine and header of the image, or PNG for 2D."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factorizer.data.cases import Case
from factorizer.data.images import is_picture
from factorizer.data.nifti import read_header
from factorizer.files import write_atomically

Array = NDArray[Any]


def prediction_file(folder: Path, case: Case) -> Path:
    """The file for the label map of a case."""
    suffix = ".png" if is_picture(first_file(case)) else ".nii.gz"
    return folder / f"{case.name}{suffix}"


def probabilities_file(folder: Path, case: Case) -> Path:
    """The file for the probabilities of a case."""
    suffix = ".npz" if is_picture(first_file(case)) else ".nii.gz"
    return folder / f"{case.name}_probabilities{suffix}"


def first_file(case: Case) -> Path:
    return next(iter(case.channels.values())).file


def write_labels(file: Path, labels: Array, case: Case, *, binary: bool) -> None:
    """Write label values as integers. With `binary`, the only label of a PNG is white."""
    if file.suffix == ".png":
        write_atomically(file, encode_png(np.where(labels, 255, 0) if binary else labels))
    else:
        write_atomically(file, encode_nifti(labels.astype(np.uint8), first_file(case)))


def write_probabilities(file: Path, probabilities: Array, case: Case) -> None:
    """Write (regions, *spatial). In NIfTI the regions are the last axis."""
    if file.suffix == ".npz":
        buffer = io.BytesIO()
        np.savez_compressed(buffer, probabilities=probabilities)
        write_atomically(file, buffer.getvalue())
    else:
        regions_last = np.moveaxis(probabilities, 0, -1).astype(np.float32)
        write_atomically(file, encode_nifti(regions_last, first_file(case)))


def encode_nifti(array: Array, like: Path) -> bytes:
    """A compressed NIfTI file with the header of the image `like`.

    Only the fields that depend on the values are different.
    """
    image = read_header(like.name, like)
    header = image.header.copy()
    header.set_data_dtype(array.dtype)
    header.set_slope_inter(1, 0)
    header["cal_min"] = header["cal_max"] = 0
    header["descrip"] = b"Factorizer; research use, not a medical device"
    content = image.kind(array, image.affine, header).to_bytes()
    return gzip.compress(content, compresslevel=4, mtime=0)


def encode_png(labels: Array) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(labels.astype(np.uint8)).save(buffer, format="png")
    return buffer.getvalue()
