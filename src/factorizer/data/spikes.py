"""Spikes: single voxels so far above all others that they alone determine a z-score.

They are reported, not clipped. A limit that suits one modality removes real signal in another
(contrast agent, PET, ADC), and it would change how trained models see ordinary images. A preset can
clip channels if that is known to be right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factorizer.data.cases import Problem
from factorizer.data.images import Volume, restore_orientation
from factorizer.words import count

Array = NDArray[Any]
HIGH_PERCENTILE = 99.9  # of the non-zero voxels
SPIKE = 50  # a spike is so many times that percentile; ordinary scans stay below 4 times
MOST_SAMPLES = 10**6  # voxels from which the percentile is taken


def note_spikes(case: str, channels: Sequence[str], volume: Volume) -> list[Problem]:
    """A warning for each channel with a few voxels far above the others."""
    problems = []
    for channel, array in zip(channels, volume.array, strict=True):
        usual = high_value(array)
        peak = max(float(array.max()), -float(array.min()))
        if peak <= SPIKE * usual:
            continue
        spikes = np.abs(array) > np.float64(SPIKE * usual)
        in_file = restore_orientation((np.abs(array) == peak)[None], volume.grid)[0]
        place = tuple(np.argwhere(in_file)[0].tolist())
        message = (
            f"channel {channel} has {count(int(spikes.sum()), 'voxel')} more than {SPIKE} times as "
            f"large as nearly all others: {peak:.4g} at voxel {place}, and {HIGH_PERCENTILE} % are "
            f"below {usual:.4g}"
        )
        remedy = (
            "a z-score would flatten the rest of the image; remove the spike, or set data.clip in "
            "the preset for training"
        )
        problems.append(Problem(case, "", message, remedy, "warning"))
    return problems


def high_value(array: Array) -> float:
    """The value that nearly all non-zero voxels stay below; infinite if all voxels are zero."""
    sample = array.flat[:: max(1, array.size // MOST_SAMPLES)]
    sizes = np.abs(sample[sample != 0])
    return float(np.percentile(sizes, HIGH_PERCENTILE, method="lower")) if sizes.size else np.inf
