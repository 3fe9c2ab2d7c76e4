"""The number and the names of the channels in a file, from its header alone."""

from __future__ import annotations

from pathlib import Path

from factorizer.data.cases import DataError
from factorizer.data.images import open_image
from factorizer.data.naming import MOST_CHANNELS, is_picture, unnamed_channels


def name_channels(file: Path) -> tuple[str, ...]:
    """Names for the channels of a file: colours for a 2D image, numbers for a volume."""
    if is_picture(file):
        return name_colours(file)
    return unnamed_channels(count_channels(file))


def name_colours(file: Path) -> tuple[str, ...]:
    """The colours of a 2D image."""
    return ("red", "green", "blue") if count_channels(file) == 3 else ("grey",)


def count_channels(file: Path) -> int:
    """The number of channels: 1 or 3 in a 2D image, the length of the fourth axis of a volume.

    A file that cannot be opened gets the usual number. Reading it later reports the problem.
    """
    try:
        image = open_image("", file)
    except DataError:
        return 3 if is_picture(file) else 1
    has_channels = len(image.shape) > image.grid.dims
    count = image.shape[-1] if has_channels else 1
    return count if count <= MOST_CHANNELS else 1
