"""What the names of files say: kinds of files, cases, channels and their spellings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

NIFTI = (".nii.gz", ".nii")
IMAGES_2D = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
MASK_SUFFIXES = ("_1stHO", "_mask", "_seg", "_label", "_manual1", "_gt")
NUMBERED = re.compile(r"(.+)_(\d{4})")
SEPARATORS = "_-."
MOST_CHANNELS = 64

# what the same MRI contrast is called in one place and another
SPELLINGS = {
    "FLAIR": ("flair", "t2f"),
    "T1": ("t1", "t1w", "t1n"),
    "T1Gd": ("t1gd", "t1ce", "t1c"),
    "T2": ("t2", "t2w"),
}
CHANNEL_NAMES = {"dwi": "DWI", "adc": "ADC"} | {
    text: name for name, texts in SPELLINGS.items() for text in texts
}


def canonical_channel(name: str) -> str:
    return CHANNEL_NAMES.get(str(name).strip().lower(), str(name).strip())


def unique_channels(names: Iterable[str]) -> tuple[str, ...]:
    """Canonical names; one that comes again is numbered (CT, CT_1)."""
    unique: list[str] = []
    for name in map(canonical_channel, names):
        again = sum(other == name or other.startswith(f"{name}_") for other in unique)
        unique.append(f"{name}_{again}" if name in unique else name)
    return tuple(unique)


def unnamed_channels(count: int) -> tuple[str, ...]:
    """What channels are called that nobody named: they are known by their order alone."""
    return ("image",) if count == 1 else tuple(f"image{index}" for index in range(count))


def strip_ending(name: str) -> str:
    """A file's name without .nii.gz or another ending."""
    return next(
        (name.removesuffix(ending) for ending in NIFTI if name.endswith(ending)), Path(name).stem
    )


def is_image(file: Path) -> bool:
    """Whether a file is named as an image."""
    return file.name.lower().endswith((*NIFTI, *IMAGES_2D))


def is_picture(file: Path) -> bool:
    """Whether a file is named as a 2D image."""
    return file.suffix.lower() in IMAGES_2D


def splits(stem: str) -> Iterator[tuple[str, str]]:
    """Where a name can be divided into a case and what follows it, the longest case first."""
    for place in range(len(stem) - 2, 0, -1):
        if stem[place] in SEPARATORS:
            yield stem[:place], stem[place + 1 :]


def split_channel(stem: str, channels: Sequence[str]) -> tuple[str, str] | None:
    """The case and the channel that a file's name ends in (p1_dwi: p1 and DWI), if it is one of
    `channels`."""
    known = {canonical_channel(channel).lower(): channel for channel in channels}
    for case, ending in splits(stem):
        channel = known.get(canonical_channel(ending).lower())
        if channel is not None:
            return case, channel
    return None


def strip_mask_suffix(stem: str, suffixes: Sequence[str] = MASK_SUFFIXES) -> str:
    """The name of the image that a label is named after: p1 of p1_seg, in capitals or not."""
    for suffix in suffixes:
        if suffix and stem.lower().endswith(suffix.lower()):
            return stem[: -len(suffix)] or stem
    return stem


def patient_of(case: str) -> str:
    """Whose case it is where BIDS names say so: sub-01 of sub-01_ses-02; otherwise nothing."""
    match = re.match(r"(sub-[A-Za-z0-9]+)_", case)
    return match[1] if match else ""
