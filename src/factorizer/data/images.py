"""Reading images: NIfTI and 2D pictures into arrays in one orientation, or an error that names file
and remedy."""

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
from factorizer.data.cases import Case, DataError, Problem, Source, list_some
from factorizer.data.naming import is_picture
from factorizer.data.nifti import read_header, read_voxels
from factorizer.data.pictures import picture_shape, read_mask, read_picture

Array = NDArray[Any]
GRID_TOLERANCE = 0.1  # of a voxel, by which two grids may be apart
LARGE_BYTES = 2**29  # from which on an image that is all but empty is refused
EMPTY_EXPANSION = 300  # times that a file with something to see is never smaller than its voxels
LABEL_ROUNDING = 1e-3  # by which the values of labels stored with a scale factor may be off


@dataclass(frozen=True, eq=False)
class VoxelGrid:
    """A grid of voxels in space: shape (X, Y, Z) and the affine from voxel indices to mm; 2D
    without an affine."""

    shape: tuple[int, ...]
    affine: NDArray[np.float64]

    @property
    def dims(self) -> int:
        return len(self.shape)

    @property
    def spacing_mm(self) -> tuple[float, ...]:
        return tuple(np.linalg.norm(self.affine[: self.dims, : self.dims], axis=0).tolist())

    def differs_from(self, other: VoxelGrid) -> str:
        """In which way two grids are not the same; "" if they are."""
        if self.shape != other.shape:
            return f"its shape is {self.shape}, not {other.shape}"
        corners = np.array(np.meshgrid(*((0, n - 1) for n in self.shape))).reshape(self.dims, -1)
        corners = np.vstack((corners, np.ones(corners.shape[1])))
        with np.errstate(over="ignore", invalid="ignore"):  # of an origin that cannot be
            apart = np.linalg.norm(
                ((self.affine - other.affine) @ corners)[: self.dims], axis=0
            ).max()
        if not apart <= GRID_TOLERANCE * min(other.spacing_mm):
            return f"its corners are up to {apart:.2f} mm away"
        return ""


@dataclass(frozen=True, eq=False)
class Volume:
    """An array (C, *spatial) in the orientation nearest to left-right, posterior-anterior,
    inferior-superior.

    `grid` is that of the file, before it was turned; `restore_orientation` turns an array back.
    """

    array: Array
    grid: VoxelGrid

    @property
    def spacing_mm(self) -> tuple[float, ...]:
        """Along the axes of `array`."""
        return canonical_grid(self.grid).spacing_mm


def canonical_grid(grid: VoxelGrid) -> VoxelGrid:
    """The grid after turning its axes into canonical order."""
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
    """nibabel's reorientation, with the channel axis in front kept."""
    return np.moveaxis(apply_orientation(np.moveaxis(array, 0, -1), orientation), -1, 0)


def read_image(case: Case, channels: Sequence[str] | None = None) -> Volume:
    """The channels of a case, in the order given, as float32."""
    wanted = channels or tuple(case.channels)
    missing = [channel for channel in wanted if channel not in case.channels]
    if missing:
        have = ", ".join(case.channels) or "none"
        message = f"channel {', '.join(missing)} is missing (there is {have})"
        raise DataError(
            Problem(case.name, "", message, "add the file, or name other channels in the preset")
        )
    files = {case.channels[channel].file: None for channel in wanted}  # in order, each once
    opened = {file: open_image(case.name, file) for file in files}
    first = opened[case.channels[wanted[0]].file].grid
    for channel in wanted:
        check_channel(case, channel, opened[case.channels[channel].file], first, wanted)
    check_size(case, opened, prod(first.shape) * len(wanted))
    arrays: list[Array] = []
    voxels: dict[Path, Array] = {}
    with memory_errors(case.name):
        for channel in wanted:
            source = case.channels[channel]
            if source.file not in voxels:
                voxels[source.file] = opened[source.file].read()
            array = voxels[source.file]
            array = array[..., source.index] if array.ndim > first.dims else array
            arrays.append(check_voxels(case.name, channel, source, array))
        return Volume(turn_to_canonical(np.stack(arrays), first), first)


def check_channel(
    case: Case, channel: str, image: ImageFile, first: VoxelGrid, wanted: Sequence[str]
) -> None:
    """A channel's file lies on the grid of the first, and holds as many channels as expected."""
    source = case.channels[channel]
    difference = image.grid.differs_from(first)
    if difference:
        message = f"channel {channel} is not on the grid of {wanted[0]}: {difference}"
        raise DataError(
            Problem(
                case.name, str(source.file), message, f"register and resample it to {wanted[0]}"
            )
        )
    check_count(case.name, source, image, wanted)


def check_count(case: str, source: Source, image: ImageFile, wanted: Sequence[str] = ()) -> None:
    """A file holds as many channels as it should."""
    count = image.shape[-1] if len(image.shape) > image.grid.dims else 1
    if count != source.count:
        message = (
            f"it holds {count} channel{'s' * (count > 1)} (shape {image.shape}), but should hold "
            f"{source.count}"
        )
        if source.count == len(wanted):
            message += f" ({', '.join(wanted)})"
        remedy = "give a file per channel, or correct this one or the data set's list of channels"
        raise DataError(Problem(case, str(source.file), message, remedy))


