"""Work on one case of many. A failure is a problem of this case, and the others continue."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from factorizer.bugs import write_bug_report
from factorizer.data.capacity import memory_errors
from factorizer.data.cases import DataError, Problem
from factorizer.errors import FactorizerError

Result = TypeVar("Result")
LOG = logging.getLogger(__name__)  # `--debug` shows it
WRITING = Lock()  # two threads must not choose the same name for their reports


def attempt(
    case: str, work: Callable[[], Result], *, raises: tuple[type[Exception], ...] = ()
) -> tuple[Result | None, list[Problem]]:
    """Do `work` for a case. Returns its result, or None and the problems that prevented it.

    An error that nobody raised on purpose is a bug of ours. Its traceback goes to a file, which the
    problem names. Errors of the types `raises` concern all cases, and are raised.
    """
    try:
        with memory_errors(case):
            return work(), []
    except raises:
        raise
    except Exception as error:
        LOG.debug("the case %s failed", case, exc_info=True)
        return None, problems_of(case, error)


def problems_of(case: str, error: Exception) -> list[Problem]:
    """What an error means for its case. A bug gets a report."""
    if isinstance(error, DataError):
        return list(error.problems)
    if isinstance(error, FactorizerError):
        return [Problem(case, "", str(error), "the other cases continue")]
    if isinstance(error, OSError):
        message = f"it failed ({error.strerror or error})"
        return [Problem(case, str(error.filename or ""), message, "check the file")]
    with WRITING:
        report = write_bug_report(error)
    message = f"a bug in Factorizer ({type(error).__name__}: {error})"
    return [Problem(case, "", message, f"please report it with {report}", "bug")]
