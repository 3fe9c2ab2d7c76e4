"""How much memory a prediction will take, before it starts."""

from __future__ import annotations

from math import prod

from factorizer.config import Data, Preset
from factorizer.data.capacity import refuse_too_large
from factorizer.data.cases import Case, DataError
from factorizer.data.images import canonical_grid, check_count, check_dimensions, open_image
from factorizer.data.preprocess import check_resampling, resampled_shape
from factorizer.hardware import GIB

BASE = 0.8 * GIB  # Python, PyTorch and the weights
MAPS = 12  # feature maps of full resolution and least width that a network holds at a time, about


def check_memory(preset: Preset, case: Case, *, batch_size: int, keep_probabilities: bool) -> float:
    """The most bytes that a case will take, about. Raise `DataError` if fewer are free."""
    wanted = estimate_bytes(
        preset, case, batch_size=batch_size, keep_probabilities=keep_probabilities
    )
    refuse_too_large(case.name, "", wanted, "its prediction")
    return wanted


def estimate_bytes(
    preset: Preset, case: Case, *, batch_size: int, keep_probabilities: bool
) -> float:
    """The most bytes that a case will take, about, from its header.

    A case that cannot be used takes the bytes of the program alone.
    """
    data = preset.data
    try:
        shape, resampled_to, file_bytes = measure_case(case, data)
    except DataError:
        return BASE  # the error is reported when the case is read
    voxels, resampled = prod(shape), prod(resampled_to)
    channels, regions = preset.in_channels, preset.out_channels
    reading = voxels * channels * (4 + 4) + file_bytes + resampled * channels * 4
    normalizing = resampled * (channels * (4 + 4) + 4 + 4 + 1)
    slab = regions * 4 * min(1.0, 2 * data.patch_size[0] / min(shape)) * (resampled + voxels)
    network = batch_size * MAPS * 4 * prod(data.patch_size) * preset.model.widths[0]
    predicting = resampled * channels * 4 + 2 * voxels + 3 * slab + network
    kept = 2 * regions * 4 * voxels if keep_probabilities else 0
    return BASE + max(reading, normalizing, predicting + kept)


def measure_case(case: Case, data: Data) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The shape of a case's image, its shape at the preset's spacing, and the bytes of its files.

    No voxel is read.
    """
    check_dimensions(case, len(data.patch_size))
    files = {source.file for source in case.channels.values()}
    first = next(iter(case.channels.values()))
    image = open_image(case.name, first.file)
    check_count(case.name, first, image)
    grid = canonical_grid(image.grid)
    resampled = resampled_shape(grid.shape, grid.spacing_mm, data.spacing_mm)
    check_resampling(case.name, grid.shape, resampled)
    return grid.shape, resampled, image.memory_bytes * len(files)
