"""Reading images: NIfTI and 2D pictures into arrays in one orientation, or an error that names file and remedy."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from nibabel.filebasedimages import ImageFileError
from nibabel.orientations import apply_orientation, inv_ornt_aff, io_orientation, ornt_transform
from nibabel.spatialimages import HeaderDataError
from numpy.typing import NDArray

from factorizer.data.cases import Case, DataError, Problem, Source, list_some
from factorizer.data.layouts import IMAGES_2D

Array = NDArray[Any]
GRID_TOLERANCE = 0.1  # of a voxel, by which two grids may be apart
LABEL_ROUNDING = 1e-3  # by which the values of labels stored with a scale factor may be off


@dataclass(frozen=True, eq=False)
class VoxelGrid:
    """A grid of voxels in space: shape (X, Y, Z) and the affine from voxel indices to mm; 2D without an affine."""

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
        apart = np.linalg.norm(((self.affine - other.affine) @ corners)[: self.dims], axis=0).max()
        if apart > GRID_TOLERANCE * min(other.spacing_mm):
            return f"its corners are up to {apart:.2f} mm away"
        return ""


@dataclass(frozen=True, eq=False)
class Volume:
    """An array (C, *spatial) in the orientation nearest to left-right, posterior-anterior, inferior-superior.

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
        raise DataError(Problem(case.name, "", message, "add the file, or name other channels in the preset"))
    opened: dict[Path, tuple[Array, VoxelGrid]] = {}
    arrays: list[Array] = []
    first: VoxelGrid | None = None
    for channel in wanted:
        source = case.channels[channel]
        if source.file not in opened:
            opened[source.file] = read_file(case.name, source.file)
        array, grid = opened[source.file]
        first = first or grid
        difference = grid.differs_from(first)
        if difference:
            message = f"channel {channel} is not on the grid of {wanted[0]}: {difference}"
            raise DataError(Problem(case.name, str(source.file), message, f"register and resample it to {wanted[0]}"))
        arrays.append(check_voxels(case.name, channel, source, select_channel(case.name, source, array, wanted)))
    assert first is not None, "a case has channels"
    return Volume(turn_to_canonical(np.stack(arrays), first), first)


def check_voxels(case: str, channel: str, source: Source, array: Array) -> Array:
    """A channel as float32, if it has something to show."""
    array = array.astype(np.float32, copy=False)
    bad = np.count_nonzero(~np.isfinite(array))
    if bad:
        message = f"{bad} voxels of channel {channel} are NaN or infinite"
        raise DataError(Problem(case, str(source.file), message, "export the image again"))
    if not array.any():
        message = f"every voxel of channel {channel} is zero"
        raise DataError(Problem(case, str(source.file), message, "replace the image, or remove the case"))
    return array


def read_label(case: Case, label_values: Mapping[int, int], image_grid: VoxelGrid) -> Array:
    """The label map (*canonical shape of the image) as uint8, its values turned by `label_values`."""
    if case.label is None:
        raise DataError(Problem(case.name, "", "the case has no label", "add its label, or remove the case"))

    def fail(message: str, remedy: str) -> DataError:
        return DataError(Problem(case.name, str(case.label), message, remedy))

    array, grid = read_file(case.name, case.label, as_label=True)
    if array.ndim > grid.dims:
        if array.shape[-1] != 1:
            raise fail(f"its shape is {array.shape}", "give one label map without further axes")
        array = array[..., 0]
    difference = grid.differs_from(image_grid)
    if difference:
        message = f"the label is not on the image's grid: {difference}"
        raise fail(message, "resample it to the image by nearest neighbour")
    if array.dtype.kind == "f" and np.abs(array - np.rint(array)).max(initial=0) < LABEL_ROUNDING:
        array = np.rint(array)
    found = np.unique(array).tolist()
    unknown = [value for value in found if value not in label_values]
    if unknown:
        message = f"it has values that are not declared: {list_some(unknown)}"
        remedy = f"correct the label, or choose a preset that declares them ({list_some(sorted(label_values))} are)"
        raise fail(message, remedy)
    if len(label_values) == 256:  # in binary pictures all values but 0 mean the same
        if len(found) > 2 and found[-1] < 128:
            message = f"its values {list_some(found)} look like several classes, and pairs of pictures have one"
            raise fail(message, "make a mask of each class and choose by mask_suffix, or use nnU-Net's layout")
    else:
        meant = [label_values[int(value)] for value in found if label_values[int(value)]]
        if len(set(meant)) < len(meant):
            raise fail(f"its values {list_some(found)} name a label twice", "give each label one value")
    values = np.zeros(array.shape, np.uint8)
    for value in found:
        values[array == value] = label_values[int(value)]
    return turn_to_canonical(values[None], image_grid)[0]


