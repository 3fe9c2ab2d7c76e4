"""Cases without some channels, for models that were trained with lost channels.

A missing channel becomes zero after normalization, as in training. Everything before depends only
on the channels that exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from factorizer.data.capacity import memory_errors
from factorizer.data.cases import Case, Problem
from factorizer.data.images import Volume
from factorizer.data.preprocess import Prepared, Preprocessing, prepare_case


def note_missing(name: str, missing: Sequence[str]) -> list[Problem]:
    """A warning if a case lacks channels."""
    if not missing:
        return []
    are, they_are = ("is", "it is") if len(missing) == 1 else ("are", "they are")
    message = f"{', '.join(missing)} {are} missing"
    remedy = f"{they_are} taken as zero, which the model was trained for"
    return [Problem(name, "", message, remedy, "warning")]


def prepare_incomplete(
    case: Case, preprocessing: Preprocessing, *, channels: Sequence[str]
) -> Prepared:
    """Read and preprocess a case that may lack some of the channels, but not all."""
    present = [channel for channel in channels if channel in case.channels]
    if not present:
        return prepare_case(case, preprocessing, channels=channels)  # says what is missing
    some = keep_channels(preprocessing, present, channels)
    prepared = prepare_case(case, some, channels=present)
    with memory_errors(case.name):
        return fill_channels(prepared, present, channels)


def apply_incomplete(
    volume: Volume, preprocessing: Preprocessing, present: Sequence[str], channels: Sequence[str]
) -> Prepared:
    """Preprocess an image in memory that has the channels `present`, in the order of all."""
    some = keep_channels(preprocessing, present, channels)
    return fill_channels(some.apply(volume, channels=present), present, channels)


def keep_channels(
    preprocessing: Preprocessing, present: Sequence[str], channels: Sequence[str]
) -> Preprocessing:
    """The preprocessing of some of the channels alone."""
    if preprocessing.clip is None:
        return preprocessing
    ranges = dict(zip(channels, preprocessing.clip, strict=True))
    return replace(preprocessing, clip=tuple(ranges[channel] for channel in present))


def fill_channels(prepared: Prepared, present: Sequence[str], channels: Sequence[str]) -> Prepared:
    """An image with the channels `present` becomes one with all channels. The others are zero."""
    if len(present) == len(channels):
        return prepared
    image = np.zeros((len(channels), *prepared.image.shape[1:]), np.float32)
    for channel, array in zip(present, prepared.image, strict=True):
        image[list(channels).index(channel)] = array
    return replace(prepared, image=image)
