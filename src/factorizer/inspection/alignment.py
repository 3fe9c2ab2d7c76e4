"""How meaningful a picture of a layer is: how well it alone would segment a region.

AUC is the probability that a voxel of the region is brighter than one outside it; the best Dice is
that of the best threshold. Both look at voxels inside the image only (where some channel is not
zero), and do not depend on the picture's scale. Any picture, however empty, has at least the Dice
of the whole image, which stands beside as `chance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factorizer.evaluation.statistics import bootstrap_mean

Array = NDArray[Any]


@dataclass(frozen=True)
class Alignment:
    """One picture against one region of one case."""

    case: str
    layer: int
    picture: int
    region: str
    dice: float
    chance: float
    auc: float

    @property
    def gain(self) -> float:
        """How much of what chance leaves the picture finds: 0 for chance, 1 for the region
        itself."""
        return (self.dice - self.chance) / (1 - self.chance)


def align(picture: Array, masks: Array) -> list[tuple[float, float, float]]:
    """Best Dice of a picture (N) against each mask (regions, N), the Dice of everything, and AUC.

    All are nan for a region that is nothing or all.
    """
    order = np.argsort(-picture, kind="stable")
    values = picture[order]
    ends = np.flatnonzero(
        np.append(values[1:] != values[:-1], True)
    )  # a threshold takes equal voxels together
    results = []
    for mask in masks:
        hits = np.cumsum(mask[order])
        positive, total = int(hits[-1]), len(order)
        if positive in (0, total):
            results.append((float("nan"), float("nan"), float("nan")))
            continue
        found, taken = hits[ends], ends + 1
        dice = 2 * found / (taken + positive)
        missed = np.concatenate(([0], taken - found)) / (total - positive)  # false positive rate
        rate = np.concatenate(([0], found)) / positive
        auc = float(np.sum((missed[1:] - missed[:-1]) * (rate[1:] + rate[:-1]) / 2))
        results.append((float(dice.max()), 2 * positive / (total + positive), auc))
    return results


@dataclass(frozen=True)
class Agreement:
    """A picture against a region over the cases that have it: means with 95 % bootstrap
    intervals."""

    layer: int
    picture: int
    region: str
    cases: int
    dice: float
    dice_low: float
    dice_high: float
    chance: float
    auc: float
    auc_low: float
    auc_high: float


def summarize(rows: Sequence[Alignment]) -> list[Agreement]:
    """Over cases, by layer, picture and region."""
    groups: dict[tuple[int, int, str], list[Alignment]] = {}
    for row in rows:
        groups.setdefault((row.layer, row.picture, row.region), []).append(row)
    table = []
    for (layer, picture, region), own in groups.items():
        defined = [row for row in own if not isnan(row.dice)]
        if defined:
            dice, chance, auc = np.array([(row.dice, row.chance, row.auc) for row in defined]).T
            numbers = [
                dice.mean(),
                *bootstrap_mean(dice),
                chance.mean(),
                auc.mean(),
                *bootstrap_mean(auc),
            ]
            table.append(Agreement(layer, picture, region, len(defined), *map(float, numbers)))
    return table


def best_per_region(table: Sequence[Agreement]) -> list[Agreement]:
    """For each layer and region the picture with the highest mean Dice."""
    best: dict[tuple[int, str], Agreement] = {}
    for row in table:
        key = (row.layer, row.region)
        if key not in best or row.dice > best[key].dice:
            best[key] = row
    return list(best.values())
