"""How much memory a prediction will take, before it starts."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from math import prod
from pathlib import Path

import nibabel
import numpy as np
from nibabel.filebasedimages import ImageFileError

from factorizer.config import Preset
from factorizer.data.cases import Case, DataError, Problem
from factorizer.data.images import is_picture
from factorizer.data.preprocess import resampled_shape

GIB = 2**30
BASE = 0.8 * GIB  # Python, PyTorch and the weights
MAPS = 12  # feature maps of full resolution and least width that a network holds at a time, about


def check_memory(preset: Preset, case: Case, *, batch_size: int, keep_probabilities: bool) -> float:
    """The bytes that a case will take at most, about; an error where there are not as many."""
    wanted = estimate_bytes(preset, case, batch_size=batch_size, keep_probabilities=keep_probabilities)
    free = available_bytes()
    if wanted > free:
        message = f"its prediction takes about {wanted / GIB:.1f} GiB, and {free / GIB:.1f} GiB are free"
        remedy = "close other programs, resample or crop the image, or use a machine with more memory"
        raise DataError(Problem(case.name, "", message, remedy))
    return wanted


def estimate_bytes(preset: Preset, case: Case, *, batch_size: int, keep_probabilities: bool) -> float:
    shape, spacing, itemsize = read_header(case)
    data = preset.data
    voxels, channels, regions = prod(shape), preset.in_channels, preset.out_channels
    resampled = prod(resampled_shape(shape, spacing, data.spacing_mm))
    reading = voxels * (channels * (4 + 4) + itemsize) + resampled * channels * 4
    normalizing = resampled * (channels * (4 + 4) + 4 + 4 + 1)
    slab = regions * 4 * data.patch_size[0] * (resampled + voxels) / min(shape)
    network = batch_size * MAPS * 4 * prod(data.patch_size) * preset.model.widths[0]
    predicting = resampled * channels * 4 + 2 * voxels + 3 * slab + network
    kept = 2 * regions * 4 * voxels if keep_probabilities else 0
    return BASE + max(reading, normalizing, predicting + kept)


def read_header(case: Case) -> tuple[tuple[int, ...], Sequence[float], int]:
    """Shape and spacing of a case's image, and bytes per voxel of its largest file; no voxel is read."""
    source = next(iter(case.channels.values()))
    if is_picture(source.file):
        from PIL import Image

        try:
            with Image.open(source.file) as picture:
                return picture.size[::-1], (1.0, 1.0), source.count
        except OSError:
            return (1, 1), (1.0, 1.0), 1  # reported when it is read
    try:
        image = nibabel.load(source.file)
    except (OSError, ImageFileError):
        return (1, 1, 1), (1.0, 1.0, 1.0), 1  # reported when it is read
    spacing = tuple(float(n) for n in np.linalg.norm(image.affine[:3, :3], axis=0))
    itemsize = image.get_data_dtype().itemsize * (image.shape[3] if len(image.shape) > 3 else 1)
    return tuple(image.shape[:3]), spacing, itemsize


def available_bytes() -> float:
    """Memory that this process can get beyond what it has: of the machine, or of its container."""
    held = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    return float(free + held)
