"""What is segmented: labels and regions, and how to turn one into the other.

A label is a name and a value in a label map. A region is a named union of labels. Regions may
exclude each other (anterior, posterior), lie inside each other (ET in TC in WT), or both. This is
the only place that knows how regions and labels are related.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Targets:
    """The labels (name -> value) and the regions (name -> its labels) of a preset."""

    labels: Mapping[str, int]
    regions: Mapping[str, Sequence[str]]

    @property
    def region_names(self) -> list[str]:
        return list(self.regions)

    def masks(self, label_map: NDArray[Any]) -> NDArray[np.bool_]:
        """Label values (*spatial) -> a mask per region (regions, *spatial)."""
        return np.stack([self.mask(label_map, region) for region in self.regions])

    def mask(self, label_map: NDArray[Any], region: str) -> NDArray[np.bool_]:
        """The voxels of a label map (*spatial) that have a label of the region."""
        values = [self.labels[name] for name in self.regions[region]]
        return np.isin(label_map, values)

    def label_map(self, scores: NDArray[Any], *, threshold: float = 0.5) -> NDArray[np.uint8]:
        """Probabilities or masks (regions, *spatial) -> label values (*spatial).

        A voxel that is in exactly the regions of a label gets this label. If no label fits, the
        voxel's smallest region decides, even if the voxel is outside of the larger region around
        it: the voxel gets that region's own label (see `own_label`). Among regions of the same
        size the more probable one wins, and the later one on a tie.
        """
        label_map = self.paint_regions(scores, threshold)
        masks = scores >= threshold
        for name in reversed(list(self.labels)):  # among labels of the same regions the first wins
            wanted = np.array([name in names for names in self.regions.values()])
            if wanted.any():
                wanted = wanted.reshape(-1, *[1] * label_map.ndim)
                fits = np.all(masks == wanted, axis=0)
                label_map[fits] = self.labels[name]
        return label_map

    def paint_regions(self, scores: NDArray[Any], threshold: float) -> NDArray[np.uint8]:
        """Paint each region in the value of its own label, the larger regions first."""
        label_map = np.zeros(scores.shape[1:], np.uint8)
        sizes = [len(names) for names in self.regions.values()]
        for size in sorted(set(sizes), reverse=True):
            best = np.full(label_map.shape, threshold, np.float32)
            for index, region in enumerate(self.regions):
                if sizes[index] == size:
                    wins = scores[index] >= best
                    label_map[wins] = self.labels[self.own_label(region)]
                    np.copyto(best, scores[index], where=wins, casting="unsafe")
        return label_map

    def own_label(self, region: str) -> str:
        """The first label of a region that no smaller region inside it has, or its first label."""
        names = self.regions[region]
        inner: set[str] = set()
        for other in self.regions.values():
            if set(other) < set(names):
                inner.update(other)
        return next((name for name in names if name not in inner), names[0])
