"""How much memory a prediction will take, before it starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import inf, prod
from pathlib import Path

import nibabel
import numpy as np

from factorizer.config import Preset
from factorizer.data.cases import Case, DataError, Problem
from factorizer.data.images import is_picture, is_regular
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
    data = preset.data
    shape, spacing, itemsize = read_header(case)
    if len(shape) != len(data.patch_size):
        return BASE  # refused when it is read
    voxels, channels, regions = prod(shape), preset.in_channels, preset.out_channels
    resampled = prod(resampled_shape(shape, spacing, data.spacing_mm))
    reading = voxels * (channels * (4 + 4) + itemsize) + resampled * channels * 4
    normalizing = resampled * (channels * (4 + 4) + 4 + 4 + 1)
    slab = regions * 4 * min(1.0, 2 * data.patch_size[0] / min(shape)) * (resampled + voxels)
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
        except Exception:
            return (), (), 1  # reported when it is read
    try:
        image = nibabel.load(source.file)
        if not is_regular(np.asarray(image.affine)):
            return (), (), 1
        shape = tuple(image.shape[:3])
        spacing = tuple(float(n) for n in np.linalg.norm(image.affine[:3, :3], axis=0))
        scaled = image.dataobj.slope != 1 or image.dataobj.inter != 0  # becomes float64
        itemsize = 8 if scaled else image.get_data_dtype().itemsize
    except Exception:
        return (), (), 1  # reported when it is read
    return shape, spacing, itemsize * len({source.file for source in case.channels.values()}) * source.count


def available_bytes() -> float:
    """Memory that this process can have: of the machine, or of its container; infinite where that is not known."""
    if not Path("/proc/meminfo").exists():
        return inf
    held = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        cache = Path("/sys/fs/cgroup/memory.stat").read_text().split()
        reclaimable = int(cache[cache.index("inactive_file") + 1])
        free = min(free, int(limit.read_text()) - int(used.read_text()) + reclaimable)
    return float(free + held)
