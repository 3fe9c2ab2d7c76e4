"""What a channel shows: CT, a scan with air at zero, or values of both signs.

The declared name decides first, as in nnU-Net. Otherwise the bulk of the voxels decides. Single
voxels, such as noise below zero in an ADC map, decide nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["CT", "air at zero", "signed"]

CT_NAMES = {"ct", "cta", "cbct", "cect", "hrct", "ldct", "ncct"}
T1_NAMES = {"t1", "t1w", "t1n", "t1c", "t1ce", "t1gd"}
T2_NAMES = {"t2", "t2w", "t2f", "flair", "pd", "pdw"}
OTHER_MRI_NAMES = {"mri", "mr", "dwi", "adc", "swi", "tof", "mra", "trace"}
MRI_NAMES = T1_NAMES | T2_NAMES | OTHER_MRI_NAMES
PET_NAMES = {"pet", "suv"}

# of a channel's range: a file of scaled integers may store zeros so far from zero
ROUNDING = 2e-5
# of a channel's large values: interpolation and noise do not reach so far below zero
CLEARLY = 0.05
CT_AIR = (-1100.0, -850.0)  # Hounsfield units
LEAST_AIR = 0.01  # share of voxels in the air, for a CT scan without a name
LEAST_ZEROS = 0.1  # share of voxels; so many zeros are not a coincidence
LEAST_BELOW = 0.05  # share of voxels below zero, if zero is the value of a tissue


@dataclass(frozen=True)
class Intensities:
    """The shares of a channel's voxels in some ranges."""

    zero: float
    below_zero: float  # clearly
    ct_air: float  # in the range of air in CT
    below_ct: float  # below that range, without the lowest value, which is often padding


@dataclass(frozen=True)
class Judgement:
    """What a channel is taken for, and the reason."""

    kind: Kind
    reason: str


def describe_intensities(array: NDArray[Any]) -> Intensities:
    """The shares of a channel's voxels in the ranges of `Intensities`."""
    lowest, highest = float(array.min()), float(array.max())
    is_zero = np.abs(array) <= ROUNDING * (highest - lowest)
    others = np.abs(array[~is_zero])
    large = float(np.percentile(others, 99)) if others.size else 0.0
    in_air = (array >= CT_AIR[0]) & (array <= CT_AIR[1])
    below_ct = (array < CT_AIR[0]) & (array > lowest)
    below_zero = (array < -CLEARLY * large) & ~is_zero
    return Intensities(
        zero=float(np.mean(is_zero)),
        below_zero=float(np.mean(below_zero)),
        ct_air=float(np.mean(in_air)),
        below_ct=float(np.mean(below_ct)),
    )


def judge_channel(name: str, cases: Sequence[Intensities]) -> Judgement:
    """What a channel shows, by its name, otherwise by the medians of its shares over cases."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    zero = median(case.zero for case in cases)
    below_zero = median(case.below_zero for case in cases)
    ct_air = median(case.ct_air for case in cases)
    below_ct = median(case.below_ct for case in cases)
    looks_like_ct = ct_air >= LEAST_AIR and below_ct < LEAST_AIR
    if words & CT_NAMES:
        return Judgement("CT", "CT, by its name")
    if words & (MRI_NAMES | PET_NAMES):
        kind = "MRI" if words & MRI_NAMES else "PET"
        reason = f"{kind}, by its name: zero is the air around the scan"
        if looks_like_ct:
            reason += f", although {percent(ct_air)} of voxels have the values of air in CT"
            reason += "; name it CT if it is"
        return Judgement("air at zero", reason)
    unless = "if that is wrong, name the channel CT, MRI or PET"
    if looks_like_ct:
        span = f"{CT_AIR[0]:.0f} to {CT_AIR[1]:.0f}"
        why = f"{percent(ct_air)} of voxels are from {span}, like air in CT"
        return Judgement("CT", f"CT, because {why}; {unless}")
    if zero >= LEAST_ZEROS:
        why = f"{percent(zero)} of voxels are zero, like air"
        return Judgement("air at zero", f"MRI or similar, because {why}; {unless}")
    if below_zero >= LEAST_BELOW:
        why = f"{percent(below_zero)} of voxels are clearly below zero and {percent(zero)} are zero"
        reason = f"values of both signs, because {why}: zero is the value of a tissue; {unless}"
        return Judgement("signed", reason)
    why = f"only {percent(below_zero)} of voxels are clearly below zero"
    return Judgement("air at zero", f"MRI or similar, because {why}; {unless}")


def percent(share: float) -> str:
    """A share as text: 50 %, 0.02 %."""
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"
