"""What a channel shows: CT, a scan with air at zero, or values of both signs.

The declared name decides first, as in nnU-Net. Otherwise it is where the mass of the voxels lies:
single voxels, such as noise below zero in an ADC map, decide nothing.
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
MRI_NAMES = {
    "mri",
    "mr",
    "t1",
    "t1w",
    "t1n",
    "t1c",
    "t1ce",
    "t1gd",
    "t2",
    "t2w",
    "t2f",
    "flair",
    "pd",
    "pdw",
}
MRI_NAMES |= {"dwi", "adc", "swi", "tof", "mra", "trace"}
PET_NAMES = {"pet", "suv"}

ROUNDING = (
    2e-5  # of a channel's range: so far a file of scaled integers may put its zeros from zero
)
CLEARLY = (
    0.05  # below zero, as a share of the channel's large values: interpolation and noise stay above
)
CT_AIR = (-1100.0, -850.0)  # Hounsfield units
LEAST_AIR = 0.01  # of the voxels of a CT scan without a name
LEAST_ZEROS = 0.1  # of the voxels: so often one value is no coincidence
LEAST_BELOW = 0.05  # of the voxels, where zero is a tissue


@dataclass(frozen=True)
class Intensities:
    """Where the voxels of a channel lie, as shares of all of them."""

    zero: float
    below_zero: float  # clearly
    ct_air: float  # where air lies in CT
    below_ct: float  # under that, without the lowest value, which is often padding


@dataclass(frozen=True)
class Judgement:
    """What a channel is taken for, and why."""

    kind: Kind
    reason: str


def describe_intensities(array: NDArray[Any]) -> Intensities:
    """The shares of a channel's voxels."""
    lowest, highest = float(array.min()), float(array.max())
    is_zero = np.abs(array) <= ROUNDING * (highest - lowest)
    others = np.abs(array[~is_zero])
    large = float(np.percentile(others, 99)) if others.size else 0.0
    in_air = (array >= CT_AIR[0]) & (array <= CT_AIR[1])
    below_ct = (array < CT_AIR[0]) & (array > lowest)
    below_zero = (array < -CLEARLY * large) & ~is_zero
    return Intensities(*(float(np.mean(mask)) for mask in (is_zero, below_zero, in_air, below_ct)))


def judge_channel(name: str, cases: Sequence[Intensities]) -> Judgement:
    """What a channel shows, by its name and by the medians over cases."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    zero, below_zero, ct_air, below_ct = (
        median(getattr(case, field) for case in cases)
        for field in ("zero", "below_zero", "ct_air", "below_ct")
    )
    looks_like_ct = ct_air >= LEAST_AIR and below_ct < LEAST_AIR
    if words & CT_NAMES:
        return Judgement("CT", "CT, by its name")
    if words & (MRI_NAMES | PET_NAMES):
        kind = "MRI" if words & MRI_NAMES else "PET"
        doubt = (
            f", although {percent(ct_air)} of voxels lie where CT has air; name it CT if it is"
            if looks_like_ct
            else ""
        )
        return Judgement(
            "air at zero", f"{kind}, by its name: zero is the air around the scan{doubt}"
        )
    unless = "if that is wrong, give the channel its name (CT, MRI, PET)"
    if looks_like_ct:
        span = f"{CT_AIR[0]:.0f} to {CT_AIR[1]:.0f}"
        return Judgement(
            "CT",
            f"CT, because {percent(ct_air)} of voxels lie at {span}, as air does in CT; {unless}",
        )
    if zero >= LEAST_ZEROS:
        return Judgement(
            "air at zero",
            f"MRI or the like, because {percent(zero)} of voxels are zero: air; {unless}",
        )
    if below_zero >= LEAST_BELOW:
        why = f"{percent(below_zero)} of voxels lie clearly below zero and {percent(zero)} are zero"
        return Judgement(
            "signed", f"values of both signs, because {why}: zero is a tissue's value; {unless}"
        )
    why = f"only {percent(below_zero)} of voxels lie clearly below zero"
    return Judgement("air at zero", f"MRI or the like, because {why}; {unless}")


def percent(share: float) -> str:
    """50 %, 0.02 %."""
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"