def select_channel(case: str, source: Source, array: Array, wanted: Sequence[str]) -> Array:
    """One channel (*spatial) of what a file holds, which must be as many as expected."""
    dims = 2 if is_picture(source.file) else 3
    count = array.shape[-1] if array.ndim == dims + 1 else 1
    if count != source.count:
        message = f"it holds {count} channel{'s' * (count > 1)} (shape {array.shape}), but should hold {source.count}"
        if source.count == len(wanted):
            message += f" ({', '.join(wanted)})"
        remedy = "give a file per channel, or correct this one or the data set's list of channels"
        raise DataError(Problem(case, str(source.file), message, remedy))
    return array[..., source.index] if array.ndim == dims + 1 else array


def check_dimensions(case: Case, dims: int) -> None:
    """Refuse a photograph for a model of volumes, and a scan for one of pictures."""
    file = next(iter(case.channels.values())).file
    if is_picture(file) != (dims == 2):
        message = f"it is {5 - dims}D, and the model is for {dims}D images"
        raise DataError(Problem(case.name, str(file), message, "choose another model, or other data"))


def is_picture(file: Path) -> bool:
    return file.suffix.lower() in IMAGES_2D


def read_file(case: str, file: Path, *, as_label: bool = False) -> tuple[Array, VoxelGrid]:
    """The array of a file, channels last where there are several, and its grid."""
    return read_picture(case, file, as_label=as_label) if is_picture(file) else read_nifti(case, file)


def read_nifti(case: str, file: Path) -> tuple[Array, VoxelGrid]:
    def fail(message: str, remedy: str) -> DataError:
        return DataError(Problem(case, str(file), message, remedy))

    try:
        image, array = load_nifti(file)
        affine = np.asarray(image.affine, np.float64)
    except FileNotFoundError:
        raise fail("the file is missing", "add it, or remove the case") from None
    except PermissionError:
        raise fail("the file cannot be read", "give yourself permission") from None
    except ImageFileError as error:
        raise fail(f"it is not a NIfTI image ({error})", "replace the file") from None
    except (OSError, EOFError, ValueError, OverflowError, HeaderDataError, zlib.error) as error:
        raise fail(f"it is damaged or cut short ({error})", "copy or download it again") from None
    if array.dtype.kind not in "biuf":
        raise fail(f"its voxels are of the type {array.dtype}", "store one real number per voxel")
    if array.ndim < 3 or (array.ndim == 3 and array.shape[2] == 1):
        raise fail(f"it is 2D (shape {array.shape}) where a volume is expected", "give the whole volume as one file")
    if array.ndim > 4 or not array.size:
        raise fail(f"it has the shape {array.shape}", "give a volume, with channels as fourth axis")
    if not is_regular(affine):
        raise fail("its affine is singular: voxels have no size", "set the header's spacing and orientation")
    return array, VoxelGrid(tuple(array.shape[:3]), affine)


def load_nifti(file: Path) -> tuple[Any, Array]:
    """The image and its array. A compressed file is read to its end, where its checksum is."""
    image: Any = nibabel.load(file)
    if not (file.name.endswith(".gz") and isinstance(image, nibabel.Nifti1Image)):
        return image, np.asanyarray(image.dataobj)
    with gzip.open(file) as stream:
        image = type(image).from_stream(stream)
        array = np.asanyarray(image.dataobj)
        while stream.read(2**20):
            pass
    return image, array


def is_regular(affine: NDArray[np.float64]) -> bool:
    """Whether an affine gives every axis a direction of its own."""
    if not np.isfinite(affine).all():
        return False
    lengths = np.linalg.norm(affine[:3, :3], axis=0)
    if not lengths.all() or abs(np.linalg.det(affine[:3, :3] / lengths)) < 1e-4:
        return False
    return not np.isnan(io_orientation(affine)).any()


def read_picture(case: str, file: Path, *, as_label: bool) -> tuple[Array, VoxelGrid]:
    """(H, W), or (H, W, 3) for a coloured image. A coloured label is foreground wherever it is not black, a
    JPEG wherever it is brighter than half."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as picture:
            if picture.mode in ("P", "PA") and as_label:
                array = np.asarray(picture.convert("P"))
            elif picture.mode in ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB"):
                array = np.asarray(picture.convert("RGB"))
            else:  # one channel of any depth
                array = np.asarray(picture.convert("L") if picture.mode in ("1", "LA") else picture)
    except FileNotFoundError:
        raise DataError(Problem(case, str(file), "the file is missing", "add it, or remove the case")) from None
    except PermissionError:
        raise DataError(Problem(case, str(file), "the file cannot be read", "give yourself permission")) from None
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError) as error:
        raise DataError(Problem(case, str(file), f"it is no readable picture ({error})", "replace the file")) from None
    if as_label:
        if file.suffix.lower() in (".jpg", ".jpeg"):  # values are only about right
            array = array > array.max() / 2
        array = np.any(array, axis=-1) if array.ndim == 3 else array
        are_labels = array.min(initial=0) >= 0 and array.max(initial=0) <= 255 and not np.any(array % 1)
        array = (array if are_labels else np.not_equal(array, 0)).astype(np.uint8)
    return array, VoxelGrid(tuple(array.shape[:2]), np.eye(3))
