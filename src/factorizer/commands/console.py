"""How the commands print: lines, tables, JSON and problems.

Names that come from users are printed as `factorizer/terminal.py` says.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterable, Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from factorizer.terminal import SafeConsole, plain, say
from factorizer.words import printable

if TYPE_CHECKING:
    from rich.table import Table

    from factorizer.data.cases import Problem
    from factorizer.evaluation.scores import Score

WIDEST = 10_000  # columns
COLORS = {"error": "red", "warning": "yellow", "bug": "red"}
SCORES = (
    "region",
    "cases",
    "Dice",
    "HD95, mm",
    "undefined",
    "penalized",
    "volume difference, ml",
    "lesion F1",
)


def print_marked(mark: str, color: str, text: str) -> None:
    """Print a line on standard error that begins with a coloured word."""
    line = Text.assemble((mark, color), " ", printable(text))
    SafeConsole(stderr=True).print(line, soft_wrap=True)


def print_table(table: Table) -> None:
    """Print a table. It is never cut or wrapped, even if the terminal is narrower."""
    console = SafeConsole()
    available = console.width if console.is_terminal else 0
    needed = SafeConsole(width=WIDEST).measure(table).maximum
    SafeConsole(width=max(available, needed)).print(table)


def make_table(columns: Iterable[str], *, title: str = "") -> Table:
    """A table without rows. `add_cells` adds them."""
    from rich.table import Table

    table = Table(title=plain(title, "table.title") if title else None)
    for column in columns:
        table.add_column(plain(column))
    return table


def add_cells(table: Table, cells: Iterable[object]) -> None:
    """Add a row to a table. Text is printed as it is, without markup."""
    table.add_row(*map(plain, cells))


def goes_to_subcommand(context: typer.Context, json: bool, example: str) -> bool:
    """Whether a group of commands was called for one of its commands. --json belongs after it."""
    if context.invoked_subcommand and json:
        raise typer.BadParameter(f"put --json after the command, as in: {example} --json")
    return context.invoked_subcommand is not None


def scores_table(rows: Sequence[Score]) -> Table:
    """A row per region with the means over cases. HD95 is given without and with penalties."""
    from factorizer.evaluation.scores import mean_scores

    table = make_table(SCORES)
    for region, means in mean_scores(rows).items():
        numbers = [means.cases, means.dice, means.hd95_mm, means.undefined]
        numbers += [means.penalized_hd95_mm, means.volume_difference_ml, means.lesion_f1]
        add_cells(table, [region, *(f"{number:.4g}" for number in numbers)])
    return table


def print_line(text: str) -> None:
    """Print a line with markup. It is never cut or wrapped."""
    SafeConsole().print(text, soft_wrap=True)


def print_text(text: str) -> None:
    """Print a line without markup. It is never cut or wrapped."""
    typer.echo(printable(text))


def say_written(file: Path) -> None:
    """Say on standard error that a file was written. Standard output has only the results."""
    say(f"written: {file}")


def print_problems(problems: Iterable[Problem]) -> None:
    """Print the first few problems of each kind, and how many more there are."""
    from factorizer.data.cases import group_problems

    for first, about_others in group_problems(problems):
        for problem in first:
            print_problem(problem)
        if about_others:
            say(about_others)


def print_problem(problem: Problem) -> None:
    """Print a problem as one line on standard error. It is never cut."""
    print_marked(problem.severity, COLORS[problem.severity], str(problem))


def print_json(value: Any) -> None:
    typer.echo(jsonlib.dumps(without_nan(value), indent=2))


def without_nan(value: Any) -> Any:
    """The value with None in place of NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and isnan(value) else value
