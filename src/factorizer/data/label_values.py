"""Names for the labels of a data set that does not name them.

The names come from a preset, or from the values in the label files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from factorizer.data.cases import HIGHEST_LABEL, Case, Cohort, DataError, Problem, list_some
from factorizer.data.images import LABEL_ROUNDING, open_image
from factorizer.data.matching import select_label_values
from factorizer.data.naming import is_picture
from factorizer.hardware import available_cores

FOREGROUND = {"foreground": 1}
MOST_LABELS = 100  # a volume with more values is not a label map
MOST_VALUES = 256  # a file with more values is not a label map
# A 2D mask with a value from here on was drawn. It does not number classes.
BRIGHT = 128


def name_labels(cohort: Cohort, labels: Mapping[str, int] | None = None) -> Cohort:
    """The cohort with names for its labels.

    The names are the cohort's own, otherwise those in `labels`, otherwise made from the values in
    all label files: foreground for a single label; label1, label2, ... for several.
    """
    if cohort.labels:
        return cohort
    if labels:
        return with_labels(cohort, labels)
    found = find_values(cohort.labelled)
    masks = [case.label for case in cohort.labelled if case.label is not None]
    has_pictures = any(is_picture(mask) for mask in masks)
    if found <= {1} or found == {255} or (has_pictures and len(found) == 1):
        return with_labels(cohort, FOREGROUND)
    if has_pictures and max(found) >= BRIGHT:
        problems = (*cohort.problems, note_drawn_masks(cohort, found))
        return with_labels(replace(cohort, problems=problems), FOREGROUND)
    return with_labels(cohort, {f"label{value}": value for value in sorted(found)})


def with_labels(cohort: Cohort, labels: Mapping[str, int]) -> Cohort:
    return replace(cohort, labels=labels, label_values=select_label_values(cohort, labels))


def note_drawn_masks(cohort: Cohort, found: set[int]) -> Problem:
    values = [str(value) for value in sorted(found)]
    message = f"its masks have the values {list_some(values)}: all are read as foreground"
    remedy = "number the classes 1, 2, ... if that is wrong"
    return Problem("", str(cohort.root), message, remedy, "warning")


def find_values(cases: Iterable[Case]) -> set[int]:
    """The values in the label files of all cases, except 0.

    Files that cannot be used have no values here. Reading them later reports the problem.
    """
    with ThreadPoolExecutor(available_cores()) as pool:
        return set[int]().union(*pool.map(values_of, cases))


def values_of(case: Case) -> set[int]:
    """The values in the label file of a case, except 0. Empty if it is not a label map."""
    if case.label is None:
        return set()
    try:
        array = open_image(case.name, case.label, as_label=True).read()
    except DataError:
        return set()
    values = np.unique(array)
    if len(values) > MOST_VALUES or not are_whole(values):
        return set()
    found = {int(value) for value in np.rint(values)}
    if not found or min(found) < 0 or max(found) > HIGHEST_LABEL:
        return set()
    if len(found) > MOST_LABELS and not is_picture(case.label):
        return set()
    return found - {0}


def are_whole(values: Any) -> bool:
    """Whether all values are finite and whole numbers, up to rounding."""
    if not np.isfinite(values).all():
        return False
    return bool(np.abs(values - np.rint(values)).max(initial=0) < LABEL_ROUNDING)
