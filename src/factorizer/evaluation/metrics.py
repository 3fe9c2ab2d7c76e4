"""How well a mask agrees with its reference (Eq. 18-19).

If both masks are empty, Dice is 1, HD95 is 0 and lesion scores are 1. If one mask is empty, Dice is
0, lesion scores are 0 and HD95 is undefined (nan). The caller leaves it out or penalizes it.
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
    both = np.count_nonzero((prediction != 0) & (reference != 0))
    return 2 * both / total if total else 1.0


def hd95_mm(prediction: Mask, reference: Mask, spacing_mm: Sequence[float]) -> float:
    """The larger of the two directed 95 % quantiles of surface distances (Eq. 19)."""
    if not prediction.any() and not reference.any():
        return 0.0
    if not prediction.any() or not reference.any():
        return float("nan")
    ours_mm = np.argwhere(surface(prediction)) * np.asarray(spacing_mm)
    theirs_mm = np.argwhere(surface(reference)) * np.asarray(spacing_mm)
    return max(directed_95(ours_mm, theirs_mm), directed_95(theirs_mm, ours_mm))


def directed_95(points: NDArray[Any], others: NDArray[Any]) -> float:
    """95 % of these points have one of the others at most this far away."""
    tree = KDTree(others, balanced_tree=False, compact_nodes=False)
    distances, _ = tree.query(points, workers=-1)
    return float(np.percentile(distances, 95))


def surface(mask: Mask) -> Mask:
    """The voxels of a mask that have a face to the outside.

    The outside of the image is outside of the mask.
    """
    mask = mask != 0
    inner = mask.copy()
    for axis in range(mask.ndim):
        along, inside = np.moveaxis(mask, axis, 0), np.moveaxis(inner, axis, 0)
        inside[1:] &= along[:-1]
        inside[:-1] &= along[1:]
        inside[0] = inside[-1] = False
    return mask & ~inner


class Detection(NamedTuple):
    """The share of predicted lesions that are true, of true lesions that are found, and both in
    one number."""

    precision: float
    recall: float
    f1: float


def detect_lesions(prediction: Mask, reference: Mask) -> Detection:
    """How well the lesions of two masks match.

    A lesion is a connected part of a mask, also over edges and corners. Two lesions match if they
    share a voxel.
    """
    predicted, true = count_lesions(prediction, reference)
    wanted, found = count_lesions(reference, prediction)
    if not predicted and not wanted:
        return Detection(1.0, 1.0, 1.0)
    if not predicted or not wanted:
        return Detection(0.0, 0.0, 0.0)
    precision, recall = true / predicted, found / wanted
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return Detection(precision, recall, f1)


def count_lesions(mask: Mask, other: Mask) -> tuple[int, int]:
    """The number of lesions in a mask, and of those that share a voxel with the other mask."""
    boxes = find_objects((mask != 0).astype(np.uint8))
    if not boxes:
        return 0, 0
    box = boxes[0]
    lesions, count = label(mask[box] != 0, np.ones((3,) * mask.ndim))
    shared_voxels = np.bincount(lesions[other[box] != 0], minlength=count + 1)
    return count, int(np.count_nonzero(shared_voxels[1:]))
