"""nnU-Net's summary.json, so that tools made for nnU-Net can read an evaluation.

It has nnU-Net's convention and not ours: Dice is undefined (NaN) where both masks are empty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isnan, nan
from statistics import fmean
from typing import Any

import numpy as np

from factorizer.evaluation.label_pairs import Pair
from factorizer.evaluation.metrics import Mask
from factorizer.targets import Targets

Counts = dict[str, float]  # of one region: Dice, IoU, TP, ...


def summarize_case(pair: Pair, targets: Targets) -> dict[str, Any]:
    """A case as summary.json has it: the counts of each region, by the region's label values."""
    metrics = {}
    for region in targets.regions:
        prediction = targets.mask(pair.prediction, region)
        reference = targets.mask(pair.reference, region)
        metrics[region_key(targets, region)] = count_voxels(prediction, reference)
    return {
        "metrics": metrics,
        "prediction_file": str(pair.prediction_file),
        "reference_file": str(pair.reference_file),
    }


def count_voxels(prediction: Mask, reference: Mask) -> Counts:
    """The counts of two masks under nnU-Net's names."""
    both = int(np.count_nonzero(prediction & reference))
    predicted = int(np.count_nonzero(prediction))
    wanted = int(np.count_nonzero(reference))
    union = predicted + wanted - both
    return {
        "Dice": 2 * both / (predicted + wanted) if union else nan,
        "IoU": both / union if union else nan,
        "TP": both,
        "FP": predicted - both,
        "FN": wanted - both,
        "TN": prediction.size - union,
        "n_pred": predicted,
        "n_ref": wanted,
    }


def region_key(targets: Targets, region: str) -> str:
    """A region by its label values: 3 or (2, 3)."""
    values = sorted(targets.labels[name] for name in targets.regions[region])
    return str(values[0]) if len(values) == 1 else str(tuple(values))


def make_summary(cases: Sequence[Mapping[str, Any]]) -> str:
    """The text of a summary.json of cases that `summarize_case` gave."""
    regions = list(cases[0]["metrics"]) if cases else []
    means = {}
    for region in regions:
        means[region] = mean_counts([case["metrics"][region] for case in cases])
    content = {
        "foreground_mean": mean_counts(list(means.values())),
        "mean": means,
        "metric_per_case": list(cases),
    }
    return json.dumps(content, indent=4) + "\n"


def mean_counts(counts: Sequence[Counts]) -> Counts:
    """The mean of each count over the cases where it is defined."""
    means = {}
    for name in counts[0] if counts else ():
        defined = [own[name] for own in counts if not isnan(own[name])]
        means[name] = fmean(defined) if defined else nan
    return means
