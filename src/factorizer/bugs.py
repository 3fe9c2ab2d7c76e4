"""Bug reports: what happened and where, in a file that a user can send."""

from __future__ import annotations

import platform
import sys
import tempfile
import traceback
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from factorizer import __version__
from factorizer.files import write_atomically

PACKAGES = ("torch", "lightning", "monai", "numpy", "nibabel", "pydantic", "typer")
MOST_NAMES = 1000  # reports of one second in one folder
WRITTEN: dict[tuple[Path, str], Path] = {}  # folder and place in the code -> the report


def write_bug_report(error: BaseException, folder: Path | None = None) -> Path:
    """Write the traceback of an error to a new file, and return the file.

    The file is in the working folder unless another is given. It is in the folder for temporary
    files if that cannot be written to. A bug that comes again at the same place in the code, as in
    many cases of a cohort, gets no second file.
    """
    wanted = folder or Path.cwd()
    key = (wanted, type(error).__name__ + "".join(traceback.format_tb(error.__traceback__)))
    known = WRITTEN.get(key)
    if known is not None and known.exists():
        return known
    text = describe_bug(error)
    for place in (wanted, Path(tempfile.gettempdir())):
        file = new_file(place)
        try:
            write_atomically(file, text)
        except OSError:
            continue
        WRITTEN[key] = file
        return file
    raise error


def describe_bug(error: BaseException) -> str:
    """The command, the versions and the traceback."""
    versions = [f"factorizer {__version__}", f"Python {platform.python_version()}"]
    versions += [f"{package} {installed(package)}" for package in PACKAGES]
    lines = traceback.format_exception(error)
    return (
        f"command: {' '.join(sys.argv)}\n"
        f"system: {platform.platform()}\n"
        f"versions: {', '.join(versions)}\n\n"
        f"{''.join(lines)}"
    )


def installed(package: str) -> str:
    """The version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def new_file(folder: Path) -> Path:
    """A name that no file has yet."""
    time = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    names = [f"factorizer-bug-{time}.txt"]
    names += [f"factorizer-bug-{time}-{number}.txt" for number in range(2, MOST_NAMES)]
    return next(folder / name for name in names if not (folder / name).exists())
