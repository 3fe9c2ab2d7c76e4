"""How many channels a file holds, from its first bytes alone."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

from factorizer.data.naming import MOST_CHANNELS, is_picture, unnamed_channels
from factorizer.data.pictures import open_picture

NIFTI_AXES = {348: (40, "8h"), 540: (16, "8q")}  # size of the header: where its axes are, and their type
GREY = ("1", "L", "LA", "F")


def name_channels(file: Path) -> tuple[str, ...]:
    """Names for the channels of a file that nobody named: colours of a picture, numbers of a volume."""
    return picture_channels(file) if is_picture(file) else unnamed_channels(count_channels(file))


def picture_channels(file: Path) -> tuple[str, ...]:
    return ("red", "green", "blue") if count_channels(file) == 3 else ("grey",)


def count_channels(file: Path) -> int:
    """1 or 3 of a picture, the fourth axis of a volume. What cannot be opened is reported when it is read."""
    return count_colours(file) if is_picture(file) else count_volumes(file)


def count_colours(file: Path) -> int:
    try:
        with open_picture(file) as picture:
            return 1 if picture.mode in GREY or picture.mode.startswith("I") else 3
    except Exception:  # of every kind, as PIL's readers trust what they read
        return 3


def count_volumes(file: Path) -> int:
    """The fourth axis of a NIfTI file; 1 where there is none, or where it cannot be."""
    try:
        with gzip.open(file) if file.name.lower().endswith(".gz") else file.open("rb") as stream:
            start = stream.read(max(NIFTI_AXES))
    except (OSError, EOFError, zlib.error):
        return 1
    for size, (place, form) in NIFTI_AXES.items():
        for order in "<>":
            if len(start) >= size and struct.unpack_from(f"{order}i", start)[0] == size:
                number, *axes = struct.unpack_from(order + form, start, place)
                return axes[3] if number == 4 and 0 < axes[3] <= MOST_CHANNELS else 1
    return 1
