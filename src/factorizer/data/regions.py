"""Label maps to named regions and back: the one place that knows how regions and labels belong
together.

A region is a union of labels. Regions may be exclusive (anterior, posterior), nested (ET in TC in
WT) or both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def labels_to_regions(
    label_map: NDArray[Any], labels: Mapping[str, int], regions: Mapping[str, Sequence[str]]
) -> NDArray[np.bool_]:
    """Label values (*spatial) -> one channel per region (regions, *spatial)."""
    return np.stack(
        [np.isin(label_map, [labels[name] for name in names]) for names in regions.values()]
    )


def regions_to_labels(
    scores: NDArray[Any],
    labels: Mapping[str, int],
    regions: Mapping[str, Sequence[str]],
    *,
    threshold: float = 0.5,
) -> NDArray[np.uint8]:
    """Probabilities or masks (regions, *spatial) -> label values (*spatial).

    A voxel that is in exactly the regions a label is in gets this label. Where no label fits,
    regions are painted from large to small, each with the label that sets it apart from those
    inside it: the smallest region that a voxel belongs to decides, also where it sticks out of the
    region around it. Of regions of the same size the more probable one wins, the later on a tie.
    """
    label_map = np.zeros(scores.shape[1:], np.uint8)
    sizes = [len(names) for names in regions.values()]
    for size in sorted(set(sizes), reverse=True):
        best = np.full(label_map.shape, threshold, np.float32)
        for index, region in enumerate(regions):
            if sizes[index] == size:
                wins = scores[index] >= best
                label_map[wins] = labels[own_label(region, regions)]
                np.copyto(best, scores[index], where=wins, casting="unsafe")
    masks = scores >= threshold
    for name in reversed(list(labels)):  # of labels that are in the same regions the first counts
        pattern = [name in names for names in regions.values()]
        if any(pattern):
            fits = np.logical_and.reduce(
                [m if wanted else ~m for m, wanted in zip(masks, pattern, strict=True)]
            )
            label_map[fits] = labels[name]
    return label_map


def own_label(region: str, regions: Mapping[str, Sequence[str]]) -> str:
    """The first label of a region that no smaller region inside it has; its first label if there is
    none."""
    names = regions[region]
    inner = {name for other in regions.values() if set(other) < set(names) for name in other}
    return next((name for name in names if name not in inner), names[0])
