"""Lists of cases in a CSV or JSON file: the fields `case`, one per channel or `image` for a file
with all of them, and for training `label` (or `mask`, `seg`) and, if a patient has several cases,
`patient`.

Names of fields may be in capitals or not, and files are named from the list's folder.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factorizer.data.cases import (
    Case,
    Cohort,
    DataError,
    Problem,
    Source,
    drop_duplicates,
    list_some,
)
from factorizer.data.headers import name_channels
from factorizer.data.naming import (
    MOST_CHANNELS,
    NUMBERED,
    canonical_channel,
    is_image,
    patient_of,
    split_channel,
    strip_ending,
)
from factorizer.files import FileError, read_csv, read_json, read_text

LIST_ENDINGS = (".csv", ".json")
LABEL_FIELDS = ("label", "mask", "seg")
FIELDS = ("case", "image", "patient", *LABEL_FIELDS)
LONGEST_NAME = 200


@dataclass(frozen=True)
class Entry:
    """A case of a list: where it stands, and its cells by the name of the field, of channels in
    canonical spelling."""

    place: str
    cells: Mapping[str, str]

    def get(self, field: str) -> str:
        return self.cells.get(field, "")


def read_list(file: Path, channels: Sequence[str]) -> tuple[list[Case], list[Problem]]:
    """The cases of a list with the channels of a model, and what is wrong with others."""
    remedy = f"give each case the fields case and {', '.join(channels)}, or case and image"
    entries, problems = read_entries(file, remedy)
    label = label_field(file, entries)

    def make(entry: Entry) -> Case:
        cells = {name.lower(): cell for name, cell in entry.cells.items()}
        fields = {channel: canonical_channel(channel).lower() for channel in channels}
        absent = [channel for channel, field in fields.items() if not cells.get(field)]
        if absent and not cells.get("image"):
            raise fault(file, entry, f"{entry.get('case')} has no {absent[0]}", remedy)
        wanted = ["image"] if cells.get("image") else fields.values()
        files = [file.parent / cells[field] for field in wanted]
        return add_label(make_case(entry.get("case"), files, channels), file, entry, label)

    return collect(entries, problems, make)


def read_list_cohort(file: Path) -> Cohort:
    """The cases of a list with the channels that it names; what its labels are called is not
    known."""
    remedy = "give each case the fields case, label and one per channel, or case, label and image"
    entries, problems = read_entries(file, remedy)
    label = label_field(file, entries)
    channels, idle = find_channels(file, entries, remedy)
    if idle:
        message = f"the columns {list_some(idle)} hold no image files and are not used"
        problems.append(
            Problem(
                "",
                str(file),
                message,
                "write names of images into them if that is wrong",
                "warning",
            )
        )
    if label is None:
        message = (
            f"it has no column {' or '.join(LABEL_FIELDS)}: there is nothing to train on or to "
            "score"
        )
        problems.append(Problem("", str(file), message, "add one with the label files", "warning"))

    def make(entry: Entry) -> Case:
        wanted = ["image"] if entry.get("image") else list(channels)
        for field in (*wanted, *([label] if label else [])):
            if entry.get(field):
                check_file(file, entry, field)
            elif field != label:
                raise fault(file, entry, f"{entry.get('case')} has no {field}", remedy)
        files = [file.parent / entry.get(field) for field in wanted]
        case = add_label(make_case(entry.get("case"), files, channels), file, entry, label)
        if label and case.label is None:
            problems.append(
                fault(
                    file, entry, f"{case.name} has no {label}", "add it, or remove the case"
                ).problems[0]
            )
        return case

    cases, problems = collect(entries, problems, make)
    return Cohort(file, "list", tuple(cases), channels, {}, {}, problems=tuple(problems))


def collect(
    entries: Sequence[Entry], problems: list[Problem], make: Callable[[Entry], Case]
) -> tuple[list[Case], list[Problem]]:
    """The cases of the entries that can be made, and all problems."""
    cases = []
    for entry in entries:
        try:
            cases.append(make(entry))
        except DataError as error:
            problems.extend(error.problems)
    kept, duplicates = drop_duplicates(cases)
    return kept, [*problems, *duplicates]


def fault(file: Path, entry: Entry, message: str, remedy: str) -> DataError:
    return DataError(Problem(entry.get("case"), str(file), f"{entry.place}: {message}", remedy))


def read_entries(file: Path, remedy: str) -> tuple[list[Entry], list[Problem]]:
    """The entries of a list whose cells are texts and whose case has a name that a file can
    have."""
    try:
        rows = (
            read_json_rows(file, remedy) if file.suffix.lower() == ".json" else read_csv_rows(file)
        )
    except FileError as error:
        raise DataError(Problem("", error.file, error.reason, error.remedy)) from None
    if not rows:
        raise DataError(Problem("", str(file), "it holds no list of cases", remedy))
    names = list(dict.fromkeys(str(name) for _, row in rows for name in row))
    if "case" not in map(str.lower, names):
        raise DataError(
            Problem("", str(file), f"its columns are {list_some(names)}, and none is case", remedy)
        )
    entries: list[Entry] = []
    problems: list[Problem] = []
    for place, row in rows:
        try:
            entry = Entry(place, clean_row(file, place, row))
            check_name(file, entry, remedy)
            entries.append(entry)
        except DataError as error:
            problems.extend(error.problems)
    return entries, problems


def read_csv_rows(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """Rows under the names of their columns as written."""
    rows = read_csv(file)
    first = read_text(file).partition("\n")[0]
    written = (name.strip(' "\r') for name in re.split(r"[,;\t]", first))
    spelling = {name.lower(): name for name in written}
    return [
        (f"line {line}", {spelling.get(name, name): cell for name, cell in row.items()})
        for line, row in rows
    ]


def read_json_rows(file: Path, remedy: str) -> list[tuple[str, dict[str, Any]]]:
    rows = read_json(file)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        if isinstance(rows, dict) and rows.keys() & {"channel_names", "modality"}:
            remedy = f"it describes a data set; give its folder, {file.parent}"
        raise DataError(Problem("", str(file), "it holds no list of cases", remedy))
    return [(f"entry {number}", row) for number, row in enumerate(rows, start=1)]


def clean_row(file: Path, place: str, row: Mapping[str, Any]) -> dict[str, str]:
    """Cells as texts, fields in small letters and channels in canonical spelling."""
    cells: dict[str, str] = {}
    for written, value in row.items():
        name = written.strip().lower()
        name = name if name in FIELDS else canonical_channel(written)
        if not name or value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            message = f"{place}: {name} is {str(value)[:40]!r}"
            raise DataError(Problem("", str(file), message, "give a text"))
        if name in cells:
            message = f"{place}: several fields are named {name} ({', '.join(row)})"
            raise DataError(Problem("", str(file), message, "keep one of them"))
        text = str(value).strip()
        if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text):
            message = f"{place}: {name} has a control character"
            raise DataError(Problem("", str(file), message, "remove it"))
        cells[name] = text
    return cells


def check_name(file: Path, entry: Entry, remedy: str) -> None:
    """The name of a case becomes that of files."""
    name = entry.get("case")
    if not name:
        raise fault(file, entry, "it has no case", remedy)
    if re.search(r"[/\\]|^\.{1,2}$", name) or len(name.encode()) > LONGEST_NAME:
        message = f"{name[:80]} has no name that can be a file's"
        remedy = (
            f"leave out slashes, do not call it . or .., and take at most {LONGEST_NAME} letters"
        )
        raise fault(file, entry, message, remedy)


def label_field(file: Path, entries: Sequence[Entry]) -> str | None:
    """Which of the fields for labels a list has."""
    found = [field for field in LABEL_FIELDS if any(field in entry.cells for entry in entries)]
    if len(found) > 1:
        message = f"it has the columns {' and '.join(found)}"
        raise DataError(Problem("", str(file), message, "keep the one with the labels"))
    return found[0] if found else None


def find_channels(
    file: Path, entries: Sequence[Entry], remedy: str
) -> tuple[tuple[str, ...], list[str]]:
    """The columns with images, or as many names as the first `image` has channels; and the columns
    without."""
    others = dict.fromkeys(name for entry in entries for name in entry.cells if name not in FIELDS)
    channels = [
        name for name in others if any(is_image(Path(entry.get(name))) for entry in entries)
    ]
    images = (file.parent / entry.get("image") for entry in entries if entry.get("image"))
    first = next((image for image in images if os.path.isfile(image)), None)
    if not channels and entries and not any(entry.get("image") for entry in entries):
        raise DataError(Problem("", str(file), "it has no column with images", remedy))
    if len(channels) > MOST_CHANNELS:
        message = (
            f"it has {len(channels)} columns with images; at most {MOST_CHANNELS} channels are read"
        )
        raise DataError(Problem("", str(file), message, "remove some"))
    named = tuple(channels) or (name_channels(first) if first else ("image",))
    return named, [name for name in others if name not in channels]


def check_file(file: Path, entry: Entry, field: str) -> None:
    """A file that a list names must be there, and an image."""
    named = file.parent / entry.get(field)
    if not os.path.isfile(named):
        what = "it is not a file" if os.path.exists(named) else "the file is missing"
        message = f"{what} ({field}, {entry.place} of {file.name})"
        raise DataError(
            Problem(entry.get("case"), str(named), message, "add it, or correct the list")
        )
    if not is_image(named):
        message = f"it is no image ({field}, {entry.place} of {file.name})"
        raise DataError(
            Problem(entry.get("case"), str(named), message, "give NIfTI files, or pictures for 2D")
        )


def add_label(case: Case, file: Path, entry: Entry, field: str | None) -> Case:
    label = file.parent / entry.get(field) if field and entry.get(field) else None
    return Case(case.name, case.channels, label, entry.get("patient") or patient_of(case.name))


def make_case(name: str, files: Sequence[Path], channels: Sequence[str]) -> Case:
    """One file per channel, or one with all of them."""
    if len(files) == 1:
        return Case(
            name, {c: Source(files[0], index, len(channels)) for index, c in enumerate(channels)}
        )
    check_order(name, files, channels)
    return Case(name, {c: Source(file) for c, file in zip(channels, files, strict=True)})


def check_order(name: str, files: Sequence[Path], channels: Sequence[str]) -> None:
    """Each channel has a file of its own, and files that are named or numbered after channels are
    in their order."""
    remedy = f"give the files in the order {', '.join(channels)}"
    numbers = [NUMBERED.fullmatch(strip_ending(file.name)) for file in files]
    expected = [f"{number:04d}" for number in range(len(channels))]
    numbered = sorted(match[2] for match in numbers if match) == expected
    for file, channel, match, number in zip(files, channels, numbers, expected, strict=True):
        named = split_channel(strip_ending(file.name), channels)
        if named is not None and named[1] != channel:
            message = f"it is named as {named[1]}, but stands where {channel} belongs"
            raise DataError(Problem(name, str(file), message, remedy))
        if numbered and match and match[2] != number:
            message = f"it has the number {match[2]}, but stands where {channel}, {number}, belongs"
            raise DataError(Problem(name, str(file), message, remedy))
        if files.count(file) > 1:
            message = f"it stands for {files.count(file)} channels"
            raise DataError(
                Problem(
                    name, str(file), message, f"give each of {', '.join(channels)} its own file"
                )
            )
