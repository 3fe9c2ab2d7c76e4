"""How much memory there is, and what a case gets that would take more, or whose file cannot be
opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from factorizer.data.cases import DataError, Problem
from factorizer.hardware import GIB, usable_bytes

REMEDY = "close other programs, resample or crop the image, or use a machine with more memory"


def refuse_too_large(case: str, file: str, wanted: float, what: str) -> None:
    """An error where something with a case takes more bytes than there are."""
    free = usable_bytes()
    if wanted > free:
        message = f"{what} takes about {wanted / GIB:.1f} GiB, and {free / GIB:.1f} GiB are free"
        raise DataError(Problem(case, file, message, REMEDY))


@contextmanager
def memory_errors(case: str, file: str = "") -> Iterator[None]:
    """Memory that runs out is a problem of the case, so that others can be worked on."""
    try:
        yield
    except MemoryError:
        raise DataError(Problem(case, file, "it takes more memory than there is", REMEDY)) from None
    except RuntimeError as error:
        if "allocate memory" not in str(error):  # as PyTorch says it
            raise
        raise DataError(Problem(case, file, "it takes more memory than there is", REMEDY)) from None


@contextmanager
def opening_errors(case: str, file: Path) -> Iterator[None]:
    """A file that is missing, forbidden or larger than memory is a problem of its case."""
    try:
        with memory_errors(case, str(file)):
            yield
    except FileNotFoundError:
        raise DataError(
            Problem(case, str(file), "the file is missing", "add it, or remove the case")
        ) from None
    except PermissionError:
        raise DataError(
            Problem(case, str(file), "the file cannot be read", "give yourself permission")
        ) from None
