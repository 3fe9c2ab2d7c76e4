"""Single voxels so far above all others that a z-score is about them alone.

They are named, not clipped: a limit that suits one modality cuts what is real in another (contrast
agent, PET, ADC), and would change what trained models see of ordinary images. A preset can clip
channels where that is known to be right.
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
HIGH_PERCENTILE = 99.9  # of the voxels that are not zero
SPIKE = 50  # times that percentile; in the scans that were looked at no voxel is above 4 times
MOST_SAMPLES = 10**6  # from which the percentile is taken


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
            "a z-score makes the rest of the image flat; remove the spike, or set data.clip in the "
            "preset you train"
        )
        problems.append(Problem(case, "", message, remedy, "warning"))
    return problems


def high_value(array: Array) -> float:
    """What nearly all voxels that are not zero stay below; infinite where there are none."""
    sample = array.flat[:: max(1, array.size // MOST_SAMPLES)]
    sizes = np.abs(sample[sample != 0])
    return float(np.percentile(sizes, HIGH_PERCENTILE, method="lower")) if sizes.size else np.inf
