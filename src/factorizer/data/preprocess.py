"""From a case's files to the array a network takes, and exactly back (Sec. 4.2).

The steps are: turn to canonical orientation, restore zeros, clip, resample to the preset's spacing,
crop to the box of non-zero voxels, z-score per channel. A `Frame` keeps what is needed to undo
them. `restore` undoes them for a whole array, inference/restore.py slab by slab.
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
MOST_GROWTH = 1000  # resampling may multiply the voxels of an image by this
MOST_VOXELS = 2**31  # of a channel after resampling
# an image that loses so many times its voxels must keep at least FEW along its longest axis
SQUEEZED = 100
FEW = 32
# between these, squares and their sums are exact in float32
SMALLEST_SQUARED = 1e-15
LARGEST_SQUARED = 1e18
# of a channel's range: files of scaled 16-bit integers keep a value to half of 1 / 65,535
ROUNDING = 2e-5


@dataclass(frozen=True, eq=False)
class Frame:
    """The place of a preprocessed array in its image."""

    grid: VoxelGrid  # of the file
    resampled_shape: tuple[int, ...]  # in canonical orientation, before cropping
    box: tuple[slice, ...]  # of the crop

    @property
    def spacing_mm(self) -> tuple[float, ...]:
        """The spacing of the preprocessed array.

        The image keeps its extent, so this can differ slightly from the preset's spacing.
        """
        canonical = canonical_grid(self.grid)
        sizes = zip(canonical.spacing_mm, canonical.shape, self.resampled_shape, strict=True)
        return tuple(spacing * before / after for spacing, before, after in sizes)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A case as the network takes it: image (C, *spatial) float32, label (*spatial) uint8."""

    name: str
    image: Array
    label: Array | None
    frame: Frame
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Preprocessing:
    """What is done to an image after it is read, in this order. None leaves out a step."""

    clip: tuple[tuple[float, float] | None, ...] | None = None  # a range per channel
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
        """Preprocess an image in memory, and its label map if given.

        `name` and `channels` are used in warnings and errors.
        """
        image = clip_channels(restore_zeros(volume.array), self.clip)
        spikes: list[Problem] = []
        if self.normalization != "none":
            named = channels or [str(number) for number in range(len(image))]
            spikes = note_spikes(name, named, Volume(image, volume.grid))
        shape = resampled_shape(image.shape[1:], volume.spacing_mm, self.spacing_mm)
        check_resampling(name, image.shape[1:], shape)
        image = resample(image, shape, "linear")
        box = nonzero_box(image) if self.crop_to_nonzero else whole_box(shape)
        image = image[(slice(None), *box)]
        if label is not None:
            label = resample(label[None], shape, "nearest")[0]
            label = np.ascontiguousarray(label[box])
        if self.normalization != "none":
            image = zscore(image, nonzero=self.normalization == "zscore-nonzero")
        frame = Frame(volume.grid, shape, box)
        return Prepared(name, np.ascontiguousarray(image, np.float32), label, frame, tuple(spikes))


def preprocessing_of(data: Data) -> Preprocessing:
    """The preprocessing that a preset asks for."""
    clip = tuple(data.clip.get(channel) for channel in data.channels) if data.clip else None
    return Preprocessing(clip, data.spacing_mm, data.crop_to_nonzero, data.normalization)


def prepare_case(
    case: Case,
    preprocessing: Preprocessing,
    *,
    channels: Sequence[str],
    label_values: Mapping[int, int] | None = None,
) -> Prepared:
    """Read and preprocess a case. Without `label_values` its label is not read."""
    volume = read_image(case, channels)
    label = read_label(case, label_values, volume.grid) if label_values is not None else None
    with memory_errors(case.name):
        return preprocessing.apply(volume, label, name=case.name, channels=channels)


def restore_zeros(image: Array) -> Array:
    """(C, *spatial) with zeros wherever a file's scale has rounded zeros to something else.

    A background that is only almost zero would count as tissue in the box and in the z-score.
    """
    restored = image
    for index, channel in enumerate(image):
        with np.errstate(over="ignore"):
            spread = np.ptp(channel)
        ordinary = 2 * SPIKE * high_value(channel)  # at most, in a channel without spikes
        zeros = np.abs(channel) <= ROUNDING * (spread if float(spread) <= ordinary else ordinary)
        if channel[zeros].any():
            restored = image.copy() if restored is image else restored
            restored[index][zeros] = 0
    return restored


