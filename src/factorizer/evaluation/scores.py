"""Scores of cases and regions: how label maps are scored, the table on disk, and its summary.

A scores.csv has the columns case, region, metric, value, one line for each, and no summary lines.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan, nan, prod, sqrt
from pathlib import Path
from statistics import fmean
from typing import Literal

import numpy as np

from factorizer.data.regions import labels_to_regions
from factorizer.evaluation.metrics import Mask, detect_lesions, dice, hd95_mm
from factorizer.files import csv_text, write_atomically

METRICS = {
    "dice": "overlap, 0 to 1",
    "hd95_mm": "95 % Hausdorff distance; with the penalty where one mask is empty",
    "volume_ml": "of the prediction",
    "reference_volume_ml": "of the reference",
    "volume_difference_ml": "prediction minus reference",
    "lesion_precision": "predicted lesions that meet a true one",
    "lesion_recall": "true lesions that are met",
    "lesion_f1": "harmonic mean of the two",
}
HD95Empty = float | Literal["nan", "diagonal"]
CONVENTIONS = (
    "Both masks empty: Dice 1, HD95 0, lesion scores 1. One empty: Dice 0, lesion scores 0, HD95 is {penalty}. "
    "A lesion is a connected component (also over corners); one shared voxel is a hit. "
    "In 2D a pixel counts as 1 mm, and 1000 pixels as 1 ml."
)


@dataclass(frozen=True)
class Score:
    """A row of scores.csv."""

    case: str
    region: str
    metric: str
    value: float


def score_label_maps(
    case: str,
    prediction: Mask,
    reference: Mask,
    *,
    labels: Mapping[str, int],
    regions: Mapping[str, Sequence[str]],
    spacing_mm: Sequence[float],
    hd95_empty: HD95Empty = "diagonal",
) -> list[Score]:
    """Every metric of every region of two label maps on the same grid."""
    millilitres = prod(spacing_mm) / 1000
    penalty = penalty_mm(hd95_empty, reference.shape, spacing_mm)
    rows = []
    for region, names in regions.items():
        (ours,), (theirs,) = (labels_to_regions(m, labels, {region: names}) for m in (prediction, reference))
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


def describe_conventions(hd95_empty: HD95Empty) -> str:
    """What a table of scores must say with it."""
    known = {"nan": "undefined (nan)", "diagonal": "the diagonal of the image"}
    return CONVENTIONS.format(penalty=known.get(str(hd95_empty), f"{hd95_empty} mm"))


def write_scores(file: Path, rows: Sequence[Score]) -> None:
    """case, region, metric, value; an undefined value is nan."""
    lines = [(row.case, row.region, row.metric, f"{row.value:.6g}") for row in rows]
    write_atomically(file, csv_text(("case", "region", "metric", "value"), lines))


def read_scores(file: Path) -> list[Score]:
    """The rows of a scores.csv; an error names the line that is wrong."""
    wanted = ("case", "region", "metric", "value")
    try:
        lines = csv.DictReader(file.read_text(encoding="utf-8-sig").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read ({error}); give a scores.csv") from None
    if not set(wanted) <= set(lines.fieldnames or ()):
        got = ", ".join(lines.fieldnames or ()) or "none"
        raise ValueError(f"{file} has the columns {got}; a scores.csv has {', '.join(wanted)}")
    rows: dict[tuple[str, str, str], Score] = {}
    for line in lines:
        try:
            value = float(line["value"])
            row = Score(line["case"], line["region"], line["metric"], value if isfinite(value) else nan)
        except (TypeError, ValueError):
            raise ValueError(f"{file}, line {lines.line_num}: the value is {line['value']!r}, not a number") from None
        if rows.setdefault((row.case, row.region, row.metric), row) is not row:
            raise ValueError(f"{file}, line {lines.line_num}: {row.case}, {row.region}, {row.metric} is there twice")
    return list(rows.values())


@dataclass(frozen=True)
class Means:
    """A region's scores over cases: HD95 where it is defined, in how many cases it is not, and with the penalty."""

    cases: int
    dice: float
    hd95_mm: float
    undefined: int
    penalized_hd95_mm: float
    volume_difference_ml: float
    lesion_f1: float


def mean_scores(rows: Sequence[Score]) -> dict[str, Means]:
    """The means of each region; nan for a metric that the rows do not have."""
    values = {(row.region, row.metric, row.case): row.value for row in rows}
    table = {}
    for region in dict.fromkeys(row.region for row in rows):
        cases = list(dict.fromkeys(row.case for row in rows if row.region == region))

        def collect(metric: str, cases: Sequence[str] = cases, region: str = region) -> float:
            return mean_of([values[key] for case in cases if (key := (region, metric, case)) in values])

        undefined = [case for case in cases if is_undefined(values, region, case)]
        table[region] = Means(
            len(cases),
            collect("dice"),
            collect("hd95_mm", [case for case in cases if case not in undefined]),
            len(undefined),
            collect("hd95_mm"),
            collect("volume_difference_ml"),
            collect("lesion_f1"),
        )
    return table


def is_undefined(values: Mapping[tuple[str, str, str], float], region: str, case: str) -> bool:
    """Whether HD95 of a case is not a distance: one of the two masks is empty."""
    volumes = [values.get((region, metric, case), nan) for metric in ("volume_ml", "reference_volume_ml")]
    if any(isnan(volume) for volume in volumes):  # a table from elsewhere, without volumes
        return isnan(values.get((region, "hd95_mm", case), 0.0))
    return (volumes[0] == 0) != (volumes[1] == 0)


def mean_of(values: Collection[float]) -> float:
    return fmean(values) if values else nan
