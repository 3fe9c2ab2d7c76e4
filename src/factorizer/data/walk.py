"""Listing folders within bounds: neither a circle of links nor a pipe nor a tree without end holds
a command up."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from factorizer.data.cases import DataError, Problem
from factorizer.data.naming import NIFTI

MOST_ENTRIES = 1_000_000  # of a folder
MOST_DEEP_ENTRIES = 20_000  # of a folder and all below it
MOST_DEPTH = 8


def list_folder(folder: Path) -> list[Path]:
    """The files and folders in a folder, also by links, without the hidden files that some systems
    add.

    Pipes and devices are left out, as reading one can wait forever. A link to nothing stays: it is
    missed when read.
    """
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, MOST_ENTRIES + 1)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError:
        raise DataError(
            Problem("", str(folder), "the folder cannot be read", "give yourself permission")
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(
            Problem("", str(folder), f"the folder cannot be read ({error})", "check it")
        ) from None
    if len(names) > MOST_ENTRIES:
        raise too_many(folder, MOST_ENTRIES)
    paths = (folder / name for name in sorted(names) if not name.startswith("."))
    return [path for path in paths if is_ordinary(path)]


def is_ordinary(path: Path) -> bool:
    """Whether it is a file or a folder, or a link to one or to nothing."""
    return os.path.isfile(path) or os.path.isdir(path) or not os.path.exists(path)


def list_folders(folder: Path) -> list[Path]:
    return [path for path in list_folder(folder) if path.is_dir()]


def list_deep(folder: Path) -> list[Path]:
    """The files in a folder and below it. A folder is looked into once, however many links lead to
    it."""
    files: list[Path] = []
    visited: set[str] = set()
    waiting = [(folder, 0)]
    seen = 0
    while waiting:
        place, depth = waiting.pop()
        real = os.path.realpath(place)
        if real in visited:
            continue
        visited.add(real)
        entries = list_folder(place)
        seen += len(entries)
        if seen > MOST_DEEP_ENTRIES:
            raise too_many(folder, MOST_DEEP_ENTRIES)
        folders = [path for path in entries if path.is_dir()]
        files += [path for path in entries if not path.is_dir()]
        if depth < MOST_DEPTH:
            waiting += [(path, depth + 1) for path in reversed(folders)]
    return files


def too_many(folder: Path, most: int) -> DataError:
    message = f"it holds more than {most:,} files, also through links"
    return DataError(
        Problem(
            "", str(folder), message, "remove links that lead elsewhere, or give a smaller folder"
        )
    )


def files_ending(files: Iterable[Path], ending: str) -> list[Path]:
    """The NIfTI files whose name ends so."""
    endings = tuple(ending + nifti for nifti in NIFTI)
    return [file for file in files if file.name.endswith(endings) and not file.is_dir()]


def one_file(case: str, folder: Path, files: Iterable[Path], ending: str) -> Path | None:
    """The only file of a folder that ends so, or None; several are an error."""
    found = files_ending(files, ending)
    if len(found) > 1:
        names = " and ".join(str(file.relative_to(folder)) for file in found[:2])
        raise DataError(
            Problem(case, str(folder), f"{names} both end in {ending}", "keep the right one")
        )
    return found[0] if found else None


def missing_file(case: str, file: Path, what: str) -> Problem:
    return Problem(case, str(file), f"the file is missing ({what})", "add it, or remove the case")
