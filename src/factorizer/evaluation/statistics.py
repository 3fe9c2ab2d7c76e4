"""Paired statistics of two systems on the same cases.

The test is Wilcoxon's signed-rank test, two-sided. Cases without a difference are left out
(`zero_method="wilcox"`). If no case differs, p is 1. scipy chooses the distribution. In version
1.17 it is exact up to 50 differences without ties and up to 13 with ties, otherwise normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, wilcoxon

STARS = ((1e-4, "****"), (1e-3, "***"), (1e-2, "**"), (5e-2, "*"))  # the paper's (Fig. 3)
Values = Sequence[float] | NDArray[np.float64]
RESAMPLES = 10_000
LEVEL = 0.95


@dataclass(frozen=True)
class Difference:
    """One system against another: the mean difference with its interval, p, and the effect.

    `effect` is the rank-biserial correlation of matched pairs: the share of positive ranks minus
    the share of negative ranks. It is 1 if every case is higher, -1 if every case is lower, and 0
    if they balance.
    """

    mean: float
    low: float
    high: float
    p: float
    effect: float
    cases: int


def compare_pairs(ours: Values, theirs: Values, *, seed: int = 0) -> Difference:
    """Ours minus theirs, case by case. A case where one of them is nan is left out."""
    difference = np.asarray(ours, float) - np.asarray(theirs, float)
    difference = difference[np.isfinite(difference)]
    if not len(difference):
        return Difference(nan, nan, nan, p=1.0, effect=0.0, cases=0)
    low, high = bootstrap_mean(difference, seed=seed)
    p, effect = signed_rank(ours, theirs)
    return Difference(float(difference.mean()), low, high, p, effect, len(difference))


def signed_rank(ours: Values, theirs: Values) -> tuple[float, float]:
    """p and the effect alone, over the cases where both are numbers."""
    difference = np.asarray(ours, float) - np.asarray(theirs, float)
    difference = difference[np.isfinite(difference)]
    return wilcoxon_p(difference), rank_biserial(difference)


def wilcoxon_p(difference: NDArray[Any]) -> float:
    if not np.any(difference):
        return 1.0
    return float(wilcoxon(difference, zero_method="wilcox", alternative="two-sided").pvalue)


def rank_biserial(difference: NDArray[Any]) -> float:
    nonzero = difference[difference != 0]
    if not len(nonzero):
        return 0.0
    ranks = rankdata(np.abs(nonzero))
    return float((ranks[nonzero > 0].sum() - ranks[nonzero < 0].sum()) / ranks.sum())


def bootstrap_mean(values: Values, *, seed: int = 0) -> tuple[float, float]:
    """The percentile interval of the mean over resampled cases. It is nan for a single case."""
    finite = np.asarray(values, float)
    finite = finite[np.isfinite(finite)]
    count = len(finite)
    if count < 2:
        return nan, nan
    generator = np.random.default_rng(seed)
    resamples = finite[generator.integers(count, size=(RESAMPLES, count))]
    means = resamples.mean(1)
    low, high = np.quantile(means, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction for several tests."""
    order = np.argsort(p_values)
    corrected = np.empty(len(p_values))
    running = 0.0
    for place, index in enumerate(order):
        running = max(running, (len(p_values) - place) * p_values[index])
        corrected[index] = min(1.0, running)
    return corrected.tolist()


def stars(p: float) -> str:
    """The paper's marks of significance. Empty if p is at least 0.05."""
    return next((mark for limit, mark in STARS if p < limit), "")
