"""Scores of cases and regions: the metrics, the table scores.csv, and its means.

A scores.csv has the columns case, region, metric and value, and no lines of means. It holds names
unchanged, so that they are the same when it is read. Tables that are made for people escape names
(`figures/escapes.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan
from pathlib import Path
from statistics import fmean
from typing import Literal

from factorizer.files import FileError, csv_text, read_csv, write_atomically

METRICS = {
    "dice": "overlap of prediction and reference, from 0 to 1",
    "hd95_mm": "95 % Hausdorff distance; a penalty where one mask is empty",
    "volume_ml": "volume of the prediction",
    "reference_volume_ml": "volume of the reference",
    "volume_difference_ml": "volume of the prediction minus volume of the reference",
    "lesion_precision": "share of predicted lesions that match a true lesion",
    "lesion_recall": "share of true lesions that match a predicted lesion",
    "lesion_f1": "harmonic mean of lesion precision and lesion recall",
}
COLUMNS = ("case", "region", "metric", "value")
MOST_MM, MOST_ML = 1e6, 1e9  # more than any body has
LIMITS = {
    "dice": (0.0, 1.0),
    "hd95_mm": (0.0, MOST_MM),
    "volume_ml": (0.0, MOST_ML),
    "reference_volume_ml": (0.0, MOST_ML),
    "volume_difference_ml": (-MOST_ML, MOST_ML),
    "lesion_precision": (0.0, 1.0),
    "lesion_recall": (0.0, 1.0),
    "lesion_f1": (0.0, 1.0),
}
OTHER_LIMITS = (-1e12, 1e12)  # of metrics that we do not compute
HD95Empty = float | Literal["nan", "diagonal"]
Values = Mapping[tuple[str, str, str], float]  # by region, metric and case
PENALTIES = {"nan": "undefined (nan)", "diagonal": "the diagonal of the image"}
CONVENTIONS = (
    "If both masks are empty, Dice is 1, HD95 is 0 and lesion scores are 1. "
    "If one mask is empty, Dice is 0, lesion scores are 0 and HD95 is {penalty}. "
    "A lesion is a connected part of a mask, also over edges and corners. "
    "Two lesions match if they share a voxel. "
    "In 2D, a pixel counts as 1 mm, and 1000 pixels count as 1 ml."
)


@dataclass(frozen=True)
class Score:
    """A row of scores.csv."""

    case: str
    region: str
    metric: str
    value: float


def describe_conventions(hd95_empty: HD95Empty) -> str:
    """How empty masks, lesions and 2D images are scored. Every table of scores must say it."""
    penalty = PENALTIES.get(str(hd95_empty), f"{hd95_empty} mm")
    return CONVENTIONS.format(penalty=penalty)


def write_scores(file: Path, rows: Sequence[Score]) -> None:
    """Write a scores.csv. An undefined value is nan."""
    lines = [(row.case, row.region, row.metric, f"{row.value:.6g}") for row in rows]
    write_atomically(file, csv_text(COLUMNS, lines))


def read_scores(file: Path) -> list[Score]:
    """The rows of a scores.csv. An error names the line that is wrong."""
    rows: dict[tuple[str, str, str], Score] = {}
    for number, line in read_csv(file):
        missing = [name for name in COLUMNS if name not in line]
        if missing:
            message = f"it has the columns {', '.join(line)}, but not {', '.join(missing)}"
            raise FileError(file, message, f"a scores.csv has {', '.join(COLUMNS)}")
        row = read_score(file, number, line)
        if rows.setdefault((row.case, row.region, row.metric), row) is not row:
            message = f"line {number}: {row.case}, {row.region}, {row.metric} appears twice"
            raise FileError(file, message, "keep one of them")
    if not rows:
        raise FileError(file, "it has no scores", f"a scores.csv has {', '.join(COLUMNS)}")
    return list(rows.values())


def read_score(file: Path, number: int, line: Mapping[str, str]) -> Score:
    """One line of a scores.csv. An infinite distance is undefined (nan)."""
    for name in COLUMNS[:3]:
        if not line[name]:
            raise FileError(file, f"line {number}: the {name} is empty", f"name the {name}")
    try:
        value = float(line["value"])
    except ValueError:
        message = f"line {number}: the value is {line['value'][:40]!r}, not a number"
        raise FileError(file, message, "give a number, or nan if it is undefined") from None
    metric = line["metric"]
    if metric == "hd95_mm" and value == inf:
        value = nan
    low, high = LIMITS.get(metric, OTHER_LIMITS)
    if not isnan(value) and not low <= value <= high:
        message = f"line {number}: {metric} is {value:g}; it must be from {low:g} to {high:g}"
        raise FileError(file, message, "correct it, or give nan if it is undefined")
    return Score(line["case"], line["region"], metric, value)


@dataclass(frozen=True)
class Means:
    """The means of a region over cases.

    `hd95_mm` leaves out the cases where HD95 is undefined, `undefined` counts them, and
    `penalized_hd95_mm` includes them with the penalty.
    """

    cases: int
    dice: float
    hd95_mm: float
    undefined: int
    penalized_hd95_mm: float
    volume_difference_ml: float
    lesion_f1: float


def mean_scores(rows: Sequence[Score]) -> dict[str, Means]:
    """The means of each region. A metric that the rows do not have is nan."""
    values = index_scores(rows)
    cases: dict[str, list[str]] = {}
    for region, case in dict.fromkeys((row.region, row.case) for row in rows):
        cases.setdefault(region, []).append(case)
    return {region: means_of_region(values, region, own) for region, own in cases.items()}


def means_of_region(values: Values, region: str, cases: Sequence[str]) -> Means:
    def mean(metric: str, chosen: Sequence[str] = cases) -> float:
        keys = [(region, metric, case) for case in chosen]
        return mean_of([values[key] for key in keys if key in values])

    defined = [case for case in cases if not is_undefined(values, region, case)]
    return Means(
        cases=len(cases),
        dice=mean("dice"),
        hd95_mm=mean("hd95_mm", defined),
        undefined=len(cases) - len(defined),
        penalized_hd95_mm=mean("hd95_mm"),
        volume_difference_ml=mean("volume_difference_ml"),
        lesion_f1=mean("lesion_f1"),
    )


def is_undefined(values: Values, region: str, case: str) -> bool:
    """Whether HD95 of a case is undefined, because one of the two masks is empty."""
    volume = values.get((region, "volume_ml", case), nan)
    reference = values.get((region, "reference_volume_ml", case), nan)
    if isnan(volume) or isnan(reference):  # a table from elsewhere, without volumes
        return isnan(values.get((region, "hd95_mm", case), 0.0))
    return (volume == 0) != (reference == 0)


def index_scores(rows: Sequence[Score]) -> dict[tuple[str, str, str], float]:
    """Scores by region, metric and case."""
    return {(row.region, row.metric, row.case): row.value for row in rows}


def mean_of(values: Collection[float]) -> float:
    """The mean of some values. The mean of none is nan."""
    return fmean(values) if values else nan
