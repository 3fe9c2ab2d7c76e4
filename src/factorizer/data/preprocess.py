"""From a case's files to the array a network takes, and exactly back (Sec. 4.2).

Turn to canonical orientation, mend zeros, clip, resample to the preset's spacing, crop to the
non-zero box, z-score per channel over its non-zero voxels. A `Frame` remembers what was done;
`restore` undoes it in one piece, and inference/restore.py the same slab by slab.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.ndimage import find_objects

from factorizer.config import Data
from factorizer.data.capacity import memory_errors
from factorizer.data.cases import Case, DataError, Problem
from factorizer.data.images import (
    Volume,
    VoxelGrid,
    canonical_grid,
    read_image,
    read_label,
    restore_orientation,
)
from factorizer.data.spikes import SPIKE, high_value, note_spikes

Array = NDArray[Any]
Normalization = Literal["zscore-nonzero", "zscore", "none"]
LINEAR = {2: "bilinear", 3: "trilinear"}
MOST_GROWTH = 1000  # times that resampling may multiply the voxels of an image
MOST_VOXELS = 2**31  # of a channel
SQUEEZED, FEW = (
    100,
    32,
)  # what loses so many times its voxels keeps so many along its longest axis, at least
SMALLEST_SQUARED, LARGEST_SQUARED = (
    1e-15,
    1e18,
)  # between which squares and their sums are exact in float32
ROUNDING = (
    2e-5  # of a channel's range: files of scaled 16-bit integers keep a value to half of 1 / 65,535
)


@dataclass(frozen=True, eq=False)
class Frame:
    """Where a preprocessed array lies in its image."""

    grid: VoxelGrid  # of the file
    resampled_shape: tuple[int, ...]  # in canonical orientation, before cropping
    box: tuple[slice, ...]  # of the crop

    @property
    def spacing_mm(self) -> tuple[float, ...]:
        """Of the preprocessed array: the image keeps its extent, so this may differ from the
        preset's by a hair."""
        canonical = canonical_grid(self.grid)
        sizes = zip(canonical.spacing_mm, canonical.shape, self.resampled_shape, strict=True)
        return tuple(spacing * before / after for spacing, before, after in sizes)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A case as the network takes it: image (C, *spatial) float32, label (*spatial) uint8 or
    None."""

    name: str
    image: Array
    label: Array | None
    frame: Frame
    warnings: tuple[Problem, ...] = ()  # of an image that may not be as it should


@dataclass(frozen=True)
class Preprocessing:
    """What is done to an image once it is read, in this order; None where nothing is."""

    clip: tuple[tuple[float, float] | None, ...] | None = None  # per channel
    spacing_mm: tuple[float, ...] | None = None
    crop_to_nonzero: bool = True
    normalization: Normalization = "zscore-nonzero"

    def apply(
        self,
        volume: Volume,
        label: Array | None = None,
        *,
        name: str = "image",
        channels: Sequence[str] | None = None,
    ) -> Prepared:
        """Preprocess an image that is in memory, and its label map if there is one; `channels` are
        for warnings."""
        image = clip_channels(mend_zeros(volume.array), self.clip)
        spikes: list[Problem] = []
        if self.normalization != "none":
            named = channels or [str(number) for number in range(len(image))]
            spikes = note_spikes(name, named, Volume(image, volume.grid))
        shape = resampled_shape(image.shape[1:], volume.spacing_mm, self.spacing_mm)
        check_resampling(name, image.shape[1:], shape)
        image = resample(image, shape, "linear")
        if label is not None:
            label = resample(label[None], shape, "nearest")[0]
        box = nonzero_box(image) if self.crop_to_nonzero else tuple(slice(0, n) for n in shape)
        image = image[(slice(None), *box)]
        label = None if label is None else np.ascontiguousarray(label[box])
        if self.normalization != "none":
            image = zscore(image, nonzero=self.normalization == "zscore-nonzero")
        frame = Frame(volume.grid, shape, box)
        return Prepared(name, np.ascontiguousarray(image, np.float32), label, frame, tuple(spikes))


def preprocessing_of(data: Data) -> Preprocessing:
    """How a preset wants its images."""
    clip = tuple(data.clip.get(channel) for channel in data.channels) if data.clip else None
    return Preprocessing(clip, data.spacing_mm, data.crop_to_nonzero, data.normalization)


def prepare_case(
    case: Case,
    preprocessing: Preprocessing,
    *,
    channels: Sequence[str],
    label_values: Mapping[int, int] | None = None,
) -> Prepared:
    """Read and preprocess a case; without `label_values` its label is left alone."""
    volume = read_image(case, channels)
    label = read_label(case, label_values, volume.grid) if label_values is not None else None
    with memory_errors(case.name):
        return preprocessing.apply(volume, label, name=case.name, channels=channels)


def mend_zeros(image: Array) -> Array:
    """(C, *spatial) with zeros where a file's scale has rounded them to something else, channel by
    channel.

    A background that is only almost zero would else count as tissue, in the box and in the z-score.
    """
    mended = image
    for index, channel in enumerate(image):
        with np.errstate(over="ignore"):
            spread = np.ptp(channel)
        ordinary = (
            2 * SPIKE * high_value(channel)
        )  # from one end to the other, where no voxel is a spike
        zeros = np.abs(channel) <= ROUNDING * (spread if float(spread) <= ordinary else ordinary)
        if channel[zeros].any():
            mended = image.copy() if mended is image else mended
            mended[index][zeros] = 0
    return mended


def clip_channels(image: Array, ranges: Sequence[tuple[float, float] | None] | None) -> Array:
    """(C, *spatial), each channel cut to its range."""
    if ranges is None:
        return image
    return np.stack(
        [x if ends is None else np.clip(x, *ends) for x, ends in zip(image, ranges, strict=True)]
    )


def resampled_shape(
    shape: Sequence[int], spacing_mm: Sequence[float], target_mm: Sequence[float] | None
) -> tuple[int, ...]:
    """The shape at another spacing, of the same extent to within half a voxel."""
    if target_mm is None:
        return tuple(shape)
    return tuple(
        max(1, round(n * s / t)) for n, s, t in zip(shape, spacing_mm, target_mm, strict=True)
    )


def check_resampling(name: str, before: Sequence[int], after: Sequence[int]) -> None:
    """Refuse an image that resampling would blow up, or squeeze to nothing: its voxel sizes are
    wrong."""
    growth = prod(after) / prod(before)
    sizes = " x ".join(map(str, before)), " x ".join(map(str, after))
    message = f"at the model's spacing its {sizes[0]} voxels become {sizes[1]}"
    remedy = "correct the voxel sizes in its header, or choose a model of another spacing"
    if growth > MOST_GROWTH or prod(after) > max(MOST_VOXELS, prod(before)):
        limit = f"at most {MOST_GROWTH:,} times more and {MOST_VOXELS:,} in all are made"
        raise DataError(Problem(name, "", f"{message}, and {limit}", remedy))
    if growth < 1 / SQUEEZED and max(after) < FEW:
        limit = f"less than {FEW} along the longest axis show nothing"
        raise DataError(Problem(name, "", f"{message}, and {limit}", remedy))


def resample(array: Array, shape: Sequence[int], mode: Literal["linear", "nearest"]) -> Array:
    """(C, *spatial) -> (C, *shape) over the same extent; the array itself where nothing changes."""
    if tuple(array.shape[1:]) == tuple(shape):
        return array
    x = torch.from_numpy(np.ascontiguousarray(array))[None]
    if mode == "nearest":
        return F.interpolate(x, tuple(shape), mode="nearest-exact")[0].numpy()
    return F.interpolate(x.float(), tuple(shape), mode=LINEAR[len(shape)], align_corners=False)[
        0
    ].numpy()


def nonzero_box(image: Array) -> tuple[slice, ...]:
    """The smallest box around the voxels (C, *spatial) that are not zero in every channel."""
    boxes = find_objects(np.any(image, axis=0).astype(np.uint8))
    return boxes[0] if boxes else tuple(slice(0, n) for n in image.shape[1:])


def zscore(image: Array, *, nonzero: bool) -> Array:
    """Per channel: zero mean and unit variance, over all voxels or those that are not zero; zeros
    then stay zero."""
    image = image.astype(np.float32)
    for channel in image:
        inside = channel != 0 if nonzero else np.ones(channel.shape, bool)
        if inside.any():
            values = to_ordinary_size(channel[inside])
            rounding = 1e-7 * float(np.abs(values).max())  # of a channel that is constant
            values -= values.mean(
                dtype=np.float64
            )  # in place: a large image fits into memory a few times only
            values /= max(np.sqrt(np.square(values).mean(dtype=np.float64)), rounding) or 1.0
            channel[inside] = values
    return image


def to_ordinary_size(values: Array) -> Array:
    """Values whose squares float32 does not hold, multiplied by a power of two, which a z-score
    does not notice."""
    largest = max(float(values.max()), -float(values.min()))
    if SMALLEST_SQUARED < largest < LARGEST_SQUARED:
        return values
    return np.ldexp(values, -np.frexp(largest)[1])


def restore(array: Array, frame: Frame, mode: Literal["linear", "nearest"]) -> Array:
    """(C, *preprocessed) -> (C, *shape of the file): what lies outside the crop is zero."""
    whole = np.zeros((len(array), *frame.resampled_shape), array.dtype)
    whole[(slice(None), *frame.box)] = array
    whole = resample(whole, canonical_grid(frame.grid).shape, mode)
    return np.ascontiguousarray(restore_orientation(whole, frame.grid))
