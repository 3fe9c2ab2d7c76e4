"""Reading images: NIfTI and 2D images become arrays in one orientation.

A file that cannot be used is an error that names the file and a remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from nibabel.orientations import apply_orientation, inv_ornt_aff, io_orientation, ornt_transform
from numpy.typing import NDArray

from factorizer.data.capacity import memory_errors, refuse_too_large
from factorizer.data.cases import (
    Case,
    DataError,
    Problem,
    Source,
    list_some,
    missing_channels,
)
from factorizer.data.naming import is_picture
from factorizer.data.nifti import read_header, read_voxels
from factorizer.data.pictures import picture_shape, read_mask, read_picture
from factorizer.words import count

Array = NDArray[Any]
GRID_TOLERANCE = 0.1  # voxels by which two grids may be apart
LARGE_BYTES = 2**29  # an image of this size is refused if it is almost empty
EMPTY_EXPANSION = 300  # voxels of a file that shows something never take so many times its bytes
LABEL_ROUNDING = 1e-3  # labels stored with a scale factor may be off by this much
BRIGHT = 128  # a binary mask that is not stored as 0 and 1 has values of at least this


@dataclass(frozen=True, eq=False)
class VoxelGrid:
    """A grid of voxels in space: its shape (X, Y, Z) and the affine from voxel indices to mm.

    The affine of a 2D image (H, W) is the identity.
    """

    shape: tuple[int, ...]
    affine: NDArray[np.float64]

    @property
    def dims(self) -> int:
        return len(self.shape)

    @property
    def spacing_mm(self) -> tuple[float, ...]:
        return tuple(np.linalg.norm(self.affine[: self.dims, : self.dims], axis=0).tolist())

    def differs_from(self, other: VoxelGrid) -> str:
        """How two grids differ; "" if they are the same."""
        if self.shape != other.shape:
            return f"its shape is {self.shape}, not {other.shape}"
        ends = [(0, size - 1) for size in self.shape]
        corners = np.array(np.meshgrid(*ends)).reshape(self.dims, -1)
        corners = np.vstack((corners, np.ones(corners.shape[1])))
        with np.errstate(over="ignore", invalid="ignore"):  # if an origin is impossible
            shifts = ((self.affine - other.affine) @ corners)[: self.dims]
            apart = np.linalg.norm(shifts, axis=0).max()
        if not apart <= GRID_TOLERANCE * min(other.spacing_mm):
            return f"its corners are up to {apart:.2f} mm away"
        return ""


@dataclass(frozen=True, eq=False)
class Volume:
    """An array (C, *spatial) in canonical orientation, and the grid of its file.

    Canonical is the orientation nearest to left-right, posterior-anterior, inferior-superior.
    `restore_orientation` turns an array back to the orientation of the file.
    """

    array: Array
    grid: VoxelGrid

    @property
    def spacing_mm(self) -> tuple[float, ...]:
        """Along the axes of `array`."""
        return canonical_grid(self.grid).spacing_mm


def canonical_grid(grid: VoxelGrid) -> VoxelGrid:
    """The grid in canonical orientation."""
    if grid.dims == 2:
        return grid
    orientation = io_orientation(grid.affine)
    shape = [0] * 3
    for axis, size in zip(orientation[:, 0].astype(int), grid.shape, strict=True):
        shape[axis] = size
    return VoxelGrid(tuple(shape), grid.affine @ inv_ornt_aff(orientation, grid.shape))


def turn_to_canonical(array: Array, grid: VoxelGrid) -> Array:
    """(C, *shape of the file) -> (C, *canonical shape)."""
    if grid.dims == 2:
        return array
    return turn(array, io_orientation(grid.affine))


def restore_orientation(array: Array, grid: VoxelGrid) -> Array:
    """(C, *canonical shape) -> (C, *shape of the file), the inverse of `turn_to_canonical`."""
    if grid.dims == 2:
        return array
    canonical = np.array([[0, 1], [1, 1], [2, 1]])
    return turn(array, ornt_transform(canonical, io_orientation(grid.affine)))


def turn(array: Array, orientation: Array) -> Array:
    """nibabel's reorientation of (C, *spatial), which leaves the channel axis alone."""
    return np.moveaxis(apply_orientation(np.moveaxis(array, 0, -1), orientation), -1, 0)


