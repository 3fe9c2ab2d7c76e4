"""What the commands have in common: options, errors, and printing."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@contextmanager
def user_errors() -> Iterator[None]:
    """Show what the user can mend as one message, not as a traceback."""
    try:
        yield
    except (ValueError, FloatingPointError, OSError) as error:
        Console(stderr=True).print(f"[red]Error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        raise typer.Exit(2) from None


def print_table(table: Table) -> None:
    """Nothing is cut or wrapped: a table wider than the terminal is printed as wide as it is."""
    console = Console()
    needed = Console(width=10_000).measure(table).maximum
    Console(width=max(console.width if console.is_terminal else 0, needed)).print(table)


def print_line(text: str) -> None:
    """With markup; never cut or wrapped."""
    Console().print(text, soft_wrap=True, highlight=False)


def say_written(file: Path) -> None:
    """On standard error, so that what is printed stays what was asked for."""
    Console(stderr=True).print(f"written: {escape(str(file))}", soft_wrap=True, highlight=False)


def print_json(value: Any) -> None:
    typer.echo(jsonlib.dumps(value, indent=2))


def progress_bar() -> Progress:
    """On standard error, and gone when done."""
    from rich.progress import Progress

    return Progress(console=Console(stderr=True), transient=True)
