"""Reading and writing files: text, JSON, YAML and CSV within bounds, and writing so that a crash
leaves the old file or the new one, never half of either."""

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
    """A text, JSON, YAML or CSV file that cannot be used: the file, what is wrong with it, and what
    to do."""

    def __init__(
        self, file: Path | str, reason: str, remedy: str = "fix or replace the file"
    ) -> None:
        super().__init__(f"{file}: {reason}; {remedy}")
        self.file, self.reason, self.remedy = str(file), reason, remedy


def read_text(file: Path, *, most_bytes: int = MOST_BYTES) -> str:
    """A text file in UTF-8, with or without a byte order mark. Pipes, devices and huge files are
    refused unread."""
    try:
        status = os.stat(file)
        if not stat.S_ISREG(status.st_mode):
            raise FileError(file, "it is not a regular file", "give a file")
        if status.st_size > most_bytes:
            raise FileError(
                file,
                f"it has {status.st_size:,} bytes; at most {most_bytes:,} are read",
                "give another",
            )
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise FileError(file, "there is no such file", "add it, or give another") from None
    except UnicodeDecodeError:
        raise FileError(file, "it is not text in UTF-8") from None
    except OSError as error:
        raise FileError(
            file, f"it cannot be read ({error.strerror})", "check its permissions"
        ) from None


def read_json(file: Path) -> Any:
    """What a JSON file holds."""
    text = read_text(file)
    try:
        return json.loads(text)
    except ValueError as error:
        raise FileError(file, f"it is not JSON ({error})") from None
    except RecursionError:
        raise FileError(file, "its lists are nested too deep") from None


def read_csv(file: Path) -> list[tuple[int, dict[str, str]]]:
    """The rows of a table with a line of names above, each with the number of its line.

    Columns are separated by commas,
    semicolons or tabs. Names are in small letters, and a cell that a row does not have is empty.
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
                raise FileError(file, message, "quote cells that hold the separator")
            cells = [cell.strip() for cell in row] + [""] * (len(names) - len(row))
            if any(cells):
                rows.append((reader.line_num, dict(zip(names, cells, strict=True))))
    except csv.Error as error:
        raise FileError(file, f"it is not a table (line {reader.line_num}: {error})") from None
    return rows


class BoundedLoader(yaml.SafeLoader):
    """Plain YAML: aliases, which can stand for more than memory holds, and deep nesting are
    refused."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not read; write the value out")
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
                    f"line {key.start_mark.line + 1}: a name must be text, not a list or names"
                )
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """What a YAML text holds; a `yaml.YAMLError` says what is wrong with it."""
    if len(text) > MOST_YAML_BYTES:
        raise yaml.YAMLError(
            f"it has {len(text):,} characters; at most {MOST_YAML_BYTES:,} are read"
        )
    try:
        return yaml.load(text, BoundedLoader)
    except (ValueError, OverflowError) as error:  # a date or number that cannot be
        raise yaml.YAMLError(str(error)) from None


def refuse_existing(*files: Path) -> None:
    """Raise if one of these files exists. Nothing is overwritten."""
    for file in files:
        if file.exists():
            raise FactorizerError(f"{file} already exists; give another name")


def require_empty_folder(folder: Path) -> None:
    """Raise unless a folder is empty or does not exist yet."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FactorizerError(f"{folder} is not an empty folder; give another folder")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write beside the file, then put it in its place."""
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
        os.chmod(name, 0o666 & ~umask)  # as an ordinary new file; mkstemp's is private
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def remove_leftovers(*paths: Path) -> None:
    """Remove what `write_atomically` leaves beside these files when its process is killed.

    Only for one who keeps others from writing them now, as by a lock.
    """
    for path in paths:
        name = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}")  # as mkstemp names it
        for file in path.parent.glob(".*"):
            if name.fullmatch(file.name) and file.is_file() and not file.is_symlink():
                file.unlink(missing_ok=True)


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a line of names above."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()
