"""Lists of cases in a CSV or JSON file.

The fields of a case are `case`, one field per channel or `image` for a file with all channels, and
for training `label` (or `mask`, `seg`). `patient` is needed if a patient has several cases. Fields
may be in upper or lower case. Files are given relative to the folder of the list.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from factorizer.data.cases import Case, Cohort, DataError, Problem, drop_duplicates, list_some
from factorizer.data.channel_files import make_case
from factorizer.data.headers import name_channels
from factorizer.data.layouts.list_entries import FIELDS, LABEL_FIELDS, Entry, read_entries
from factorizer.data.naming import MOST_CHANNELS, canonical_channel, is_image, patient_of

LIST_ENDINGS = (".csv", ".json")


def is_list(path: Path) -> bool:
    """Whether the path is a file that can hold a list of cases."""
    return path.suffix.lower() in LIST_ENDINGS and path.is_file()


def read_list(
    file: Path, channels: Sequence[str], *, allow_missing: bool = False
) -> tuple[list[Case], list[Problem]]:
    """The cases of a list that have the channels of a model, and the problems of the others.

    With `allow_missing`, one of the channels is sufficient.
    """
    remedy = f"give each case the fields case and {', '.join(channels)}, or case and image"
    entries, problems = read_entries(file, remedy)
    label_field = find_label_field(file, entries)
    cases = []
    for entry in entries:
        try:
            files = files_for_model(entry, channels, remedy, allow_missing=allow_missing)
            cases.append(case_of(entry, files, channels, label_field))
        except DataError as error:
            problems += error.problems
    kept, duplicates = drop_duplicates(cases)
    return kept, [*problems, *duplicates]


def files_for_model(
    entry: Entry, channels: Sequence[str], remedy: str, *, allow_missing: bool
) -> list[Path | None]:
    """The file of each channel, or the one file with all of them.

    With `allow_missing`, None is in the place of a channel that the entry lacks.
    """
    cells = {name.lower(): cell for name, cell in entry.cells.items()}
    if cells.get("image"):
        return [entry.path(cells["image"])]
    files: list[Path | None] = []
    for channel in channels:
        cell = cells.get(canonical_channel(channel).lower())
        if not cell and not allow_missing:
            raise entry.error(f"{entry.name} has no {channel}", remedy)
        files.append(entry.path(cell) if cell else None)
    if not any(files):
        raise entry.error(f"{entry.name} has none of {', '.join(channels)}", remedy)
    return files


def read_list_cohort(file: Path) -> Cohort:
    """The cohort of a list with all its channels. Its labels have no names."""
    remedy = "give each case the fields case, label and one per channel, or case, label and image"
    entries, problems = read_entries(file, remedy)
    label_field = find_label_field(file, entries)
    channels, unused = find_channels(file, entries, remedy)
    problems += note_columns(file, unused, label_field)
    cases = []
    for entry in entries:
        try:
            files = files_for_training(entry, channels, label_field, remedy)
            case = case_of(entry, files, channels, label_field)
        except DataError as error:
            problems += error.problems
            continue
        cases.append(case)
        if label_field and case.label is None:
            message = f"{case.name} has no {label_field}"
            problems += entry.error(message, "add it, or remove the case").problems
    kept, duplicates = drop_duplicates(cases)
    problems = [*problems, *duplicates]
    return Cohort(file, "list", tuple(kept), channels, {}, {}, problems=tuple(problems))


def files_for_training(
    entry: Entry, channels: Sequence[str], label_field: str | None, remedy: str
) -> list[Path]:
    """The file of each channel, or the one file with all of them. These files and the label must
    exist."""
    fields = ["image"] if entry.get("image") else list(channels)
    for field in fields:
        if not entry.get(field):
            raise entry.error(f"{entry.name} has no {field}", remedy)
        check_file(entry, field)
    if label_field and entry.get(label_field):
        check_file(entry, label_field)
    return [entry.path(entry.get(field)) for field in fields]


def check_file(entry: Entry, field: str) -> None:
    """Refuse a file of an entry that does not exist or is not an image."""
    file = entry.path(entry.get(field))
    place = f"{field}, {entry.place} of {entry.file.name}"
    if not os.path.exists(file):
        message, remedy = f"the file is missing ({place})", "add it, or correct the list"
    elif not os.path.isfile(file):
        message, remedy = f"it is not a file ({place})", "add it, or correct the list"
    elif not is_image(file):
        message, remedy = f"it is not an image ({place})", "give NIfTI files, or 2D images"
    else:
        return
    raise DataError.about(file, message, remedy, case=entry.name)


def case_of(
    entry: Entry, files: Sequence[Path | None], channels: Sequence[str], label_field: str | None
) -> Case:
    """The case of an entry, with its label and its patient if the list has them."""
    label = entry.get(label_field) if label_field else ""
    return make_case(
        entry.name,
        files,
        channels,
        label=entry.path(label) if label else None,
        patient=entry.get("patient") or patient_of(entry.name),
    )


def note_columns(file: Path, unused: Sequence[str], label_field: str | None) -> list[Problem]:
    """Warnings about columns that are not used, and about a missing column of labels."""
    warnings = []
    if unused:
        message = f"the columns {list_some(unused)} hold no image files and are not used"
        remedy = "write names of images into them if that is wrong"
        warnings.append(Problem("", str(file), message, remedy, "warning"))
    if label_field is None:
        columns = " or ".join(LABEL_FIELDS)
        message = f"it has no column {columns}, so no case can be used for training or scoring"
        remedy = "add a column with the label files"
        warnings.append(Problem("", str(file), message, remedy, "warning"))
    return warnings


def find_label_field(file: Path, entries: Sequence[Entry]) -> str | None:
    """The one field for labels that the list has, or None."""
    fields = set[str]().union(*(entry.cells for entry in entries))
    found = [field for field in LABEL_FIELDS if field in fields]
    if len(found) > 1:
        message = f"it has the columns {' and '.join(found)}"
        raise DataError.about(file, message, "keep the one with the labels")
    return found[0] if found else None


def find_channels(
    file: Path, entries: Sequence[Entry], remedy: str
) -> tuple[tuple[str, ...], list[str]]:
    """The channels of a list, and the columns that are not used.

    Channels are the columns with images. Without such columns, the first file in the column `image`
    tells how many channels there are.
    """
    columns: dict[str, None] = {}  # a set that keeps the order
    for entry in entries:
        columns |= dict.fromkeys(name for name in entry.cells if name not in FIELDS)
    channels = [name for name in columns if has_images(entries, name)]
    unused = [name for name in columns if name not in channels]
    if len(channels) > MOST_CHANNELS:
        message = (
            f"it has {len(channels)} columns with images; at most {MOST_CHANNELS} channels are read"
        )
        raise DataError.about(file, message, "remove some")
    if channels:
        return tuple(channels), unused
    images = [entry.path(entry.get("image")) for entry in entries if entry.get("image")]
    if entries and not images:
        raise DataError.about(file, "it has no column with images", remedy)
    for image in images:
        if os.path.isfile(image):
            return name_channels(image), unused
    return ("image",), unused


def has_images(entries: Sequence[Entry], column: str) -> bool:
    return any(is_image(Path(entry.get(column))) for entry in entries)