def read_image(case: Case, channels: Sequence[str] | None = None) -> Volume:
    """The channels of a case as float32, in the order given."""
    wanted = channels or tuple(case.channels)
    missing = missing_channels(case, wanted)
    if missing:
        have = ", ".join(case.channels) or "none"
        message = f"channel {', '.join(missing)} is missing (the case has {have})"
        remedy = "add the file, or name other channels in the preset"
        raise DataError(Problem(case.name, "", message, remedy))
    files = dict.fromkeys(case.channels[channel].file for channel in wanted)  # each once, in order
    opened = {file: open_image(case.name, file) for file in files}
    first = opened[case.channels[wanted[0]].file].grid
    for channel in wanted:
        check_channel(case, channel, opened[case.channels[channel].file], first, wanted)
    check_size(case, opened, prod(first.shape) * len(wanted))
    with memory_errors(case.name):
        array = np.stack(read_channels(case, wanted, opened))
        return Volume(turn_to_canonical(array, first), first)


def read_channels(
    case: Case, wanted: Sequence[str], opened: Mapping[Path, ImageFile]
) -> list[Array]:
    """The voxels of each channel. A file that holds several channels is read once."""
    arrays: list[Array] = []
    voxels: dict[Path, Array] = {}
    for channel in wanted:
        source = case.channels[channel]
        image = opened[source.file]
        if source.file not in voxels:
            voxels[source.file] = image.read()
        array = voxels[source.file]
        if array.ndim > image.grid.dims:
            array = array[..., source.index]
        arrays.append(check_voxels(case.name, channel, source, array))
    return arrays


def check_channel(
    case: Case, channel: str, image: ImageFile, first: VoxelGrid, wanted: Sequence[str]
) -> None:
    """Refuse a file on another grid than the first channel, or with a wrong number of channels."""
    source = case.channels[channel]
    difference = image.grid.differs_from(first)
    if difference:
        message = f"channel {channel} is not on the grid of {wanted[0]}: {difference}"
        remedy = f"register and resample it to {wanted[0]}"
        raise DataError(Problem(case.name, str(source.file), message, remedy))
    check_count(case.name, source, image, wanted)


def check_count(case: str, source: Source, image: ImageFile, wanted: Sequence[str] = ()) -> None:
    """Refuse a file that does not hold as many channels as it should."""
    found = image.shape[-1] if len(image.shape) > image.grid.dims else 1
    if found != source.count:
        message = (
            f"it holds {count(found, 'channel')} (shape {image.shape}), but should hold "
            f"{source.count}"
        )
        if source.count == len(wanted):
            message += f" ({', '.join(wanted)})"
        remedy = "give a file per channel, or correct this one or the data set's list of channels"
        raise DataError(Problem(case, str(source.file), message, remedy))


def check_size(case: Case, opened: Mapping[Path, ImageFile], voxels: int) -> None:
    """Refuse images that do not fit into memory, and large files that are empty.

    An image that shows something has noise, which does not compress so well.
    """
    for file, image in opened.items():
        if image.memory_bytes > LARGE_BYTES and image.expansion > EMPTY_EXPANSION:
            message = (
                f"its shape is {image.shape}, and the file is {image.expansion:.0f} times smaller: "
                "it is empty"
            )
            remedy = "crop it to what it shows, or replace it"
            raise DataError(Problem(case.name, str(file), message, remedy))
    in_files = sum(image.memory_bytes for image in opened.values())
    as_float32 = 2 * 4 * voxels  # each channel, and all of them in one array
    refuse_too_large(case.name, str(next(iter(opened))), in_files + as_float32, "reading its image")


def check_voxels(case: str, channel: str, source: Source, array: Array) -> Array:
    """A channel as float32. It is refused if it is all zero, or if a voxel is not finite."""
    stored = array
    with np.errstate(over="ignore"):  # values beyond float32 become infinite
        array = stored.astype(np.float32, copy=False)
    bad = np.count_nonzero(~np.isfinite(array))
    if bad:
        message = f"{bad} voxels of channel {channel} are NaN or infinite"
        raise DataError(Problem(case, str(source.file), message, "export the image again"))
    if not array.any():
        is_tiny = " as far as float32 can tell; store it in another unit" if stored.any() else ""
        message = f"every voxel of channel {channel} is zero{is_tiny}"
        remedy = "replace the image, or remove the case"
        raise DataError(Problem(case, str(source.file), message, remedy))
    return array


