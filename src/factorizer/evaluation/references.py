"""Label files to score: predictions in a folder, and references in a folder or a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from factorizer.config import Data
from factorizer.data.cases import (
    Case,
    Cohort,
    DataError,
    Problem,
    Source,
    drop_duplicates,
)
from factorizer.data.layouts import UnknownLayout, read_cohort
from factorizer.data.matching import select_label_values
from factorizer.data.naming import is_image, is_picture, strip_ending
from factorizer.data.walk import list_folder

PROBABILITIES = "_probabilities"  # ends the names of files that hold no labels
WHITE = 255  # how 2D images draw a single label


@dataclass(frozen=True)
class References:
    """True labels: a file per case, and the meaning of the values in these files.

    `values` gives the preset's value for each value on disk. `ignored` is the value of voxels that
    nobody judged.
    """

    cases: Mapping[str, Case]
    values: Mapping[int, int]
    ignored: int | None = None


def list_labels(folder: Path) -> list[Case]:
    """The label files of a folder, one per case. Files of probabilities are skipped."""
    if not folder.is_dir():
        message, remedy = "there is no such folder", "give a folder of label files"
        raise DataError(Problem("", str(folder), message, remedy))
    labels = [file for file in list_folder(folder) if is_label(file)]
    if not labels:
        message, remedy = "it has no label file", "give a folder of .nii.gz or .png files"
        raise DataError(Problem("", str(folder), message, remedy))
    check_unpaired(folder, [strip_ending(file.name) for file in labels if is_picture(file)])
    named = [Case(strip_ending(file.name), {"label": Source(file)}, file) for file in labels]
    cases, duplicates = drop_duplicates(named)
    if duplicates:
        raise DataError(*duplicates)
    return cases


def is_label(file: Path) -> bool:
    """Whether the name of a file is that of a label file."""
    return is_image(file) and not strip_ending(file.name).endswith(PROBABILITIES)


def check_unpaired(folder: Path, names: Sequence[str]) -> None:
    """Raise if a folder of 2D images holds pairs such as NAME and NAME_mask.

    The first of such a pair is an image and not a label.
    """
    shortest = min(names, key=len, default="")
    endings = [name.removeprefix(shortest) for name in names if name.startswith(shortest)]
    for ending in sorted(endings):
        if ending and not ending[0].isalnum() and are_pairs(names, ending):
            message = f"it holds images beside masks, {shortest} and {shortest}{ending}"
            remedy = (
                f"set data.mask_suffix of the preset to {ending}, or give a folder of masks alone"
            )
            raise DataError(Problem("", str(folder), message, remedy))


def are_pairs(names: Sequence[str], ending: str) -> bool:
    """Whether every name without an ending has a partner with it, and the reverse."""
    masks = {name for name in names if name.endswith(ending)}
    images = {name.removesuffix(ending) for name in masks}
    return images == set(names) - masks


def list_references(folder: Path, data: Data) -> References:
    """The labels of a data set in any layout, or the label files of a folder."""
    try:
        cohort = read_cohort(folder, mask_suffix=data.mask_suffix)
    except UnknownLayout:
        labels = {case.name: case for case in list_labels(folder)}
        return References(labels, preset_values(data))
    if not cohort.labelled:
        return list_lone_masks(folder, cohort)
    values = select_label_values(cohort, data.labels)
    labels = {case.name: case for case in cohort.labelled}
    return References(labels, values, cohort.ignored)


def list_lone_masks(folder: Path, cohort: Cohort) -> References:
    """The masks of 2D images whose images are missing. Other cohorts without labels are refused."""
    if cohort.layout == "pairs":
        masks = [Case(problem.case, {}, Path(problem.file)) for problem in cohort.problems]
        return References({case.name: case for case in masks}, cohort.label_values)
    if folder.name == "derivatives":
        message = "it holds the labels of a data set, which are known by its images"
        raise DataError(Problem("", str(folder), message, f"give {folder.parent}"))
    missing = Problem("", str(folder), "no case has a label", "give the labels")
    raise DataError(*(cohort.problems or [missing]))


def preset_values(data: Data) -> dict[int, int]:
    """The values in label files that are written in the preset's values.

    A single label may also be drawn as 255, as in 2D images.
    """
    values = {value: value for value in (0, *data.labels.values())}
    if len(data.labels) == 1:
        values[WHITE] = next(iter(data.labels.values()))
    return values


def renamed_values(references: References, data: Data) -> dict[str, int]:
    """The data set's values of the preset's labels. Empty if both use the same values.

    BraTS, for one, uses other values than the Decathlon.
    """
    if all(references.values.get(value) == value for value in data.labels.values()):
        return {}
    on_disk: dict[str, int] = {}
    for name, ours in data.labels.items():
        for value, meaning in references.values.items():
            if meaning == ours:
                on_disk[name] = value
    return on_disk
