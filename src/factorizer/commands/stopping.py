"""A command that Ctrl-C or SIGTERM stops says how to resume, and ends with a shell's exit code."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer

from factorizer.terminal import say
from factorizer.training.signals import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stoppable(advice: str) -> Iterator[None]:
    """Print advice if the command is stopped. The exit code is 130 for Ctrl-C, 143 for SIGTERM.

    Files that are half written are removed on the way out. Training saves before it stops.
    """
    try:
        with signals_raise():
            yield
    except KeyboardInterrupt:  # outside of the main thread, where Python's own handler stays
        end_stopped(signal.SIGINT, advice)
    except Interrupted as stop:
        end_stopped(stop.number, advice)


def end_stopped(number: int, advice: str) -> NoReturn:
    say(advice)
    raise typer.Exit(128 + number) from None


@contextmanager
def signals_raise() -> Iterator[None]:
    """Turn the signals into an exception. Only the main thread can do so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)
