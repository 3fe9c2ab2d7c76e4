"""Names of files: what they say about the kind of file, the case, the channel and the patient."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

NIFTI = (".nii.gz", ".nii")
IMAGES_2D = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
# Endings of masks that lie beside their 2D images, and of labels in a folder of their own.
MASK_SUFFIXES = ("_1stHO", "_mask", "_seg", "_label", "_manual1", "_gt")
LABEL_SUFFIXES = (*MASK_SUFFIXES, "_labels", "_masks", "_msk", "-label", "-seg", "-mask")
NUMBERED = re.compile(r"(.+)_(\d{4})")  # CASE_0000
SEPARATORS = "_-."
MOST_CHANNELS = 64

# The canonical name of each channel, by the spellings (in lower case) that data sets use.
CHANNEL_NAMES = {
    "dwi": "DWI",
    "adc": "ADC",
    "flair": "FLAIR",
    "t2f": "FLAIR",
    "t1": "T1",
    "t1w": "T1",
    "t1n": "T1",
    "t1gd": "T1Gd",
    "t1ce": "T1Gd",
    "t1c": "T1Gd",
    "t2": "T2",
    "t2w": "T2",
}


def canonical_channel(name: str) -> str:
    """T1Gd for t1ce, and so on. A name that is not known stays as it is."""
    stripped = name.strip()
    return CHANNEL_NAMES.get(stripped.lower(), stripped)


def unique_channels(names: Iterable[str]) -> tuple[str, ...]:
    """Canonical names. A name that occurs again gets a number: CT, CT_1."""
    unique: list[str] = []
    for name in map(canonical_channel, names):
        earlier = [other for other in unique if other == name or other.startswith(f"{name}_")]
        unique.append(f"{name}_{len(earlier)}" if name in unique else name)
    return tuple(unique)


def unnamed_channels(count: int) -> tuple[str, ...]:
    """Names for channels that nobody named. Only their order tells which is which."""
    return ("image",) if count == 1 else tuple(f"image{index}" for index in range(count))


def strip_ending(name: str) -> str:
    """A file's name without its ending. The ending .nii.gz counts as one."""
    for ending in NIFTI:
        if name.endswith(ending):
            return name.removesuffix(ending)
    return Path(name).stem


def is_image(file: Path) -> bool:
    """Whether the file's ending is that of an image."""
    return file.name.lower().endswith((*NIFTI, *IMAGES_2D))


def is_picture(file: Path) -> bool:
    """Whether the file's ending is that of a 2D image."""
    return file.suffix.lower() in IMAGES_2D


def splits(stem: str) -> Iterator[tuple[str, str]]:
    """All ways to split a name into a case and an ending. The longest case comes first."""
    for place in range(len(stem) - 2, 0, -1):
        if stem[place] in SEPARATORS:
            yield stem[:place], stem[place + 1 :]


def split_channel(stem: str, channels: Sequence[str]) -> tuple[str, str] | None:
    """The case and the channel of a file: p1 and DWI for p1_dwi.

    None if the name does not end in one of `channels`.
    """
    known = {canonical_channel(channel).lower(): channel for channel in channels}
    for case, ending in splits(stem):
        channel = known.get(canonical_channel(ending).lower())
        if channel is not None:
            return case, channel
    return None


def strip_mask_suffix(stem: str, suffixes: Sequence[str] = MASK_SUFFIXES) -> str:
    """The name of the image that a mask belongs to: p1 for p1_seg, in upper or lower case."""
    for suffix in suffixes:
        if suffix and stem.lower().endswith(suffix.lower()):
            return stem[: -len(suffix)] or stem
    return stem


def patient_of(case: str) -> str:
    """The patient in a BIDS name: sub-01 for sub-01_ses-02. Empty for other names."""
    match = re.match(r"(sub-[A-Za-z0-9]+)_", case)
    return match[1] if match else ""


def patient_of_eye(case: str) -> str:
    """The patient of a photograph of an eye: NAME12 for NAME12L and NAME12R."""
    return re.sub(r"(?<=\d)[LR]$", "", case)
