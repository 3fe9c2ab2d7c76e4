"""Reading 2D images: PNG, JPEG and TIFF of a reasonable size."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from factorizer.data.capacity import opening_errors
from factorizer.data.cases import DataError, Problem

if TYPE_CHECKING:
    from PIL import Image

Array = NDArray[Any]
FORMATS = ("PNG", "JPEG", "TIFF")  # PIL would try many more, and run Ghostscript for PostScript
COLORED = ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB")
OPENING = Lock()  # all threads share the filters of warnings


def open_picture(file: Path) -> Image.Image:
    """Open an image without reading its pixels. An `OSError` says what is wrong with it."""
    from PIL import Image, UnidentifiedImageError

    if file.exists() and not file.is_file():
        raise OSError("it is not a regular file")
    with OPENING, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            return Image.open(file, formats=FORMATS)
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            most = f"{Image.MAX_IMAGE_PIXELS:,}"
            raise OSError(f"it has more than {most} pixels; make it smaller") from None
        except UnidentifiedImageError:
            raise OSError("it is not a PNG, JPEG or TIFF file") from None


@contextmanager
def picture_errors(case: str, file: Path) -> Iterator[None]:
    """Turn errors of the reader into a `DataError` that names the file."""
    try:
        with opening_errors(case, file):
            yield
    except DataError:
        raise
    except Exception as error:  # PIL's readers trust the file and raise errors of every kind
        message = f"it is not a readable image ({error})"
        raise DataError(Problem(case, str(file), message, "replace the file")) from None


def picture_shape(case: str, file: Path) -> tuple[int, ...]:
    """The shape (H, W), or (H, W, 3) in colour. No pixel is read."""
    with picture_errors(case, file), open_picture(file) as picture:
        width, height = picture.size
        return (height, width, 3) if picture.mode in COLORED else (height, width)


def read_picture(case: str, file: Path) -> Array:
    """The pixels (H, W), or (H, W, 3) in colour."""
    with picture_errors(case, file), open_picture(file) as picture:
        if picture.mode in COLORED:
            return np.asarray(picture.convert("RGB"))
        if picture.mode in ("1", "LA"):
            return np.asarray(picture.convert("L"))
        return np.asarray(picture)  # one channel of any depth


def read_mask(case: str, file: Path) -> Array:
    """A mask (H, W) as uint8.

    The numbers of a palette are label values. In a mask in colour, all pixels except black are
    foreground; in a JPEG, all pixels that are brighter than half.
    """
    array = read_palette(case, file)
    if array is None:
        array = read_picture(case, file)
    if file.suffix.lower() in (".jpg", ".jpeg"):  # its values are not exact
        array = array > array.max() / 2
    if array.ndim == 3:
        array = np.any(array, axis=-1)
    return (array if are_labels(array) else np.not_equal(array, 0)).astype(np.uint8)


def read_palette(case: str, file: Path) -> Array | None:
    """The numbers of the palette (H, W); None if the image has no palette."""
    with picture_errors(case, file), open_picture(file) as picture:
        if picture.mode in ("P", "PA"):
            return np.asarray(picture.convert("P"))
        return None


def are_labels(array: Array) -> bool:
    """Whether all values are whole numbers from 0 to 255."""
    with np.errstate(invalid="ignore"):
        in_range = array.min(initial=0) >= 0 and array.max(initial=0) <= 255
        return bool(in_range and not np.any(array % 1))
