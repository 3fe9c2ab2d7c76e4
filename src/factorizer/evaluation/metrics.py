"""How well a mask agrees with its reference (Eq. 18-19), with stated conventions for empty ones.

Both empty: Dice 1, HD95 0, lesion scores 1. One empty: Dice 0, lesion scores 0, HD95 undefined
(nan), for the caller to leave out or to penalize.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import find_objects, label
from scipy.spatial import KDTree

Mask = NDArray[Any]


def dice(prediction: Mask, reference: Mask) -> float:
    """2 |A and B| / (|A| + |B|) (Eq. 18)."""
    total = np.count_nonzero(prediction) + np.count_nonzero(reference)
    return 2 * np.count_nonzero((prediction != 0) & (reference != 0)) / total if total else 1.0


def hd95_mm(prediction: Mask, reference: Mask, spacing_mm: Sequence[float]) -> float:
    """The larger of the two directed 95 % quantiles of surface distances (Eq. 19)."""
    empty = [not mask.any() for mask in (prediction, reference)]
    if all(empty):
        return 0.0
    if any(empty):
        return float("nan")
    points = [
        np.argwhere(surface(mask)) * np.asarray(spacing_mm) for mask in (prediction, reference)
    ]
    quantiles = []
    for one, other in (points, points[::-1]):
        distances, _ = KDTree(other, balanced_tree=False, compact_nodes=False).query(
            one, workers=-1
        )
        quantiles.append(float(np.percentile(distances, 95)))
    return max(quantiles)


def surface(mask: Mask) -> Mask:
    """The voxels of a mask with a face to the outside; the edge of the image counts as outside."""
    mask = mask != 0
    inner = mask.copy()
    for axis in range(mask.ndim):
        along, inside = np.moveaxis(mask, axis, 0), np.moveaxis(inner, axis, 0)
        inside[1:] &= along[:-1]
        inside[:-1] &= along[1:]
        inside[0] = inside[-1] = False
    return mask & ~inner


class Detection(NamedTuple):
    """How many of the predicted lesions are true, how many of the true lesions are found, and both
    in one number."""

    precision: float
    recall: float
    f1: float


def detect_lesions(prediction: Mask, reference: Mask) -> Detection:
    """A lesion is a connected component, also over edges and corners; one voxel in common makes two
    lesions meet."""
    ours, theirs = (
        count_and_met(a, b) for a, b in ((prediction, reference), (reference, prediction))
    )
    if not ours[0] and not theirs[0]:
        return Detection(1.0, 1.0, 1.0)
    if not ours[0] or not theirs[0]:
        return Detection(0.0, 0.0, 0.0)
    precision, recall = (met / count for count, met in (ours, theirs))
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return Detection(precision, recall, f1)


def count_and_met(mask: Mask, other: Mask) -> tuple[int, int]:
    """The number of a mask's lesions, and of those that meet the other mask."""
    boxes = find_objects((mask != 0).astype(np.uint8))
    if not boxes:
        return 0, 0
    lesions, count = label(mask[boxes[0]] != 0, np.ones((3,) * mask.ndim))
    met = np.bincount(lesions[other[boxes[0]] != 0], minlength=count + 1)
    return count, int(np.count_nonzero(met[1:]))
