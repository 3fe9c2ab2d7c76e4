"""Commands that are stopped by Ctrl-C or SIGTERM say how to continue, and end with the exit code
that shells expect."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from factorizer.commands.console import say


class Terminated(BaseException):
    """SIGTERM came. As with Ctrl-C, what is half written is removed on the way out."""


@contextmanager
def stoppable(advice: str) -> Iterator[None]:
    """Print advice where the command is stopped; the exit code is then 130 for Ctrl-C and 143 for
    SIGTERM."""
    try:
        with sigterm_raises():
            yield
    except KeyboardInterrupt:
        say(advice)
        raise typer.Exit(128 + signal.SIGINT) from None
    except Terminated:
        say(advice)
        raise typer.Exit(128 + signal.SIGTERM) from None


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Turn SIGTERM into an exception. Only the main thread can: elsewhere the signal does what it
    did."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
