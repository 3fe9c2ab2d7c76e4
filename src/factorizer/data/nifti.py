"""Reading NIfTI files: first the header, then the voxels.

A header decides how much is read, and where. It is not believed if the file cannot hold as much.
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
# size of a voxel: microscopes have 0.01 mm, localizer scans 20 mm
SMALLEST_MM = 0.001
LARGEST_MM = 100.0
# code -> unit and its length in mm
UNITS = {1: ("metres", 1000.0), 2: ("millimetres", 1.0), 3: ("micrometres", 0.001)}
UNKNOWN_UNIT = ("unknown, taken as millimetres", 1.0)
HIGHEST_EXPANSION = 1032  # gzip cannot compress better
MOST_EXTENSION_BYTES = 16 * 2**20
MOST_EXTENSIONS = 1000
MOST_PADDING = 4096  # bytes of zeros after the last voxel


class NiftiError(FactorizerError):
    """What is wrong with a file, and what to do."""

    def __init__(self, message: str, remedy: str = "copy or download it again") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True, eq=False)
class NiftiFile:
    """A NIfTI file whose header was read and checked. Its voxels were not read."""

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
        """The size of the voxels as stored, before compression."""
        return prod(self.shape) * int(self.header.get_data_dtype().itemsize)

    @property
    def is_scaled(self) -> bool:
        slope, intercept = self.header.get_slope_inter()
        return slope not in (None, 1) or intercept not in (None, 0)

    @property
    def memory_bytes(self) -> int:
        """The memory that `read_voxels` needs. Scaled voxels become float64."""
        float64_bytes = 8 * prod(self.shape) if self.is_scaled else 0
        return self.voxel_bytes + float64_bytes


def read_header(case: str, file: Path) -> NiftiFile:
    """Read and check the header of a file with one or several volumes."""
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
        unit, scale = UNITS.get(int(header["xyzt_units"]) % 8, UNKNOWN_UNIT)
        affine_mm = affine if scale == 1 else np.diag((scale, scale, scale, 1.0)) @ affine
        check_affine(affine_mm, unit)
        header.get_slope_inter()  # fails if they are not numbers
        return NiftiFile(case, file, kind, header, shape, affine, affine_mm, file_bytes)


def read_voxels(nifti: NiftiFile) -> Array:
    """The voxels of a file (X, Y, Z) or (X, Y, Z, C).

    A compressed file is read to its end, where its checksum is.
    """
    with file_errors(nifti.case, nifti.file), open_stream(nifti.file) as stream:
        array: Array = np.asanyarray(ArrayProxy(stream, nifti.header))
        if is_compressed(nifti.file):
            stream.seek(nifti.header.get_data_offset() + nifti.voxel_bytes)
            check_rest(stream)
    return array


@contextmanager
def file_errors(case: str, file: Path) -> Iterator[None]:
    """Turn errors of the reader into a `DataError` that names the file."""

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
    """The kind of file, and its header with the extensions that follow it."""
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
        message = "its header says that the voxels are in another file"
        raise NiftiError(message, "store both in one .nii.gz file")
    offset = check_offset(header, size)
    between = (block + stream.read(max(0, offset - len(block))))[size:offset]
    header.extensions = Nifti1Extensions(parse_extensions(between, header.endianness))
    return kind, header


def check_offset(header: Any, size: int) -> int:
    """The byte at which the voxels begin, after a header of `size` bytes and its extensions."""
    offset = float(header["vox_offset"])
    if not offset.is_integer() or offset < size + 4:
        inside = f"inside the header of {size + 4} bytes"
        message = f"its header says that voxels begin at byte {offset:g}, {inside}"
        raise NiftiError(message, "correct vox_offset, or export the image again")
    if offset > size + 4 + MOST_EXTENSION_BYTES:
        message = f"its header says that voxels begin at byte {offset:.0f}"
        remedy = f"remove header extensions; at most {MOST_EXTENSION_BYTES:,} bytes are read"
        raise NiftiError(message, remedy)
    return int(offset)


def parse_extensions(between: bytes, endianness: str) -> list[Nifti1Extension]:
    """The extensions between header and voxels.

    A mark of 4 bytes comes first. Each extension begins with its size and its code. nibabel's own
    reader never ends if a size is 0 or negative.
    """
    extensions: list[Nifti1Extension] = []
    order = "<i4" if endianness == "<" else ">i4"
    place = 4
    while between[:1] != b"\0" and len(between) - place >= 16:
        size, code = np.frombuffer(between, order, 2, place).tolist()
        if size < 8 or place + size > len(between) or len(extensions) == MOST_EXTENSIONS:
            left = len(between) - place
            message = (
                f"header extension {len(extensions) + 1} has {size} bytes, and {left} are left"
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
        message = f"it is 2D (shape {shape}), and a volume is expected"
        raise NiftiError(message, "give the whole volume as one file")
    if len(shape) > 4 or min(shape) < 1:
        raise NiftiError(
            f"it has the shape {shape}", "give a volume, with channels as the fourth axis"
        )


def check_length(file: Path, file_bytes: int, header: Any, shape: tuple[int, ...]) -> None:
    """Refuse a header that announces more than the file can hold.

    In a file without compression, refuse also a header that announces less.
    """
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
    """Refuse a file in which more than a little padding with zeros follows the last voxel."""
    rest = stream.read(MOST_PADDING + 1)
    if len(rest) > MOST_PADDING or rest.strip(b"\0"):
        message = "it is longer than its header says: more follows the last voxel"
        raise NiftiError(message, "correct the header's dimensions, or export the image again")


def check_affine(affine_mm: NDArray[np.float64], unit: str) -> None:
    if not is_regular(affine_mm):
        message = "its affine is singular: voxels have no size"
        raise NiftiError(message, "set the header's spacing and orientation")
    wrong = describe_wrong_spacing(np.linalg.norm(affine_mm[:3, :3], axis=0).tolist())
    if wrong:
        message = f"{wrong} (the header's unit is {unit})"
        raise NiftiError(message, "correct the voxel sizes or the unit in the header")


def describe_wrong_spacing(spacing_mm: Sequence[float]) -> str:
    """What is wrong with voxel sizes; "" if they are possible."""
    rounding = 1 + 1e-6
    low, high = SMALLEST_MM / rounding, LARGEST_MM * rounding
    if all(low <= size <= high for size in spacing_mm):
        return ""
    sizes = " x ".join(f"{size:.4g}" for size in spacing_mm)
    return f"voxels are {sizes} mm, and from {SMALLEST_MM:g} to {LARGEST_MM:g} mm are allowed"


def is_regular(affine: NDArray[np.float64]) -> bool:
    """Whether an affine gives each axis a length and its own direction."""
    if not np.isfinite(affine).all():
        return False
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(affine[:3, :3], axis=0)
    if not lengths.all() or not np.isfinite(lengths).all():
        return False
    if abs(np.linalg.det(affine[:3, :3] / lengths)) < 1e-4:
        return False
    return not np.isnan(io_orientation(affine)).any()
