"""Work on one case of many: what prevents it is a problem of this case, and the others continue."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from factorizer.bugs import write_bug_report
from factorizer.data.capacity import memory_errors
from factorizer.data.cases import DataError, Problem
from factorizer.errors import FactorizerError

Result = TypeVar("Result")


def attempt(case: str, work: Callable[[], Result]) -> tuple[Result | None, list[Problem]]:
    """Do something with a case: its result, or None and what prevented it.

    An error that nobody raised on purpose is a bug of ours. Its traceback is kept in a file, which
    the problem names.
    """
    try:
        with memory_errors(case):
            return work(), []
    except DataError as error:
        return None, list(error.problems)
    except FactorizerError as error:
        return None, [Problem(case, "", str(error), "the other cases continue")]
    except OSError as error:
        file = str(error.filename or "")
        return None, [
            Problem(case, file, f"it failed ({error.strerror or error})", "check the file")
        ]
    except Exception as error:
        report = write_bug_report(error)
        message = f"a bug in Factorizer ({type(error).__name__}: {error})"
        return None, [Problem(case, "", message, f"please report it with {report}", "bug")]
