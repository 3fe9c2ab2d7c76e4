"""Every metric of a predicted label map against its reference."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, nan, prod, sqrt

import numpy as np

from factorizer.evaluation.metrics import Mask, detect_lesions, dice, hd95_mm
from factorizer.evaluation.scores import HD95Empty, Score
from factorizer.targets import Targets


def score_label_maps(
    case: str,
    prediction: Mask,
    reference: Mask,
    *,
    targets: Targets,
    spacing_mm: Sequence[float],
    hd95_empty: HD95Empty = "diagonal",
) -> list[Score]:
    """Every metric of every region of two label maps on the same grid."""
    millilitres = prod(spacing_mm) / 1000
    penalty = penalty_mm(hd95_empty, reference.shape, spacing_mm)
    rows = []
    for region in targets.regions:
        ours, theirs = targets.mask(prediction, region), targets.mask(reference, region)
        distance = hd95_mm(ours, theirs, spacing_mm)
        volumes = [np.count_nonzero(mask) * millilitres for mask in (ours, theirs)]
        detection = detect_lesions(ours, theirs)
        values = {
            "dice": dice(ours, theirs),
            "hd95_mm": penalty if isnan(distance) else distance,
            "volume_ml": volumes[0],
            "reference_volume_ml": volumes[1],
            "volume_difference_ml": volumes[0] - volumes[1],
            "lesion_precision": detection.precision,
            "lesion_recall": detection.recall,
            "lesion_f1": detection.f1,
        }
        rows += [Score(case, region, metric, value) for metric, value in values.items()]
    return rows


def penalty_mm(rule: HD95Empty, shape: Sequence[int], spacing_mm: Sequence[float]) -> float:
    """HD95 where one of two masks is empty: undefined, the image's diagonal, or a number."""
    if rule == "nan":
        return nan
    if rule == "diagonal":
        return sqrt(sum((n * s) ** 2 for n, s in zip(shape, spacing_mm, strict=True)))
    return float(rule)
