"""How meaningful a component is: how well it alone would segment a region.

AUC is the probability that a voxel of the region is brighter than one outside it. The best Dice is
that of the best threshold. Neither depends on the scale of the component. Any component, however
empty, reaches the Dice of the whole image, which is reported as `chance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factorizer.evaluation.statistics import bootstrap_mean

Array = NDArray[Any]


# tables and JSON have another name for this field
COLUMN_OF = {"component": "picture"}


@dataclass(frozen=True)
class Alignment:
    """One component (`component` is its number, from 1) against one region of one case."""

    case: str
    layer: int
    component: int
    region: str
    dice: float
    chance: float
    auc: float

    @property
    def gain(self) -> float:
        """How much better than chance: 0 for chance, 1 for the region itself."""
        return (self.dice - self.chance) / (1 - self.chance)


def align(component: Array, masks: Array) -> list[tuple[float, float, float]]:
    """Best Dice, chance and AUC of a component (N) against each mask (regions, N).

    Chance is the Dice of all N voxels together. All three are nan for a region that has no voxel or
    all of them.
    """
    order = np.argsort(-component, kind="stable")
    values = component[order]
    # a threshold takes equal voxels together: the places where a run of equal values ends
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))
    return [align_mask(mask[order], ends) for mask in masks]


def align_mask(mask: Array, ends: Array) -> tuple[float, float, float]:
    """Best Dice, chance and AUC for a mask (N) in the order of falling brightness.

    `ends` are the last places of the stretches of equal brightness.
    """
    hits = np.cumsum(mask)
    positive, total = int(hits[-1]), len(mask)
    if positive in (0, total):
        return nan, nan, nan
    found, taken = hits[ends], ends + 1
    dice = 2 * found / (taken + positive)
    false_rate = np.concatenate(([0], taken - found)) / (total - positive)
    true_rate = np.concatenate(([0], found)) / positive
    widths, heights = np.diff(false_rate), (true_rate[1:] + true_rate[:-1]) / 2
    chance = 2 * positive / (total + positive)
    return float(dice.max()), chance, float(np.sum(widths * heights))


@dataclass(frozen=True)
class Agreement:
    """A component against a region: means with 95 % bootstrap intervals.

    They are over the cases in which the region exists.
    """

    layer: int
    component: int
    region: str
    cases: int
    dice: float
    dice_low: float
    dice_high: float
    chance: float
    auc: float
    auc_low: float
    auc_high: float


def columns_of(kind: type[Alignment] | type[Agreement]) -> list[str]:
    """The fields of a row as tables and JSON name them."""
    return [COLUMN_OF.get(field.name, field.name) for field in fields(kind)]


def summarize(rows: Sequence[Alignment]) -> list[Agreement]:
    """One row for each layer, component and region, over the cases."""
    groups: dict[tuple[int, int, str], list[Alignment]] = {}
    for row in rows:
        groups.setdefault((row.layer, row.component, row.region), []).append(row)
    table = []
    for group in groups.values():
        defined = [row for row in group if not isnan(row.dice)]
        if defined:
            table.append(agreement_of(defined))
    return table


def agreement_of(rows: Sequence[Alignment]) -> Agreement:
    """The means of rows of one layer, component and region."""
    dice = np.array([row.dice for row in rows])
    auc = np.array([row.auc for row in rows])
    dice_low, dice_high = bootstrap_mean(dice)
    auc_low, auc_high = bootstrap_mean(auc)
    return Agreement(
        layer=rows[0].layer,
        component=rows[0].component,
        region=rows[0].region,
        cases=len(rows),
        dice=float(dice.mean()),
        dice_low=float(dice_low),
        dice_high=float(dice_high),
        chance=float(np.mean([row.chance for row in rows])),
        auc=float(auc.mean()),
        auc_low=float(auc_low),
        auc_high=float(auc_high),
    )


def best_per_region(table: Sequence[Agreement]) -> list[Agreement]:
    """For each layer and region the component with the highest mean Dice."""
    best: dict[tuple[int, str], Agreement] = {}
    for row in table:
        key = (row.layer, row.region)
        if key not in best or row.dice > best[key].dice:
            best[key] = row
    return list(best.values())
