"""Post-processing of label maps, region by region: drop small lesions, or keep only the largest.

It is off by default. The rules of a run were chosen on the held-out cases of its cross-validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import label as number_lesions

from factorizer.runs.rules import Cleaning, Rules
from factorizer.targets import Targets

Array = NDArray[Any]
LEAST_ML = 1e-12  # less than any voxel: a rule of 0 ml drops nothing


def clean_mask(mask: Array, rule: Cleaning, spacing_mm: Sequence[float]) -> Array:
    """A mask without the lesions that a rule drops."""
    if not mask.any() or (not rule.largest and not rule.min_volume_ml):
        return mask
    lesions, _ = number_lesions(mask, np.ones((3,) * mask.ndim))
    sizes = np.bincount(lesions.ravel())  # in voxels
    sizes[0] = 0  # the background
    keep = sizes * (prod(spacing_mm) / 1000) >= max(rule.min_volume_ml, LEAST_ML)
    if rule.largest:
        keep &= np.arange(len(sizes)) == sizes.argmax()
    return keep[lesions]


def clean_labels(
    label_map: Array, rules: Rules, *, targets: Targets, spacing_mm: Sequence[float]
) -> NDArray[np.uint8]:
    """A label map whose regions are cleaned.

    Voxels that a region loses go to the region around it, if it has one.
    """
    if not rules:
        return label_map
    regions = targets.regions
    masks = dict(zip(regions, targets.masks(label_map), strict=True))
    for region in sorted(regions, key=lambda name: -len(regions[name])):
        masks[region] = clean_mask(masks[region], rules.get(region, Cleaning()), spacing_mm)
        for inner, names in regions.items():
            if set(names) < set(regions[region]):  # a dropped lesion is dropped inside too
                masks[inner] &= masks[region]
    return targets.label_map(np.stack(list(masks.values())))
