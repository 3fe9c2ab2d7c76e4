"""Listing folders within bounds, even with circles of links, pipes and endless trees in them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from factorizer.data.cases import DataError, Problem
from factorizer.data.naming import NIFTI

MOST_ENTRIES = 1_000_000  # in one folder
MOST_DEEP_ENTRIES = 20_000  # in one folder and all folders below it
MOST_DEPTH = 8


def list_folder(folder: Path) -> list[Path]:
    """The files and folders in a folder, sorted by name.

    A folder that does not exist is empty. Hidden files are skipped. Links are followed. Pipes and
    devices are skipped, because reading one can wait forever. A link to nothing is kept: reading it
    later says that the file is missing.
    """
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, MOST_ENTRIES + 1)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError:
        message = "the folder cannot be read"
        raise DataError.about(folder, message, "change its permissions") from None
    except (OSError, ValueError) as error:
        message = f"the folder cannot be read ({error})"
        raise DataError.about(folder, message, "check it") from None
    if len(names) > MOST_ENTRIES:
        raise too_many(folder, MOST_ENTRIES)
    paths = [folder / name for name in sorted(names) if not name.startswith(".")]
    return [path for path in paths if is_ordinary(path)]


def is_ordinary(path: Path) -> bool:
    """Whether the path is a file, a folder, or a link to a file, to a folder or to nothing."""
    return os.path.isfile(path) or os.path.isdir(path) or not os.path.exists(path)


def list_folders(folder: Path) -> list[Path]:
    """The folders in a folder."""
    return [path for path in list_folder(folder) if path.is_dir()]


def list_deep(folder: Path) -> list[Path]:
    """The files in a folder and in all folders below it.

    Each folder is listed once, even if several links lead to it.
    """
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
    message = f"it holds more than {most:,} files, including links"
    remedy = "remove links that lead elsewhere, or give a smaller folder"
    return DataError.about(folder, message, remedy)


def files_ending(files: Iterable[Path], ending: str) -> list[Path]:
    """The NIfTI files whose name ends in `ending`."""
    endings = tuple(ending + nifti for nifti in NIFTI)
    return [file for file in files if file.name.endswith(endings) and not file.is_dir()]


def one_file(case: str, folder: Path, files: Iterable[Path], ending: str) -> Path | None:
    """The only NIfTI file of a folder whose name ends in `ending`, or None.

    Several such files are an error of the case.
    """
    found = files_ending(files, ending)
    if len(found) > 1:
        names = [str(file.relative_to(folder)) for file in found[:2]]
        message = f"{' and '.join(names)} both end in {ending}"
        raise DataError.about(folder, message, "keep the right one", case=case)
    return found[0] if found else None


def missing_file(case: str, file: Path, what: str) -> Problem:
    """The problem of a case without a file that it needs. `what` says what the file is for."""
    return Problem(case, str(file), f"the file is missing ({what})", "add it, or remove the case")
