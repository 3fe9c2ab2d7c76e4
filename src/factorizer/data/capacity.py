"""Cases that need more memory than is available, and files that cannot be opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from factorizer.data.cases import DataError, Problem
from factorizer.hardware import GIB, usable_bytes

REMEDY = "close other programs, resample or crop the image, or use a machine with more memory"


def refuse_too_large(case: str, file: str, wanted: float, what: str, remedy: str = REMEDY) -> None:
    """Refuse work on a case that needs more bytes than this process can have."""
    free = usable_bytes()
    if wanted > free:
        message = f"{what} takes about {wanted / GIB:.1f} GiB, and {free / GIB:.1f} GiB are free"
        raise DataError(Problem(case, file, message, remedy))


@contextmanager
def memory_errors(case: str, file: str = "") -> Iterator[None]:
    """Turn an error of memory into a problem of the case, so that other cases can continue."""
    problem = Problem(case, file, "it needs more memory than is available", REMEDY)
    try:
        yield
    except MemoryError:
        raise DataError(problem) from None
    except RuntimeError as error:
        if "allocate memory" not in str(error):  # PyTorch's words
            raise
        raise DataError(problem) from None


@contextmanager
def opening_errors(case: str, file: Path) -> Iterator[None]:
    """Turn an error of opening a file into a problem of its case."""
    missing = Problem(case, str(file), "the file is missing", "add it, or remove the case")
    forbidden = Problem(case, str(file), "the file cannot be read", "change its permissions")
    try:
        with memory_errors(case, str(file)):
            yield
    except FileNotFoundError:
        raise DataError(missing) from None
    except PermissionError:
        raise DataError(forbidden) from None
