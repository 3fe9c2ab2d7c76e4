"""Matching a cohort to a preset: which channels and which label values the preset means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from factorizer.data.cases import Cohort, DataError, Problem
from factorizer.data.naming import is_picture, unnamed_channels

OTHER_SCANNERS = {"CT", "PET"}  # the other channels come from MRI
HIGHEST_DRAWN = 255  # the value of white in a 2D mask


def select_channels(
    cohort: Cohort, wanted: Sequence[str], *, allow_missing: bool = False
) -> tuple[str, ...]:
    """The cohort's names of the channels that a preset wants, in the preset's order.

    Names match in upper or lower case. Two exceptions need no matching names:

    - The cohort's channels have no names, and there are as many as wanted. They are taken in order.
    - The cohort and the preset have one channel each, from the same kind of scanner.

    With `allow_missing`, one of the names is sufficient. Those that no case has stay as wanted.
    """
    names: dict[str, str] = {}
    for case in cohort.cases:
        names |= {channel.lower(): channel for channel in case.channels}
    found = [channel for channel in wanted if channel.lower() in names]
    if len(found) == len(wanted) or (found and allow_missing):
        return tuple(names.get(channel.lower(), channel) for channel in wanted)
    if len(wanted) == len(cohort.channels):
        if cohort.channels == unnamed_channels(len(wanted)):
            return cohort.channels
        if len(wanted) == 1 and scanners(wanted) == scanners(cohort.channels):
            return cohort.channels
    message = (
        f"the preset has the channels {', '.join(wanted)}, "
        f"and the data set has {', '.join(cohort.channels)}"
    )
    raise DataError.about(cohort.root, message, "choose another preset or model, or other data")


def scanners(channels: Sequence[str]) -> set[str]:
    return OTHER_SCANNERS & {channel.upper() for channel in channels}


def select_label_values(cohort: Cohort, labels: Mapping[str, int]) -> dict[int, int]:
    """The values on disk that a preset's labels mean, and the preset's value of each.

    Labels match by name, in upper or lower case. They match by value if the names differ or the
    cohort names no labels. Background stays 0.
    """
    if not cohort.labels:
        return select_unnamed_values(cohort, labels)
    matched = match_labels(cohort, labels) | {0: 0}
    return {
        on_disk: matched[value]
        for on_disk, value in cohort.label_values.items()
        if value in matched
    }


def match_labels(cohort: Cohort, labels: Mapping[str, int]) -> dict[int, int]:
    """The preset's value for each of the cohort's values that the preset uses."""
    theirs = lower_names(cohort.labels)
    wanted = lower_names(labels)
    if theirs.keys() >= wanted.keys():
        return {theirs[name]: value for name, value in wanted.items()}
    shared_names_agree = all(wanted.get(name, value) == value for name, value in theirs.items())
    if shared_names_agree and set(theirs.values()) >= set(wanted.values()):
        return {value: value for value in labels.values()}
    message = (
        f"its labels ({list_labels(cohort.labels)}) are not the preset's ({list_labels(labels)})"
    )
    remedy = "choose another preset, or name the preset's labels as the data set does"
    raise DataError.about(cohort.root, message, remedy)


def select_unnamed_values(cohort: Cohort, labels: Mapping[str, int]) -> dict[int, int]:
    """The values of labels that the data set does not name.

    A single label may also have the value 255. In 2D masks it may have any value except 0.
    """
    values = {value: value for value in (0, *labels.values())}
    if len(labels) > 1:
        return values
    (only,) = labels.values()
    masks = [case.label for case in cohort.labelled if case.label is not None]
    if masks and all(is_picture(mask) for mask in masks):
        return {0: 0} | dict.fromkeys(range(1, HIGHEST_DRAWN + 1), only)
    return {HIGHEST_DRAWN: only} | values


def note_renamed_labels(cohort: Cohort, labels: Mapping[str, int]) -> list[Problem]:
    """A warning if a preset has several labels and shares no label name with the cohort.

    Only the values then tell which label is which.
    """
    if len(labels) == 1 or lower_names(cohort.labels).keys() & lower_names(labels).keys():
        return []
    theirs = {value: name for name, value in cohort.labels.items()}
    pairs = [f"{theirs[value]} as {name}" for name, value in labels.items() if value in theirs]
    if not pairs:
        return []
    message = (
        "its labels are not named like the preset's, so they are matched by value: "
        f"{', '.join(pairs)}"
    )
    remedy = "if that is wrong, name the preset's labels as the data set does"
    return [Problem("", str(cohort.root), message, remedy, "warning")]


def lower_names(labels: Mapping[str, int]) -> dict[str, int]:
    return {name.lower(): value for name, value in labels.items()}


def list_labels(labels: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in labels.items())
