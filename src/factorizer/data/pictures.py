"""Reading 2D pictures: PNG, JPEG and TIFF, of a size that can be meant."""

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
FORMATS = ("PNG", "JPEG", "TIFF")  # PIL would try many more, and start Ghostscript for PostScript
COLORED = ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB")
OPENING = Lock()  # filters of warnings belong to all threads


def open_picture(file: Path) -> Image.Image:
    """A picture whose pixels are not read yet; an `OSError` says what is wrong with it."""
    from PIL import Image, UnidentifiedImageError

    if file.exists() and not file.is_file():
        raise OSError("it is not a regular file")
    with OPENING, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            return Image.open(file, formats=FORMATS)
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            raise OSError(
                f"it has more than {Image.MAX_IMAGE_PIXELS:,} pixels; make it smaller"
            ) from None
        except UnidentifiedImageError:
            raise OSError("it is not a PNG, JPEG or TIFF file") from None


@contextmanager
def picture_errors(case: str, file: Path) -> Iterator[None]:
    """What can go wrong with a picture as an error that names it."""
    try:
        with opening_errors(case, file):
            yield
    except DataError:
        raise
    except Exception as error:  # of every kind: PIL's readers trust what they read
        message = f"it is no readable picture ({error})"
        raise DataError(Problem(case, str(file), message, "replace the file")) from None


def picture_shape(case: str, file: Path) -> tuple[int, ...]:
    """(H, W), or (H, W, 3) for a coloured picture; no pixel is read."""
    with picture_errors(case, file), open_picture(file) as picture:
        width, height = picture.size
        return (height, width, 3) if picture.mode in COLORED else (height, width)


def read_picture(case: str, file: Path) -> Array:
    """(H, W), or (H, W, 3) for a coloured picture."""
    with picture_errors(case, file), open_picture(file) as picture:
        if picture.mode in COLORED:
            return np.asarray(picture.convert("RGB"))
        return np.asarray(
            picture.convert("L") if picture.mode in ("1", "LA") else picture
        )  # one channel of any depth


def read_mask(case: str, file: Path) -> Array:
    """(H, W) as uint8. A coloured mask is foreground wherever it is not black, a JPEG wherever it
    is brighter than half; the numbers of a palette are values."""
    with picture_errors(case, file), open_picture(file) as picture:
        has_palette = picture.mode in ("P", "PA")
        array = np.asarray(picture.convert("P")) if has_palette else None
    array = read_picture(case, file) if array is None else array
    if file.suffix.lower() in (".jpg", ".jpeg"):  # values are only about right
        array = array > array.max() / 2
    array = np.any(array, axis=-1) if array.ndim == 3 else array
    with np.errstate(invalid="ignore"):
        are_labels = (
            array.min(initial=0) >= 0 and array.max(initial=0) <= 255 and not np.any(array % 1)
        )
    return (array if are_labels else np.not_equal(array, 0)).astype(np.uint8)
