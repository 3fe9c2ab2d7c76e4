"""`factorizer profile`."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from factorizer.commands.console import (
    plain,
    print_table,
    print_text,
    progress_bar,
    refuse_existing,
    say_written,
)
from factorizer.errors import FactorizerError
from factorizer.models.registry import SYSTEMS, check_name

if TYPE_CHECKING:
    from rich.table import Table

    from factorizer.profiling.table import Row


ROUNDS = 3


def profile(
    preset: Annotated[str, typer.Option(help="A preset's name, or a YAML file.")],
    model: Annotated[
        list[str] | None, typer.Option(help="Only this system; may be repeated.")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure time and memory on this CPU: minutes.")
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help=f"Timed rounds of --measure, {ROUNDS} unless given."),
    ] = None,
    scores: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH", help="A system's scores.csv or run, for Dice; may be repeated."
        ),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the rows as JSON; - prints them.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw them: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Show what each system costs: parameters and FLOPs beside the paper's, time and memory on
    request.

    FLOPs are in the paper's convention: twice the multiply-adds, with 5 operations per normalized
    element.
    """
    from factorizer.evaluation.scores import mean_dice
    from factorizer.files import write_atomically
    from factorizer.preset_files import load_preset
    from factorizer.profiling import table

    with progress_bar() as progress:
        settings = load_preset(preset)
        names = model or list(SYSTEMS)
        for name in names:
            check_name(name)
        if rounds is not None and not measure:
            raise FactorizerError("--rounds is for --measure; give both or neither")
        refuse_existing(*(file for file in (json, figure) if file and str(file) != "-"))
        dice = {name: mean_dice(path) for name, path in parse_scores(scores or [], names).items()}
        file_format = check_figure_format(figure) if figure else ""
        task = progress.add_task("counting", total=len(names))
        rows = table.count_rows(settings, preset, names, lambda: progress.advance(task))
        if model and len(model) == 1 and rows[0].note:
            raise FactorizerError(f"{rows[0].model} {rows[0].note}")
        rows = table.add_scores(rows, dice)

        def save() -> str:
            text = jsonlib.dumps([row.as_dict() for row in rows], indent=2, allow_nan=False)
            if json and str(json) != "-":
                write_atomically(json, text + "\n")
            return text

        if measure:
            task = progress.add_task("memory", total=2 * len(rows))
            rows = table.measure_memory(rows, settings, lambda: progress.advance(task))
            save()  # the long part may still fail
            task = progress.add_task("time", total=2 * len(rows) * ((rounds or ROUNDS) + 1))
            rows = table.measure_time(
                rows, settings, rounds or ROUNDS, lambda: progress.advance(task)
            )
        text = save()
        if figure:
            from factorizer.figures.costs import draw_profile
            from factorizer.figures.escapes import escape_label

            title = (
                f"{escape_label(preset)}: {settings.in_channels} x "
                f"{' x '.join(map(str, settings.data.patch_size))}"
            )
            write_atomically(figure, draw_profile(rows, title, file_format))
    if str(json) == "-":
        typer.echo(text)
    else:
        print_table(profile_table(rows))
        for row in rows:
            if row.note:
                print_text(f"{row.model}: {row.note}")
    for file in (json, figure):
        if file and str(file) != "-":
            say_written(file)


def parse_scores(scores: Sequence[str], names: Sequence[str]) -> dict[str, Path]:
    """NAME=PATH, each name once and among those profiled."""
    paths: dict[str, Path] = {}
    for text in scores:
        name, sign, path = text.partition("=")
        if not sign or name not in names or name in paths or not Path(path).exists():
            raise FactorizerError(
                f"--scores got {text!r}; give NAME=PATH, each NAME once and one of "
                f"{', '.join(names)}, PATH an existing scores.csv or run folder"
            )
        paths[name] = Path(path)
    return paths


def check_figure_format(path: Path) -> str:
    allowed = ("png", "svg", "pdf")
    if path.suffix[1:] not in allowed:
        raise FactorizerError(f"--figure got {path}; its name must end in .{', .'.join(allowed)}")
    return path.suffix[1:]


def profile_table(rows: Sequence[Row]) -> Table:
    """Columns without any value are left out."""
    from rich.table import Table

    columns: dict[str, list[Any]] = {
        "system": [row.model for row in rows],
        "params, M": [
            None if row.params is None else small_or(row.params / 1e6, 3) for row in rows
        ],
        "paper": [row.paper_params_m for row in rows],
        "GFLOPs": [None if row.gflops is None else small_or(row.gflops, 2) for row in rows],
        "paper ": [row.paper_gflops for row in rows],
        "GMACs": [None if row.gmacs is None else small_or(row.gmacs, 2) for row in rows],
    }
    for title, field, form in (
        ("forward, s", "forward_s", "{:.2f}"),
        ("training, s", "training_s", "{:.2f}"),
        ("forward, MiB", "forward_mib", "{:.0f}"),
        ("training, MiB", "training_mib", "{:.0f}"),
        ("Dice", "dice", "{:.4f}"),
    ):
        values = [getattr(row, field) for row in rows]
        columns[title] = [None if value is None else form.format(value) for value in values]
    table = Table(title=None)
    used = {
        title: values
        for title, values in columns.items()
        if any(value is not None for value in values)
    }
    for title in used:
        table.add_column(title, justify="left" if title == "system" else "right", no_wrap=True)
    for cells in zip(*used.values(), strict=True):
        table.add_row(*(plain("-" if cell is None else cell) for cell in cells))
    return table


def small_or(value: float, decimals: int) -> str:
    """With so many decimals, or three digits that count where those would hide it."""
    return f"{value:.{decimals}f}" if value >= 0.1 or value == 0 else f"{value:.3g}"