def clip_channels(image: Array, ranges: Sequence[tuple[float, float] | None] | None) -> Array:
    """(C, *spatial) with each channel clipped to its range."""
    if ranges is None:
        return image
    channels = []
    for channel, ends in zip(image, ranges, strict=True):
        channels.append(channel if ends is None else np.clip(channel, *ends))
    return np.stack(channels)


def resampled_shape(
    shape: Sequence[int], spacing_mm: Sequence[float], target_mm: Sequence[float] | None
) -> tuple[int, ...]:
    """The shape at another spacing. The extent stays the same to within half a voxel."""
    if target_mm is None:
        return tuple(shape)
    axes = zip(shape, spacing_mm, target_mm, strict=True)
    return tuple(max(1, round(size * spacing / target)) for size, spacing, target in axes)


def check_resampling(name: str, before: Sequence[int], after: Sequence[int]) -> None:
    """Refuse an image whose resampling shows that its voxel sizes are wrong.

    It would become much too large, or would almost vanish.
    """
    growth = prod(after) / prod(before)
    sizes = " x ".join(map(str, before)), " x ".join(map(str, after))
    message = f"at the model's spacing its {sizes[0]} voxels become {sizes[1]}"
    remedy = "correct the voxel sizes in its header, or choose a model with another spacing"
    if growth > MOST_GROWTH or prod(after) > max(MOST_VOXELS, prod(before)):
        limit = f"at most {MOST_GROWTH:,} times more and {MOST_VOXELS:,} in all are made"
        raise DataError(Problem(name, "", f"{message}, and {limit}", remedy))
    if growth < 1 / SQUEEZED and max(after) < FEW:
        limit = f"less than {FEW} along the longest axis show nothing"
        raise DataError(Problem(name, "", f"{message}, and {limit}", remedy))


def resample(array: Array, shape: Sequence[int], mode: Literal["linear", "nearest"]) -> Array:
    """(C, *spatial) -> (C, *shape) over the same extent; the same array if shapes are equal."""
    shape = tuple(shape)
    if array.shape[1:] == shape:
        return array
    x = torch.from_numpy(np.ascontiguousarray(array))[None]
    if mode == "nearest":
        y = F.interpolate(x, shape, mode="nearest-exact")
    else:
        y = F.interpolate(x.float(), shape, mode=LINEAR[len(shape)], align_corners=False)
    return y[0].numpy()


def nonzero_box(image: Array) -> tuple[slice, ...]:
    """The smallest box of (C, *spatial) around all voxels that are not zero in some channel."""
    boxes = find_objects(np.any(image, axis=0).astype(np.uint8))
    return boxes[0] if boxes else whole_box(image.shape[1:])


def whole_box(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(0, size) for size in shape)


def zscore(image: Array, *, nonzero: bool) -> Array:
    """Give each channel zero mean and unit variance, over all voxels or over the non-zero ones.

    With `nonzero`, zeros stay zero.
    """
    image = image.astype(np.float32)
    for channel in image:
        inside = channel != 0 if nonzero else np.ones(channel.shape, bool)
        if inside.any():
            values = to_ordinary_size(channel[inside])
            rounding = 1e-7 * float(np.abs(values).max())  # all that varies in a constant channel
            values -= values.mean(
                dtype=np.float64
            )  # in place, as copies of large images take memory
            deviation = np.sqrt(np.square(values).mean(dtype=np.float64))
            values /= max(deviation, rounding) or 1.0
            channel[inside] = values
    return image


def to_ordinary_size(values: Array) -> Array:
    """Values times a power of two, if float32 cannot hold their squares. Z-scores stay the same."""
    largest = max(float(values.max()), -float(values.min()))
    if SMALLEST_SQUARED < largest < LARGEST_SQUARED:
        return values
    return np.ldexp(values, -np.frexp(largest)[1])


def restore(array: Array, frame: Frame, mode: Literal["linear", "nearest"]) -> Array:
    """(C, *preprocessed) -> (C, *shape of the file), which is zero outside the crop."""
    whole = np.zeros((len(array), *frame.resampled_shape), array.dtype)
    whole[(slice(None), *frame.box)] = array
    whole = resample(whole, canonical_grid(frame.grid).shape, mode)
    return np.ascontiguousarray(restore_orientation(whole, frame.grid))
