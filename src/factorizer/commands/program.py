"""How the command line ends, and with which exit code.

| exit code | meaning |
|---|---|
| 0 | everything worked |
| 1 | some cases have errors, and the others were worked on |
| 2 | an error that the user can fix |
| 70 | a bug in Factorizer; its report is in a file |
| 130, 143 | stopped by Ctrl-C or SIGTERM |
"""

from __future__ import annotations

import errno
import logging
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from factorizer.bugs import write_bug_report
from factorizer.commands.console import print_marked
from factorizer.errors import FactorizerError

if TYPE_CHECKING:
    from factorizer.data.cases import Problem

SOME_FAILED, USER_ERROR, BUG = 1, 2, 70
DEBUG = "--debug"


class Program(TyperGroup):
    """The commands, with one place that reports their errors. `--debug` may stand anywhere."""

    debug = False

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        self.debug = DEBUG in words
        return super().main([word for word in words if word != DEBUG], *rest, **options)

    def make_context(self, *words: Any, **options: Any) -> Any:
        with reported_usage():
            return super().make_context(*words, **options)

    def invoke(self, ctx: Any) -> Any:
        log = shown_log() if self.debug else nullcontext()
        with log, reported_usage(), reported_errors(debug=self.debug):
            return super().invoke(ctx)


@contextmanager
def shown_log() -> Iterator[None]:
    """Show the log on standard error. It has the tracebacks of cases that failed."""
    log, handler = logging.getLogger("factorizer"), logging.StreamHandler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@contextmanager
def reported_usage() -> Iterator[None]:
    """Show a command line that cannot be understood in one line, with where to read more."""
    try:
        yield
    except TyperException as error:
        message = error.format_message().rstrip(".")
        if message:  # otherwise the help was asked for by no words at all, and is printed
            place = getattr(error, "ctx", None)
            command = place.command_path if place else "factorizer"
            print_marked("Error:", "red", f"{message}; see {command} --help")
        raise typer.Exit(USER_ERROR) from None


@contextmanager
def reported_errors(*, debug: bool = False) -> Iterator[None]:
    """Show an error that the user can fix in one line, and call every other error a bug."""
    try:
        yield
    except (typer.Exit, typer.Abort, TyperException):
        raise  # Typer's own ways to end
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            raise  # whoever read the output has stopped
        if debug:
            traceback.print_exception(error)
        if isinstance(error, FactorizerError | OSError | MemoryError):
            print_marked("Error:", "red", describe(error))
            raise typer.Exit(USER_ERROR) from None
        print_bug(error, write_bug_report(error))
        raise typer.Exit(BUG) from None


def exit_for(problems: Iterable[Problem]) -> None:
    """End with the exit code of what was found in a cohort. Warnings end well."""
    severities = {problem.severity for problem in problems}
    if "bug" in severities:
        raise typer.Exit(BUG)
    if "error" in severities:
        raise typer.Exit(SOME_FAILED)


def describe(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "not enough memory; close other programs, or use a larger machine"
    return str(error)


def print_bug(error: BaseException, report: Path) -> None:
    """Say that it is our fault, where the report is, and what to do with it."""
    first_line = str(error).partition("\n")[0]
    print_marked(
        "Bug:",
        "red",
        f"{type(error).__name__}: {first_line}\n"
        "This is a mistake in Factorizer, not in your data or command. "
        f"The details are in {report}. Please open an issue and attach this file. "
        "It contains paths and names of cases: look through it first.",
    )
