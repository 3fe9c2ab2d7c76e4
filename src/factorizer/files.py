"""Reading and writing files.

Text, JSON, YAML and CSV are read within bounds. A crash while a file is written leaves the old file
or the new one, never half of either.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from factorizer.errors import FactorizerError

MOST_BYTES = 64 * 2**20  # of a text file
MOST_YAML_BYTES = 2**20
MOST_YAML_DEPTH = 30


class FileError(FactorizerError):
    """A text, JSON, YAML or CSV file that cannot be used: which file, what is wrong, what to do."""

    def __init__(
        self, file: Path | str, reason: str, remedy: str = "fix or replace the file"
    ) -> None:
        super().__init__(f"{file}: {reason}; {remedy}")
        self.file = str(file)
        self.reason = reason
        self.remedy = remedy


def read_text(file: Path, *, most_bytes: int = MOST_BYTES) -> str:
    """The content of a text file in UTF-8, with or without a byte order mark.

    Pipes, devices and files of more than `most_bytes` are refused before they are read.
    """
    try:
        status = os.stat(file)
        if not stat.S_ISREG(status.st_mode):
            raise FileError(file, "it is not a regular file", "give a file")
        if status.st_size > most_bytes:
            message = f"it has {status.st_size:,} bytes; at most {most_bytes:,} are read"
            raise FileError(file, message, "give another file")
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise FileError(file, "there is no such file", "add it, or give another file") from None
    except UnicodeDecodeError:
        raise FileError(file, "it is not text in UTF-8") from None
    except OSError as error:
        message = f"it cannot be read ({error.strerror})"
        raise FileError(file, message, "check its permissions") from None


def read_json(file: Path) -> Any:
    """The content of a JSON file."""
    text = read_text(file)
    try:
        return json.loads(text)
    except ValueError as error:
        raise FileError(file, f"it is not JSON ({error})") from None
    except RecursionError:
        raise FileError(file, "its lists are nested too deep") from None


def read_csv(file: Path) -> list[tuple[int, dict[str, str]]]:
    """The rows of a table, each with the number of its line. The first line names the columns.

    Columns are separated by commas, semicolons or tabs. Names of columns come in small letters.
    Cells that a row lacks are empty, and empty rows are skipped.
    """
    text = read_text(file)
    first = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count))
    rows: list[tuple[int, dict[str, str]]] = []
    try:
        names = [name.strip().lower() for name in next(reader, [])]
        if len(set(names)) < len(names):
            raise FileError(file, f"its columns are {', '.join(names)}", "name each column once")
        for row in reader:
            if len(row) > len(names):
                message = f"line {reader.line_num} has {len(row)} cells for {len(names)} columns"
                raise FileError(file, message, "quote cells that contain the separator")
            cells = [cell.strip() for cell in row]
            cells += [""] * (len(names) - len(row))
            if any(cells):
                rows.append((reader.line_num, dict(zip(names, cells, strict=True))))
    except csv.Error as error:
        raise FileError(file, f"it is not a table (line {reader.line_num}: {error})") from None
    return rows


class BoundedLoader(yaml.SafeLoader):
    """Reads plain YAML. It refuses deep nesting, and aliases, which can expand beyond memory."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not read; write out the value")
        self.depth += 1
        if self.depth > MOST_YAML_DEPTH:
            raise yaml.YAMLError("it is nested too deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.YAMLError(
                    f"line {key.start_mark.line + 1}: a name must be text, not a list or a section"
                )
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """The content of a YAML text. A `yaml.YAMLError` says what is wrong with it."""
    if len(text) > MOST_YAML_BYTES:
        raise yaml.YAMLError(
            f"it has {len(text):,} characters; at most {MOST_YAML_BYTES:,} are read"
        )
    try:
        return yaml.load(text, BoundedLoader)
    except (ValueError, OverflowError) as error:  # an impossible date or number
        raise yaml.YAMLError(str(error)) from None


def refuse_existing(*files: Path) -> None:
    """Raise if one of these files exists. Nothing is overwritten."""
    for file in files:
        if file.exists():
            raise FactorizerError(f"{file} already exists; give another name")


def require_ending(parameter: str, file: Path, *endings: str) -> None:
    """Raise unless the name of a file ends as its content needs. `parameter` is what it is for."""
    if file.suffix not in endings:
        raise FactorizerError(
            f"{parameter} is {file}; give a name that ends in {' or '.join(endings)}"
        )


def require_empty_folder(folder: Path) -> None:
    """Raise unless a folder is empty or does not exist yet."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FactorizerError(f"{folder} is not an empty folder; give another folder")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that it is never half written: first beside it, then in its place."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # like other new files; mkstemp's are private
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def remove_leftovers(*paths: Path) -> None:
    """Remove the files that `write_atomically` leaves beside these when its process is killed.

    The caller must keep other processes from writing these files, such as by a lock.
    """
    for path in paths:
        name = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}")  # as mkstemp names it
        for file in path.parent.glob(".*"):
            if name.fullmatch(file.name) and file.is_file() and not file.is_symlink():
                file.unlink(missing_ok=True)


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as text, with a line of column names first."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()
