"""`factorizer profile`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factorizer.bars import ConsoleProgress
from factorizer.commands import options
from factorizer.commands.console import print_json, print_table, print_text, say_written
from factorizer.errors import FactorizerError
from factorizer.terminal import plain

if TYPE_CHECKING:
    from rich.table import Table

    from factorizer.profiling.table import Row

FORMS = {
    "forward_s": ("forward, s", "{:.2f}"),
    "training_s": ("training, s", "{:.2f}"),
    "forward_mib": ("forward, MiB", "{:.0f}"),
    "training_mib": ("training, MiB", "{:.0f}"),
    "dice": ("Dice", "{:.4f}"),
}


def profile(
    preset: options.Preset,
    system: options.Systems = None,
    measure: options.Measure = False,
    rounds: options.Rounds = None,
    scores: options.SystemScores = None,
    output: options.RowsFile = None,
    figure: options.Figure = None,
    json: options.Json = False,
) -> None:
    """Show what each system costs: parameters and FLOPs beside the paper's, time and memory.

    FLOPs are in the paper's convention: twice the multiply-adds, with 5 operations per normalized
    element. Time and memory are measured on request.
    """
    from factorizer.studies.profiling import profile

    result = profile(
        preset,
        systems=system,
        measure=measure,
        rounds=rounds,
        scores=parse_scores(scores or []),
        out=output,
        figure=figure,
        progress=ConsoleProgress(),
    )
    if json:
        print_json([row.as_dict() for row in result.rows])
    else:
        print_table(profile_table(result.rows))
        for row in result.rows:
            if row.note:
                print_text(f"{row.model}: {row.note}")
    for file in result.files:
        say_written(file)


def parse_scores(scores: Sequence[str]) -> dict[str, Path]:
    """The paths by system in texts such as NAME=PATH, each name once."""
    paths: dict[str, Path] = {}
    for text in scores:
        name, sign, path = text.partition("=")
        if not sign or name in paths:
            raise FactorizerError(f"--scores got {text!r}; give NAME=PATH, each NAME once")
        paths[name] = Path(path)
    return paths


def profile_table(rows: Sequence[Row]) -> Table:
    """A table of the systems. Columns without any value are left out."""
    from rich.table import Table

    columns: dict[str, list[str | None]] = {
        "system": [row.model for row in rows],
        "params, M": [in_millions(row.params) for row in rows],
        "paper": [text_or_none(row.paper_params_m) for row in rows],
        "GFLOPs": [small_or(row.gflops, 2) for row in rows],
        "paper ": [text_or_none(row.paper_gflops) for row in rows],
        "GMACs": [small_or(row.gmacs, 2) for row in rows],
    }
    for field, (title, form) in FORMS.items():
        values = [getattr(row, field) for row in rows]
        columns[title] = [None if value is None else form.format(value) for value in values]
    table = Table(title=None)
    used = []
    for title, cells in columns.items():
        if any(cell is not None for cell in cells):
            used.append(cells)
            table.add_column(title, justify="left" if title == "system" else "right", no_wrap=True)
    for line in zip(*used, strict=True):
        table.add_row(*[plain("-" if cell is None else cell) for cell in line])
    return table


def text_or_none(value: float | None) -> str | None:
    return None if value is None else str(value)


def in_millions(number: int | None) -> str | None:
    return None if number is None else small_or(number / 1e6, 3)


def small_or(value: float | None, decimals: int) -> str | None:
    """A number with so many decimals, or with three digits if it is small."""
    if value is None:
        return None
    return f"{value:.{decimals}f}" if value >= 0.1 or value == 0 else f"{value:.3g}"
