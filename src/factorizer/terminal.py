"""Text on the terminal, printed as it is.

Names of files, cases, regions and systems come from users. They are never markup. A character that
would steer the terminal is printed as an escape sequence.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from factorizer.words import printable


class SafeConsole(Console):
    """A console that lets no text steer the terminal."""

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, highlight=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


def say(text: str, console: Console | None = None) -> None:
    """Print a line on standard error. It is never cut or wrapped."""
    console = console or SafeConsole(stderr=True)
    console.print(Text(printable(text)), soft_wrap=True)


def plain(cell: object, style: str = "") -> Text:
    return cell if isinstance(cell, Text) else Text(printable(str(cell)), style)
