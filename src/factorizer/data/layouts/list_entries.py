"""The entries of a list of cases: the rows of a CSV file, or the objects of a JSON file."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factorizer.data.cases import DataError, Problem, list_some
from factorizer.data.naming import canonical_channel
from factorizer.files import FileError, read_csv, read_json, read_text

LABEL_FIELDS = ("label", "mask", "seg")
FIELDS = ("case", "image", "patient", *LABEL_FIELDS)  # every other field is a channel
LONGEST_NAME = 200  # bytes of a case's name, which becomes part of file names
MOST_SHOWN = 40  # letters of a wrong value

Row = tuple[str, Mapping[str, Any]]  # where a row is in the list, and its cells as written


@dataclass(frozen=True)
class Entry:
    """One case of a list.

    `place` says where in the file it is. `cells` has the fields in lower case and the channels in
    canonical spelling.
    """

    file: Path
    place: str
    cells: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.get("case")

    def get(self, field: str) -> str:
        """The cell of a field, empty if the entry does not have it."""
        return self.cells.get(field, "")

    def path(self, cell: str) -> Path:
        """The path that a cell means. It is relative to the folder of the list."""
        return self.file.parent / cell

    def error(self, message: str, remedy: str) -> DataError:
        return DataError.about(self.file, f"{self.place}: {message}", remedy, case=self.name)


def read_entries(file: Path, remedy: str) -> tuple[list[Entry], list[Problem]]:
    """The entries of a list with valid cells and names, and the problems of the others.

    `remedy` says which fields the list must have.
    """
    rows = read_rows(file, remedy)
    names: dict[str, None] = {}  # a set that keeps the order
    for _, row in rows:
        names |= dict.fromkeys(row)
    if "case" not in map(str.lower, names):
        message = f"its columns are {list_some(list(names))}, and none is case"
        raise DataError.about(file, message, remedy)
    entries: list[Entry] = []
    problems: list[Problem] = []
    for place, row in rows:
        try:
            entry = Entry(file, place, clean_row(file, place, row))
            check_name(entry, remedy)
        except DataError as error:
            problems += error.problems
        else:
            entries.append(entry)
    return entries, problems


def read_rows(file: Path, remedy: str) -> list[Row]:
    """The rows of a list. At least one."""
    is_json = file.suffix.lower() == ".json"
    try:
        rows = read_json_rows(file, remedy) if is_json else read_csv_rows(file)
    except FileError as error:
        raise DataError.about(error.file, error.reason, error.remedy) from None
    if not rows:
        raise DataError.about(file, "it holds no list of cases", remedy)
    return rows


def read_csv_rows(file: Path) -> list[Row]:
    """The rows of a CSV file, with the names of columns as they are written."""
    rows: list[Row] = []
    first = read_text(file).partition("\n")[0]
    written = [name.strip(' "\r') for name in re.split(r"[,;\t]", first)]
    spelling = {name.lower(): name for name in written}
    for line, row in read_csv(file):
        cells = {spelling.get(name, name): cell for name, cell in row.items()}
        rows.append((f"line {line}", cells))
    return rows


def read_json_rows(file: Path, remedy: str) -> list[Row]:
    """The objects in the list of a JSON file."""
    rows = read_json(file)
    if isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
        return [(f"entry {number}", row) for number, row in enumerate(rows, start=1)]
    if isinstance(rows, dict) and rows.keys() & {"channel_names", "modality"}:
        remedy = f"it describes a data set; give its folder, {file.parent}"
    raise DataError.about(file, "it holds no list of cases", remedy)


def clean_row(file: Path, place: str, row: Mapping[str, Any]) -> dict[str, str]:
    """The cells as text, with fields in lower case and channels in canonical spelling."""
    cells: dict[str, str] = {}
    for written, value in row.items():
        name = written.strip().lower()
        if name not in FIELDS:
            name = canonical_channel(written)
        if not name or value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            message = f"{place}: {name} is {str(value)[:MOST_SHOWN]!r}"
            raise DataError.about(file, message, "give a text")
        if name in cells:
            message = f"{place}: several fields are named {name} ({', '.join(row)})"
            raise DataError.about(file, message, "keep one of them")
        text = str(value).strip()
        if has_control_character(text):
            message = f"{place}: {name} has a control character"
            raise DataError.about(file, message, "remove it")
        cells[name] = text
    return cells


def has_control_character(text: str) -> bool:
    return any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text)


def check_name(entry: Entry, remedy: str) -> None:
    """Refuse an entry whose case has no name, or a name that a file cannot have."""
    name = entry.name
    if not name:
        raise entry.error("it has no case", remedy)
    is_path = re.search(r"[/\\]|^\.{1,2}$", name) is not None
    if is_path or len(name.encode()) > LONGEST_NAME:
        message = f"{name[:80]} cannot be part of the name of a file"
        remedy = (
            f"leave out slashes, do not call it . or .., and take at most {LONGEST_NAME} letters"
        )
        raise entry.error(message, remedy)
