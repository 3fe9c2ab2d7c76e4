"""Scores of cases and regions: how label maps are scored, the table on disk, and its summary.

A scores.csv has the columns case, region, metric, value, one line for each, and no summary lines.
Names stand in it as they are, so that they are the same when it is read; tables that are made for
people escape them (`reports/escapes.py`).
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
    "dice": "overlap, 0 to 1",
    "hd95_mm": "95 % Hausdorff distance; with the penalty where one mask is empty",
    "volume_ml": "of the prediction",
    "reference_volume_ml": "of the reference",
    "volume_difference_ml": "prediction minus reference",
    "lesion_precision": "predicted lesions that meet a true one",
    "lesion_recall": "true lesions that are met",
    "lesion_f1": "harmonic mean of the two",
}
COLUMNS = ("case", "region", "metric", "value")
MOST_MM, MOST_ML = 1e6, 1e9  # more cannot be of a body
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
OTHER_LIMITS = (-1e12, 1e12)  # of metrics from elsewhere
HD95Empty = float | Literal["nan", "diagonal"]
CONVENTIONS = (
    "Both masks empty: Dice 1, HD95 0, lesion scores 1. One empty: Dice 0, lesion scores 0, "
    "HD95 is "
    "{penalty}. "
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
    rows: dict[tuple[str, str, str], Score] = {}
    for number, line in read_csv(file):
        missing = [name for name in COLUMNS if name not in line]
        if missing:
            message = f"it has the columns {', '.join(line)}, and no {', '.join(missing)}"
            raise FileError(file, message, f"a scores.csv has {', '.join(COLUMNS)}")
        row = read_score(file, number, line)
        if rows.setdefault((row.case, row.region, row.metric), row) is not row:
            message = f"line {number}: {row.case}, {row.region}, {row.metric} is there twice"
            raise FileError(file, message, "keep one of them")
    if not rows:
        raise FileError(file, "it holds no score", f"a scores.csv has {', '.join(COLUMNS)}")
    return list(rows.values())


def read_score(file: Path, number: int, line: Mapping[str, str]) -> Score:
    """A line; an undefined value is nan, and so is a distance without end."""
    for name in COLUMNS[:3]:
        if not line[name]:
            raise FileError(file, f"line {number}: the {name} is empty", "name it")
    try:
        value = float(line["value"])
    except ValueError:
        message = f"line {number}: the value is {line['value'][:40]!r}, not a number"
        raise FileError(file, message, "give a number, or nan where it is undefined") from None
    metric = line["metric"]
    if metric == "hd95_mm" and value == inf:
        value = nan
    low, high = LIMITS.get(metric, OTHER_LIMITS)
    if not isnan(value) and not low <= value <= high:
        message = f"line {number}: {metric} is {value:g}; it must be from {low:g} to {high:g}"
        raise FileError(file, message, "correct it, or give nan where it is undefined")
    return Score(line["case"], line["region"], metric, value)


@dataclass(frozen=True)
class Means:
    """A region's scores over cases: HD95 where it is defined, in how many cases it is not, and with
    the penalty."""

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
            return mean_of(
                [values[key] for case in cases if (key := (region, metric, case)) in values]
            )

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
    volumes = [
        values.get((region, metric, case), nan) for metric in ("volume_ml", "reference_volume_ml")
    ]
    if any(isnan(volume) for volume in volumes):  # a table from elsewhere, without volumes
        return isnan(values.get((region, "hd95_mm", case), 0.0))
    return (volumes[0] == 0) != (volumes[1] == 0)


def mean_of(values: Collection[float]) -> float:
    return fmean(values) if values else nan