def read_label(case: Case, label_values: Mapping[int, int], image_grid: VoxelGrid) -> Array:
    """The label map (*canonical shape of the image) as uint8.

    `label_values` says what each value of the file becomes. Any other value is an error.
    """
    if case.label is None:
        raise DataError(
            Problem(case.name, "", "the case has no label", "add its label, or remove the case")
        )
    file = open_image(case.name, case.label, as_label=True)
    if len(file.shape) > file.grid.dims and file.shape[-1] != 1:
        message = f"its shape is {file.shape}"
        raise label_error(case, message, "give one label map without extra axes")
    difference = file.grid.differs_from(image_grid)
    if difference:
        message = f"the label is not on the image's grid: {difference}"
        raise label_error(case, message, "resample it to the image by nearest neighbour")
    refuse_too_large(case.name, str(case.label), 4 * file.memory_bytes, "reading its label")
    array = round_labels(file.read().reshape(file.grid.shape))
    found = values_in(array)
    check_values(case, found, label_values)
    values = np.zeros(array.shape, np.uint8)
    for value in found:
        values[array == value] = label_values[int(value)]
    return turn_to_canonical(values[None], image_grid)[0]


def label_error(case: Case, message: str, remedy: str) -> DataError:
    return DataError(Problem(case.name, str(case.label), message, remedy))


def round_labels(array: Array) -> Array:
    """Labels that a scale factor has made almost whole numbers, as whole numbers."""
    if array.dtype.kind != "f":
        return array
    with np.errstate(invalid="ignore"):  # of infinite values
        is_rounded = np.abs(array - np.rint(array)).max(initial=0) < LABEL_ROUNDING
    return np.rint(array) if is_rounded else array


def values_in(array: Array) -> list[float]:
    """The values of a label map, in ascending order."""
    slabs = [np.unique(slab) for slab in array.T]  # one by one, as sorting takes a copy
    return np.unique(np.concatenate(slabs)).tolist()


def check_values(case: Case, found: Sequence[float], label_values: Mapping[int, int]) -> None:
    """Refuse values that are not declared, and values that cannot be meant as they are read."""
    unknown = [value for value in found if value not in label_values]
    if unknown:
        message = f"it has values that are not declared: {list_some(unknown)}"
        declared = list_some(sorted(label_values))
        remedy = f"correct the label, or choose a preset that declares them ({declared} are)"
        raise label_error(case, message, remedy)
    if len(label_values) == 256:  # a binary 2D mask, in which every value except 0 is foreground
        if len(found) > 2 and found[-1] < BRIGHT:
            message = (
                f"its values {list_some(found)} look like several classes, and pairs of images "
                "and masks have one"
            )
            remedy = "make a mask of each class and choose by mask_suffix, or use nnU-Net's layout"
            raise label_error(case, message, remedy)
        return
    meant = [label_values[int(value)] for value in found if label_values[int(value)]]
    if len(set(meant)) < len(meant):
        message = f"its values {list_some(found)} name a label twice"
        raise label_error(case, message, "give each label one value")


def check_dimensions(case: Case, dims: int) -> None:
    """Refuse a 2D image for a 3D model, and a 3D image for a 2D model."""
    file = next(iter(case.channels.values())).file
    if is_picture(file) != (dims == 2):
        message = f"it is {5 - dims}D, and the model is for {dims}D images"
        remedy = "choose another model, or other data"
        raise DataError(Problem(case.name, str(file), message, remedy))


@dataclass(frozen=True, eq=False)
class ImageFile:
    """A file. Only its header was read so far."""

    shape: tuple[int, ...]  # with several channels, these are the last axis
    grid: VoxelGrid
    memory_bytes: int  # needed to read it
    expansion: float  # bytes of voxels per byte of the file
    read: Callable[[], Array]


def open_image(case: str, file: Path, *, as_label: bool = False) -> ImageFile:
    """Read the header of a file. A file that cannot be used is refused before any voxel is read."""
    if is_picture(file):
        shape = picture_shape(case, file)
        grid = VoxelGrid(shape[:2], np.eye(3))
        if as_label:
            return ImageFile(grid.shape, grid, prod(shape), 1.0, partial(read_mask, case, file))
        return ImageFile(shape, grid, prod(shape), 1.0, partial(read_picture, case, file))
    nifti = read_header(case, file)
    grid = VoxelGrid(nifti.shape[:3], nifti.affine_mm)
    expansion = nifti.voxel_bytes / nifti.file_bytes
    return ImageFile(nifti.shape, grid, nifti.memory_bytes, expansion, partial(read_voxels, nifti))
