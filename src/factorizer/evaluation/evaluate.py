"""`factorizer evaluate`: predictions against references, case by case, matched by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np

from factorizer.config import Data
from factorizer.data.cases import Case, DataError, Problem, Source, drop_duplicates
from factorizer.data.images import VoxelGrid, canonical_grid, is_picture, open_image, read_label
from factorizer.data.layouts import IMAGES_2D, NIFTI, UnknownLayout, read_cohort
from factorizer.data.matching import select_label_values
from factorizer.data.naming import strip_ending
from factorizer.data.walk import list_folder
from factorizer.evaluation.label_maps import score_label_maps
from factorizer.evaluation.metrics import Mask
from factorizer.evaluation.scores import HD95Empty, Score
from factorizer.targets import Targets

Track = Callable[[Sequence[Any], str], Iterable[Any]]
PROBABILITIES = "_probabilities"


@dataclass(frozen=True, eq=False)
class Pair:
    """A prediction and its reference: label maps in canonical orientation, on the same grid."""

    case: str
    prediction: Mask
    reference: Mask
    grid: VoxelGrid
    files: tuple[Path, Path]


@dataclass(frozen=True)
class References:
    """Label files by case, what their values mean, and the value of voxels that nobody judged."""

    cases: Mapping[str, Case]
    values: Mapping[int, int]
    ignored: int | None = None


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores, what could not be scored, the cases only one side has, and counts for nnU-Net's
    summary."""

    scores: list[Score]
    problems: list[Problem]
    unmatched: dict[str, list[str]]
    counts: list[dict[str, Any]]


def evaluate_folders(
    predictions: Path,
    references: Path,
    data: Data,
    *,
    hd95_empty: HD95Empty = "diagonal",
    prediction_values: Literal["preset", "dataset"] = "preset",
    track: Track = lambda items, label: items,
) -> Evaluation:
    """Score every case that has a prediction and a reference. Predictions carry the preset's label
    values, as those of `factorizer predict` do, or the data set's own."""
    predicted = {case.name: case for case in list_labels(predictions)}
    expected = list_references(references, data)
    shared = sorted(predicted.keys() & expected.cases.keys())
    unmatched = {
        "predictions": sorted(predicted.keys() - expected.cases.keys()),
        "references": sorted(expected.cases.keys() - predicted.keys()),
    }
    if not shared:
        raise DataError(
            Problem("", str(predictions), *explain_no_match(predicted, expected.cases, references))
        )
    result = Evaluation([], [], unmatched, [])
    ours = read_values(data) if prediction_values == "preset" else expected.values
    for name in track(shared, "evaluating"):
        try:
            pair = read_pair(predicted[name], name, expected, ours)
        except DataError as error:
            result.problems.extend(error.problems)
            continue
        spacing = canonical_grid(pair.grid).spacing_mm
        result.scores.extend(
            score_label_maps(
                name,
                pair.prediction,
                pair.reference,
                targets=data.targets,
                spacing_mm=spacing,
                hd95_empty=hd95_empty,
            )
        )
        result.counts.append(count_voxels(pair, data.targets))
    return result


def explain_no_match(
    predicted: Mapping[str, Case], expected: Mapping[str, Case], references: Path
) -> tuple[str, str]:
    names = [", ".join(sorted(cases)[:3]) or "none" for cases in (predicted, expected)]
    message = f"no prediction ({names[0]}) has the name of a reference ({names[1]})"
    return message, f"name predictions as the cases of {references}"


def list_labels(folder: Path) -> list[Case]:
    """A label file per case."""
    if not folder.is_dir():
        raise DataError(
            Problem("", str(folder), "there is no such folder", "give a folder of label files")
        )
    files = [
        file for file in list_folder(folder) if file.name.lower().endswith((*NIFTI, *IMAGES_2D))
    ]
    labels = [file for file in files if not strip_ending(file.name).endswith(PROBABILITIES)]
    if not labels:
        raise DataError(
            Problem(
                "", str(folder), "it holds no label file", "give a folder of .nii.gz or .png files"
            )
        )
    check_unpaired(folder, [strip_ending(file.name) for file in labels if is_picture(file)])
    cases, duplicates = drop_duplicates(
        [Case(strip_ending(file.name), {"label": Source(file)}, file) for file in labels]
    )
    if duplicates:
        raise DataError(*duplicates)
    return cases


def check_unpaired(folder: Path, names: Sequence[str]) -> None:
    """Pictures NAME and NAME-something are no labels alone: one is the mask of the other."""
    there, first = set(names), min(names, key=len, default="")
    for ending in sorted(other.removeprefix(first) for other in names if other.startswith(first)):
        masks = {name for name in there if name.endswith(ending)}
        if (
            ending
            and not ending[0].isalnum()
            and {name.removesuffix(ending) for name in masks} == there - masks
        ):
            message = f"it holds images beside masks, {first} and {first}{ending}"
            remedy = (
                f"set data.mask_suffix of the preset to {ending}, or give a folder of masks alone"
            )
            raise DataError(Problem("", str(folder), message, remedy))