def check_size(case: Case, opened: Mapping[Path, ImageFile], voxels: int) -> None:
    """Refuse what memory does not hold, and large files of nothing: noise alone keeps images from
    shrinking so."""
    for file, image in opened.items():
        if image.memory_bytes > LARGE_BYTES and image.expansion > EMPTY_EXPANSION:
            message = (
                f"its shape is {image.shape}, and the file is {image.expansion:.0f} times smaller: "
                "it is empty"
            )
            raise DataError(
                Problem(case.name, str(file), message, "crop it to what it shows, or replace it")
            )
    wanted = (
        sum(image.memory_bytes for image in opened.values()) + 2 * 4 * voxels
    )  # float32, and all in one array
    refuse_too_large(case.name, str(next(iter(opened))), wanted, "reading its image")


def check_voxels(case: str, channel: str, source: Source, array: Array) -> Array:
    """A channel as float32, if it has something to show."""
    stored = array
    with np.errstate(over="ignore"):  # what float32 does not hold becomes infinite
        array = stored.astype(np.float32, copy=False)
    bad = np.count_nonzero(~np.isfinite(array))
    if bad:
        message = f"{bad} voxels of channel {channel} are NaN or infinite"
        raise DataError(Problem(case, str(source.file), message, "export the image again"))
    if not array.any():
        is_tiny = " as far as float32 can tell; store it in another unit" if stored.any() else ""
        message = f"every voxel of channel {channel} is zero{is_tiny}"
        raise DataError(
            Problem(case, str(source.file), message, "replace the image, or remove the case")
        )
    return array


def read_label(case: Case, label_values: Mapping[int, int], image_grid: VoxelGrid) -> Array:
    """The label map (*canonical shape of the image) as uint8, its values turned by
    `label_values`."""
    if case.label is None:
        raise DataError(
            Problem(case.name, "", "the case has no label", "add its label, or remove the case")
        )

    def fail(message: str, remedy: str) -> DataError:
        return DataError(Problem(case.name, str(case.label), message, remedy))

    file = open_image(case.name, case.label, as_label=True)
    if len(file.shape) > file.grid.dims and file.shape[-1] != 1:
        raise fail(f"its shape is {file.shape}", "give one label map without further axes")
    difference = file.grid.differs_from(image_grid)
    if difference:
        message = f"the label is not on the image's grid: {difference}"
        raise fail(message, "resample it to the image by nearest neighbour")
    refuse_too_large(case.name, str(case.label), 4 * file.memory_bytes, "reading its label")
    array = file.read().reshape(file.grid.shape)
    if array.dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # of infinite values
            is_rounded = np.abs(array - np.rint(array)).max(initial=0) < LABEL_ROUNDING
        array = np.rint(array) if is_rounded else array
    slabs = [np.unique(slab) for slab in array.T]  # one by one, as sorting takes a copy
    found = np.unique(np.concatenate(slabs)).tolist()
    unknown = [value for value in found if value not in label_values]
    if unknown:
        message = f"it has values that are not declared: {list_some(unknown)}"
        remedy = (
            "correct the label, or choose a preset that declares them "
            f"({list_some(sorted(label_values))} are)"
        )
        raise fail(message, remedy)
    if len(label_values) == 256:  # in binary pictures all values but 0 mean the same
        if len(found) > 2 and found[-1] < 128:
            message = (
                f"its values {list_some(found)} look like several classes, and pairs of pictures "
                "have one"
            )
            raise fail(
                message,
                "make a mask of each class and choose by mask_suffix, or use nnU-Net's layout",
            )
    else:
        meant = [label_values[int(value)] for value in found if label_values[int(value)]]
        if len(set(meant)) < len(meant):
            raise fail(
                f"its values {list_some(found)} name a label twice", "give each label one value"
            )
    values = np.zeros(array.shape, np.uint8)
    for value in found:
        values[array == value] = label_values[int(value)]
    return turn_to_canonical(values[None], image_grid)[0]


def check_dimensions(case: Case, dims: int) -> None:
    """Refuse a photograph for a model of volumes, and a scan for one of pictures."""
    file = next(iter(case.channels.values())).file
    if is_picture(file) != (dims == 2):
        message = f"it is {5 - dims}D, and the model is for {dims}D images"
        raise DataError(
            Problem(case.name, str(file), message, "choose another model, or other data")
        )


@dataclass(frozen=True, eq=False)
class ImageFile:
    """A file whose header was read: what it will hold, and how to read it."""

    shape: tuple[int, ...]  # channels last where there are several
    grid: VoxelGrid
    memory_bytes: int  # that reading takes
    expansion: float  # bytes of voxels per byte of the file
    read: Callable[[], Array]


def open_image(case: str, file: Path, *, as_label: bool = False) -> ImageFile:
    """Read the header of a file; one that cannot be used, or is not true, is refused before any
    voxel is read."""
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
