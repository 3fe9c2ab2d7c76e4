"""The scores of a predicted label map against its reference."""

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
    """Every metric of every region. Both label maps must be on the same grid."""
    voxel_ml = prod(spacing_mm) / 1000
    penalty = penalty_mm(hd95_empty, reference.shape, spacing_mm)
    rows = []
    for region in targets.regions:
        ours = targets.mask(prediction, region)
        theirs = targets.mask(reference, region)
        distance = hd95_mm(ours, theirs, spacing_mm)
        volume = np.count_nonzero(ours) * voxel_ml
        reference_volume = np.count_nonzero(theirs) * voxel_ml
        detection = detect_lesions(ours, theirs)
        values = {
            "dice": dice(ours, theirs),
            "hd95_mm": penalty if isnan(distance) else distance,
            "volume_ml": volume,
            "reference_volume_ml": reference_volume,
            "volume_difference_ml": volume - reference_volume,
            "lesion_precision": detection.precision,
            "lesion_recall": detection.recall,
            "lesion_f1": detection.f1,
        }
        rows += [Score(case, region, metric, value) for metric, value in values.items()]
    return rows


def penalty_mm(rule: HD95Empty, shape: Sequence[int], spacing_mm: Sequence[float]) -> float:
    """HD95 if one of two masks is empty: nan, the diagonal of the image, or a given number."""
    if rule == "nan":
        return nan
    if rule == "diagonal":
        edges_mm = [count * size for count, size in zip(shape, spacing_mm, strict=True)]
        return sqrt(sum(edge**2 for edge in edges_mm))
    return float(rule)
