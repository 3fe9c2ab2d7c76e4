"""Names for the labels of loose files, which no description names: from a preset, or from the
values that they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from factorizer.data.cases import (
    HIGHEST_LABEL,
    Case,
    Cohort,
    DataError,
    Problem,
    list_some,
    select_label_values,
)
from factorizer.data.images import LABEL_ROUNDING, open_image
from factorizer.data.naming import is_picture
from factorizer.hardware import available_cores

FOREGROUND = {"foreground": 1}
MOST_LABELS = 100  # of a file; one with more is an image
# a picture with values from here on is a mask that was drawn, not a map of numbered classes
BRIGHT = 128


def name_labels(cohort: Cohort, labels: Mapping[str, int] | None = None) -> Cohort:
    """A cohort whose labels have names: its own, those of a preset, or ones made from the values of
    all label files.

    A single label is called foreground, several are called label1, label2, ... by their values.
    """
    if cohort.labels:
        return cohort
    if labels:
        return replace(cohort, labels=labels, label_values=select_label_values(cohort, labels))
    found = find_values(case for case in cohort.labelled)
    pictures = [
        case for case in cohort.labelled if case.label is not None and is_picture(case.label)
    ]
    if found <= {1} or found == {255} or (pictures and len(found) == 1):
        return name_labels(cohort, FOREGROUND)
    if pictures and max(found) >= BRIGHT:
        values = list_some([str(value) for value in sorted(found)])
        message = f"its masks have the values {values}: all are read as foreground"
        remedy = "number the classes 1, 2, ... if that is wrong"
        warning = Problem("", str(cohort.root), message, remedy, "warning")
        return name_labels(replace(cohort, problems=(*cohort.problems, warning)), FOREGROUND)
    return name_labels(cohort, {f"label{value}": value for value in sorted(found)})


def find_values(cases: Iterable[Case]) -> set[int]:
    """The values that label files have, except 0. Files that cannot be used are reported when they
    are read."""
    with ThreadPoolExecutor(available_cores()) as pool:
        return set[int]().union(*pool.map(values_of, cases))


def values_of(case: Case) -> set[int]:
    if case.label is None:
        return set()
    try:
        array = open_image(case.name, case.label, as_label=True).read()
    except DataError:
        return set()
    values = np.unique(array)
    rounded = np.rint(values)
    if (
        len(values) > 256
        or not np.isfinite(values).all()
        or np.abs(values - rounded).max(initial=0) >= LABEL_ROUNDING
    ):
        return set()
    found = {int(value) for value in rounded}
    usable = found and min(found) >= 0 and max(found) <= HIGHEST_LABEL
    return (
        found - {0} if usable and (len(found) <= MOST_LABELS or is_picture(case.label)) else set()
    )
