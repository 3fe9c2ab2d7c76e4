"""What the commands have in common: options, errors, and printing.

Names of files, cases, regions and systems are others' words: they are printed as they are, never as
markup, and what would steer a terminal stands as an escape.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from factorizer.errors import FactorizerError
from factorizer.words import printable

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from factorizer.data.cases import Problem
    from factorizer.evaluation.scores import Score

SHOWN_ALIKE = 5
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


class SafeConsole(Console):
    """A console that lets no text steer the terminal."""

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, highlight=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


def print_marked(mark: str, color: str, text: str) -> None:
    """A line on standard error that begins with a coloured word."""
    SafeConsole(stderr=True).print(
        Text.assemble((mark, color), " ", printable(text)), soft_wrap=True
    )


def refuse_existing(*files: Path) -> None:
    """Nothing is overwritten."""
    for file in files:
        if file.exists():
            raise FactorizerError(f"{file} is there already; give another name")


def print_table(table: Table) -> None:
    """Nothing is cut or wrapped: a table wider than the terminal is printed as wide as it is."""
    console = SafeConsole()
    needed = SafeConsole(width=10_000).measure(table).maximum
    SafeConsole(width=max(console.width if console.is_terminal else 0, needed)).print(table)


def make_table(columns: Iterable[str], *, title: str = "") -> Table:
    """A table whose cells `add_cells` fills."""
    from rich.table import Table

    table = Table(title=plain(title, "table.title") if title else None)
    for column in columns:
        table.add_column(plain(column))
    return table


def add_cells(table: Table, cells: Iterable[object]) -> None:
    """A row; text stands as it is, without markup."""
    table.add_row(*map(plain, cells))


def plain(cell: object, style: str = "") -> Text:
    return cell if isinstance(cell, Text) else Text(printable(str(cell)), style)


def goes_to_subcommand(context: typer.Context, json: bool, example: str) -> bool:
    """Whether a group that lists by itself was called for one of its commands; --json then belongs
    behind that."""
    if context.invoked_subcommand and json:
        raise typer.BadParameter(f"put --json behind the command, as in: {example} --json")
    return context.invoked_subcommand is not None


def scores_table(rows: Sequence[Score]) -> Table:
    """Regions down, the main metrics across: means over cases, HD95 without and with the undefined
    ones."""
    from factorizer.evaluation.scores import mean_scores

    columns = (
        "region",
        "cases",
        "Dice",
        "HD95, mm",
        "undefined",
        "penalized",
        "volume difference, ml",
        "lesion F1",
    )
    table = make_table(columns)
    for region, means in mean_scores(rows).items():
        cells = [means.dice, means.hd95_mm, means.undefined, means.penalized_hd95_mm]
        cells += [means.volume_difference_ml, means.lesion_f1]
        add_cells(table, [region, *(f"{cell:.4g}" for cell in (means.cases, *cells))])
    return table


def print_line(text: str) -> None:
    """With markup; never cut or wrapped."""
    SafeConsole().print(text, soft_wrap=True)


def print_text(text: str) -> None:
    """Without markup; never cut or wrapped."""
    typer.echo(printable(text))


def say_written(file: Path) -> None:
    """On standard error, so that what is printed stays what was asked for."""
    say(f"written: {file}")


def print_problems(problems: Iterable[Problem]) -> None:
    """The first few of each kind, and how many more there are of it."""
    kinds: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        kinds.setdefault((problem.message, problem.remedy), []).append(problem)
    for alike in kinds.values():
        for problem in alike[:SHOWN_ALIKE]:
            print_problem(problem)
        if len(alike) > SHOWN_ALIKE:
            say(f"  and {len(alike) - SHOWN_ALIKE} more for the same reason")


def print_problem(problem: Problem) -> None:
    """One line on standard error, never cut."""
    color = {"error": "red", "warning": "yellow", "bug": "red"}[problem.severity]
    print_marked(problem.severity, color, str(problem))


def print_json(value: Any) -> None:
    typer.echo(jsonlib.dumps(without_nan(value), indent=2))


def without_nan(value: Any) -> Any:
    """JSON knows no NaN: null stands for it."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and value != value else value


def say(text: str) -> None:
    """A line on standard error, never cut or wrapped."""
    SafeConsole(stderr=True).print(Text(printable(text)), soft_wrap=True)


def track(items: Sequence[Any], label: str) -> Iterator[Any]:
    """The items one by one, with a bar on standard error that is gone when done."""
    with progress_bar() as progress:
        yield from progress.track(items, description=label)


def progress_bar() -> Progress:
    """On standard error if that is a terminal, and gone when done."""
    from rich.progress import (
        BarColumn,
        Progress,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    class Description(TextColumn):
        """What is done, or the name of the case at hand."""

        def render(self, task: Task) -> Text:
            return plain(task.description, "progress.description")

    console = SafeConsole(stderr=True)
    columns = (Description(""), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
