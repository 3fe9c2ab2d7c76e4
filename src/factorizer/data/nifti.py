"""Reading NIfTI files: first the header, which is compared with the size of the file, then the
voxels.

A header decides how much is read and where, so nothing is believed that the file cannot hold.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import nibabel
import numpy as np
from nibabel.arrayproxy import ArrayProxy
from nibabel.nifti1 import Nifti1Extension, Nifti1Extensions
from nibabel.orientations import io_orientation
from nibabel.spatialimages import HeaderDataError
from numpy.typing import NDArray

from factorizer.data.capacity import opening_errors
from factorizer.data.cases import DataError, Problem
from factorizer.errors import FactorizerError

Array = NDArray[Any]
KINDS = (nibabel.Nifti1Image, nibabel.Nifti2Image)
SMALLEST_MM, LARGEST_MM = 0.001, 100.0  # of a voxel: microscopes are at 0.01 mm, scouts at 20 mm
UNITS = {
    1: ("metres", 1000.0),
    2: ("millimetres", 1.0),
    3: ("micrometres", 0.001),
}  # by code, and their mm
HIGHEST_EXPANSION = 1032  # of a gzip file
MOST_EXTENSION_BYTES = 16 * 2**20
MOST_EXTENSIONS = 1000
MOST_PADDING = 4096  # bytes of zeros behind the last voxel


class NiftiError(FactorizerError):
    """What is wrong with a file, and what to do."""

    def __init__(self, message: str, remedy: str = "copy or download it again") -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


@dataclass(frozen=True, eq=False)
class NiftiFile:
    """A NIfTI file whose header was read and can be true; no voxel was read."""

    case: str
    file: Path
    kind: type[nibabel.Nifti1Image]
    header: Any  # with the extensions
    shape: tuple[int, ...]
    affine: NDArray[np.float64]  # in the header's unit
    affine_mm: NDArray[np.float64]
    file_bytes: int

    @property
    def voxel_bytes(self) -> int:
        """As they are in the file, not compressed."""
        return prod(self.shape) * int(self.header.get_data_dtype().itemsize)

    @property
    def is_scaled(self) -> bool:
        slope, intercept = self.header.get_slope_inter()
        return slope not in (None, 1) or intercept not in (None, 0)

    @property
    def memory_bytes(self) -> int:
        """Of the array that `read_voxels` gives, while it is made: scaled voxels become float64."""
        return self.voxel_bytes + (8 * prod(self.shape) if self.is_scaled else 0)


def read_header(case: str, file: Path) -> NiftiFile:
    """The header of a file, if a volume or several can be read by it."""
    with file_errors(case, file):
        if file.exists() and not file.is_file():
            raise NiftiError("it is not a regular file", "give a file")
        file_bytes = file.stat().st_size
        with open_stream(file) as stream:
            kind, header = parse_header(stream)
        shape = tuple(int(n) for n in header.get_data_shape())
        check_voxel_type(header)
        check_shape(shape)
        check_length(file, file_bytes, header, shape)
        affine = np.asarray(header.get_best_affine(), np.float64)
        unit, scale = UNITS.get(
            int(header["xyzt_units"]) % 8, ("unknown, taken as millimetres", 1.0)
        )
        affine_mm = affine if scale == 1 else np.diag((scale, scale, scale, 1.0)) @ affine
        check_affine(affine_mm, unit)
        header.get_slope_inter()  # fails where they are no numbers
        return NiftiFile(case, file, kind, header, shape, affine, affine_mm, file_bytes)


def read_voxels(nifti: NiftiFile) -> Array:
    """The voxels of a file (X, Y, Z) or (X, Y, Z, C). A compressed file is read to its end, where
    its checksum is."""
    with file_errors(nifti.case, nifti.file), open_stream(nifti.file) as stream:
        array: Array = np.asanyarray(ArrayProxy(stream, nifti.header))
        if is_compressed(nifti.file):
            stream.seek(nifti.header.get_data_offset() + nifti.voxel_bytes)
            check_rest(stream)
    return array


@contextmanager
def file_errors(case: str, file: Path) -> Iterator[None]:
    """What can go wrong with a file as an error that names it."""

    def fail(message: str, remedy: str) -> DataError:
        return DataError(Problem(case, str(file), message, remedy))

    try:
        with opening_errors(case, file):
            yield
    except NiftiError as error:
        raise fail(error.message, error.remedy) from None
    except DataError:
        raise
    except (OSError, EOFError, ValueError, OverflowError, HeaderDataError, zlib.error) as error:
        raise fail(f"it is damaged or cut short ({error})", "copy or download it again") from None


def is_compressed(file: Path) -> bool:
    return file.name.lower().endswith(".gz")


def open_stream(file: Path) -> BinaryIO:
    return gzip.open(file) if is_compressed(file) else file.open("rb")  # type: ignore[return-value]


def parse_header(stream: BinaryIO) -> tuple[type[nibabel.Nifti1Image], Any]:
    """The kind of file and its header, with the extensions that lie between header and voxels."""
    try:
        block = stream.read(KINDS[-1].header_class.sizeof_hdr)
    except gzip.BadGzipFile as error:
        raise NiftiError(f"it is not a NIfTI image ({error})", "replace the file") from None
    kind = next((kind for kind in KINDS if kind.header_class.may_contain_header(block)), None)
    if kind is None:
        raise NiftiError("it is not a NIfTI image", "replace the file")
    size = kind.header_class.sizeof_hdr
    header = kind.header_class.from_fileobj(io.BytesIO(block[:size]))
    if header["magic"].item() != header.single_magic:
        raise NiftiError(
            "its header says that the voxels are in another file", "store both in one .nii.gz file"
        )
    offset = float(header["vox_offset"])
    if not offset.is_integer() or offset < size + 4:
        message = (
            f"its header says that voxels begin at byte {offset:g}, inside the header of "
            f"{size + 4} bytes"
        )
        raise NiftiError(message, "correct vox_offset, or export the image again")
    if offset > size + 4 + MOST_EXTENSION_BYTES:
        message = f"its header says that voxels begin at byte {offset:.0f}"
        raise NiftiError(
            message, f"leave out extensions; at most {MOST_EXTENSION_BYTES:,} bytes are read"
        )
    between = (block + stream.read(max(0, int(offset) - len(block))))[size : int(offset)]
    header.extensions = Nifti1Extensions(parse_extensions(between, header.endianness))
    return kind, header


def parse_extensions(between: bytes, endianness: str) -> list[Nifti1Extension]:
    """What lies between header and voxels: a mark of 4 bytes, then extensions that each begin with
    size and code.

    nibabel's own reader follows sizes of 0 and less without an end.
    """
    extensions: list[Nifti1Extension] = []
    order = "<i4" if endianness == "<" else ">i4"
    place = 4
    while between[:1] != b"\0" and len(between) - place >= 16:
        size, code = np.frombuffer(between, order, 2, place).tolist()
        if size < 8 or place + size > len(between) or len(extensions) == MOST_EXTENSIONS:
            message = (
                f"its header extension {len(extensions) + 1} has {size} bytes, and "
                f"{len(between) - place} are left"
            )
            raise NiftiError(message, "export the image without header extensions")
        extensions.append(Nifti1Extension(code, between[place + 8 : place + size].rstrip(b"\0")))
        place += size
    return extensions


def check_voxel_type(header: Any) -> None:
    dtype = header.get_data_dtype()
    if dtype.kind not in "biuf":
        raise NiftiError(f"its voxels are of the type {dtype}", "store one real number per voxel")


def check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) < 3 or (len(shape) == 3 and shape[2] == 1):
        raise NiftiError(
            f"it is 2D (shape {shape}) where a volume is expected",
            "give the whole volume as one file",
        )
    if len(shape) > 4 or min(shape) < 1:
        raise NiftiError(f"it has the shape {shape}", "give a volume, with channels as fourth axis")


def check_length(file: Path, file_bytes: int, header: Any, shape: tuple[int, ...]) -> None:
    """Refuse a header that speaks of more than the file can hold; without compression also of
    less."""
    end = header.get_data_offset() + prod(shape) * header.get_data_dtype().itemsize
    most = HIGHEST_EXPANSION * file_bytes if is_compressed(file) else file_bytes
    if end > most:
        message = f"it is cut short, or its header is wrong: a shape of {shape} takes {end:,} bytes"
        raise NiftiError(f"{message}, and a file of {file_bytes:,} bytes holds at most {most:,}")
    if not is_compressed(file):
        with file.open("rb") as stream:
            stream.seek(end)
            check_rest(stream)


def check_rest(stream: BinaryIO) -> None:
    """Nothing but a little padding with zeros follows the last voxel."""
    rest = stream.read(MOST_PADDING + 1)
    if len(rest) > MOST_PADDING or rest.strip(b"\0"):
        message = "it is longer than its header says: more follows the last voxel"
        raise NiftiError(message, "correct the header's dimensions, or export the image again")


def check_affine(affine_mm: NDArray[np.float64], unit: str) -> None:
    if not is_regular(affine_mm):
        raise NiftiError(
            "its affine is singular: voxels have no size",
            "set the header's spacing and orientation",
        )
    wrong = describe_wrong_spacing(np.linalg.norm(affine_mm[:3, :3], axis=0).tolist())
    if wrong:
        raise NiftiError(
            f"{wrong} (the header's unit is {unit})",
            "correct the voxel sizes or the unit in the header",
        )


def describe_wrong_spacing(spacing_mm: Sequence[float]) -> str:
    """In which way sizes of voxels cannot be; "" if they can."""
    rounding = 1 + 1e-6
    if all(size * rounding >= SMALLEST_MM and size <= LARGEST_MM * rounding for size in spacing_mm):
        return ""
    sizes = " x ".join(f"{size:.4g}" for size in spacing_mm)
    return f"voxels are {sizes} mm, and from {SMALLEST_MM:g} to {LARGEST_MM:g} mm are allowed"


def is_regular(affine: NDArray[np.float64]) -> bool:
    """Whether an affine gives every axis a direction of its own."""
    if not np.isfinite(affine).all():
        return False
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(affine[:3, :3], axis=0)
    if not lengths.all() or not np.isfinite(lengths).all():
        return False
    if abs(np.linalg.det(affine[:3, :3] / lengths)) < 1e-4:
        return False
    return not np.isnan(io_orientation(affine)).any()