def list_references(folder: Path, data: Data) -> References:
    """The labels of a data set in any layout, or the label files of a folder."""
    try:
        cohort = read_cohort(folder, mask_suffix=data.mask_suffix)
    except UnknownLayout:
        return References({case.name: case for case in list_labels(folder)}, read_values(data))
    if not cohort.labelled:
        if cohort.layout == "pairs":  # masks without their images
            masks = [Case(problem.case, {}, Path(problem.file)) for problem in cohort.problems]
            return References({case.name: case for case in masks}, cohort.label_values)
        if folder.name == "derivatives":
            message = "it holds the labels of a data set, which are known by its images"
            raise DataError(Problem("", str(folder), message, f"give {folder.parent}"))
        raise DataError(
            *(
                cohort.problems
                or [Problem("", str(folder), "no case has a label", "give the labels")]
            )
        )
    values = select_label_values(cohort, data.labels)
    return References({case.name: case for case in cohort.labelled}, values, cohort.ignored)


def renamed_values(references: References, data: Data) -> dict[str, int]:
    """The values of the preset's labels in the data set, where they are others, as in BraTS."""
    if all(references.values.get(value) == value for value in data.labels.values()):
        return {}
    on_disk = references.values.items()
    return {
        name: value
        for name, ours in data.labels.items()
        for value, meant in on_disk
        if meant == ours
    }


def read_values(data: Data) -> dict[int, int]:
    """The values of label files that carry the preset's: these, and 255 for a single label, as in
    pictures."""
    values = {value: value for value in (0, *data.labels.values())}
    return values | ({255: next(iter(data.labels.values()))} if len(data.labels) == 1 else {})


def read_pair(predicted: Case, name: str, references: References, ours: Mapping[int, int]) -> Pair:
    """Both label maps, background where nobody judged; that they lie on different grids is an error
    that names both."""
    expected = references.cases[name]
    assert predicted.label is not None, "it was listed by its label"
    assert expected.label is not None, "it was listed by its label"
    grid = open_image(expected.name, expected.label, as_label=True).grid
    reference = read_label(expected, references.values, grid)
    prediction = read_prediction(predicted, grid, ours, beside=f"reference {expected.label}")
    if references.ignored is not None:
        unjudged = {value: int(value == references.ignored) for value in references.values}
        prediction[read_label(expected, unjudged, grid) > 0] = 0
    return Pair(predicted.name, prediction, reference, grid, (predicted.label, expected.label))


def read_prediction(
    predicted: Case, grid: VoxelGrid, ours: Mapping[int, int], *, beside: str
) -> Mask:
    """A predicted label map, which must lie on the grid of what stands beside it."""
    assert predicted.label is not None, "it was listed by its label"
    own = open_image(predicted.name, predicted.label, as_label=True).grid
    difference = own.differs_from(grid)
    if difference:
        message = f"the prediction is not on the grid of its {beside}: {difference}"
        raise DataError(
            Problem(predicted.name, str(predicted.label), message, "predict on the original images")
        )
    return read_label(predicted, ours, grid)


def count_voxels(pair: Pair, targets: Targets) -> dict[str, Any]:
    """A case in the form of nnU-Net's summary.json: counts per region, keyed by the region's label
    values."""
    metrics = {}
    for region, names in targets.regions.items():
        ours = targets.mask(pair.prediction, region)
        theirs = targets.mask(pair.reference, region)
        both = int(np.count_nonzero(ours & theirs))
        positive, wanted = int(np.count_nonzero(ours)), int(np.count_nonzero(theirs))
        union = positive + wanted - both
        metrics[region_key(targets.labels, names)] = {
            "Dice": 2 * both / (positive + wanted) if union else nan,
            "IoU": both / union if union else nan,
            "TP": both,
            "FP": positive - both,
            "FN": wanted - both,
            "TN": ours.size - union,
            "n_pred": positive,
            "n_ref": wanted,
        }
    return {
        "metrics": metrics,
        "prediction_file": str(pair.files[0]),
        "reference_file": str(pair.files[1]),
    }


def region_key(labels: Mapping[str, int], names: Sequence[str]) -> str:
    values = sorted(labels[name] for name in names)
    return str(values[0]) if len(values) == 1 else str(tuple(values))


def make_summary(counts: Sequence[Mapping[str, Any]]) -> str:
    """nnU-Net's summary.json; its convention, not ours: Dice is undefined (NaN) where both masks
    are empty."""
    keys = list(counts[0]["metrics"]) if counts else []
    mean = {key: mean_metrics([case["metrics"][key] for case in counts]) for key in keys}
    content = {
        "foreground_mean": mean_metrics(list(mean.values())),
        "mean": mean,
        "metric_per_case": list(counts),
    }
    return json.dumps(content, indent=4) + "\n"


def mean_metrics(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Over the cases where each is defined."""
    means = {}
    for name in metrics[0] if metrics else ():
        defined = [m[name] for m in metrics if not np.isnan(m[name])]
        means[name] = fmean(defined) if defined else nan
    return means
