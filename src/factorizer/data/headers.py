"""How many channels a file holds, from its header alone."""

from __future__ import annotations

from pathlib import Path

from factorizer.data.cases import DataError
from factorizer.data.images import open_image
from factorizer.data.naming import MOST_CHANNELS, is_picture, unnamed_channels


def name_channels(file: Path) -> tuple[str, ...]:
    """Names for the channels of a file that nobody named: colours of a picture, numbers of a
    volume."""
    return picture_channels(file) if is_picture(file) else unnamed_channels(count_channels(file))


def picture_channels(file: Path) -> tuple[str, ...]:
    return ("red", "green", "blue") if count_channels(file) == 3 else ("grey",)


def count_channels(file: Path) -> int:
    """1 or 3 of a picture, the fourth axis of a volume. What cannot be opened is reported when it
    is read."""
    try:
        image = open_image("", file)
    except DataError:
        return 3 if is_picture(file) else 1
    count = image.shape[-1] if len(image.shape) > image.grid.dims else 1
    return count if count <= MOST_CHANNELS else 1
