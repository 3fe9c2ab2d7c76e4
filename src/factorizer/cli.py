"""The command line: parse, call, print. Anything heavy is imported inside the command that needs it."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from factorizer import __version__
from factorizer.models.registry import SYSTEMS, check_name

if TYPE_CHECKING:
    from rich.table import Table

    from factorizer.profiling.table import Row

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Segment 3D medical images with matrix factorization. Research software, not a medical device.",
)
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"factorizer {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@contextmanager
def user_errors() -> Iterator[None]:
    """Show what the user can mend as one message, not as a traceback."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        Console(stderr=True).print(f"[red]Error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        raise typer.Exit(2) from None


def print_table(table: Table) -> None:
    """At the width of the terminal; where there is none, nothing is cut or wrapped."""
    (Console() if sys.stdout.isatty() else Console(width=10_000)).print(table)


@app.command()
def models(json: Json = False) -> None:
    """List the systems that can be built, one line each."""
    if json:
        typer.echo(jsonlib.dumps([{"name": name, "summary": s.summary} for name, s in SYSTEMS.items()], indent=2))
        return
    for name, system in SYSTEMS.items():
        Console().print(f"[bold]{name:<18}[/] {system.summary}", soft_wrap=True, highlight=False)


presets_app = typer.Typer(invoke_without_command=True)
app.add_typer(presets_app, name="presets")


@presets_app.callback()
def presets(context: typer.Context, json: Json = False) -> None:
    """List the presets: everything about a data set, its model and its training in one file."""
    if context.invoked_subcommand:
        return
    from factorizer.config import load_preset, preset_names

    titles = {name: load_preset(name).title for name in preset_names()}
    if json:
        typer.echo(jsonlib.dumps([{"name": name, "title": title} for name, title in titles.items()], indent=2))
        return
    for name, title in titles.items():
        Console().print(f"[bold]{name:<18}[/] {escape(title)}", soft_wrap=True, highlight=False)


@presets_app.command("show")
def show_preset(
    name: Annotated[str, typer.Argument(help="A preset's name, or a YAML file.")], json: Json = False
) -> None:
    """Print a preset as YAML with a comment per field: save it, change it, and give it as --preset FILE."""
    from factorizer.config import load_preset, to_yaml

    with user_errors():
        preset = load_preset(name)
    typer.echo(jsonlib.dumps(preset.model_dump(mode="json"), indent=2) if json else to_yaml(preset), nl=json)


@app.command()
def profile(
    preset: Annotated[str, typer.Option(help="A preset's name, or a YAML file.")],
    model: Annotated[list[str] | None, typer.Option(help="Only this system; may be repeated.")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="Measure time and memory on this CPU: minutes.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds of --measure.")] = 3,
    scores: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH", help="A system's scores.csv or run, for Dice; may be repeated."),
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rows as JSON; - prints them.")] = None,
    figure: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw them: .png, .svg or .pdf.")] = None,
) -> None:
    """Show what each system costs: parameters and FLOPs beside the paper's, time and memory on request.

    FLOPs are in the paper's convention: twice the multiply-adds, with 5 operations per normalized element.
    """
    from rich.progress import Progress

    from factorizer.config import load_preset
    from factorizer.files import write_atomically
    from factorizer.profiling import table

    with user_errors(), Progress(console=Console(stderr=True), transient=True) as progress:
        settings = load_preset(preset)
        names = model or list(SYSTEMS)
        for name in names:
            check_name(name)
        given = parse_scores(scores or [], names)
        file_format = check_figure_format(figure) if figure else ""
        task = progress.add_task("counting", total=len(names))
        rows = table.count_rows(settings, preset, names, lambda: progress.advance(task))
        if measure:
            task = progress.add_task("measuring", total=table.measure_count(rows, rounds))
            rows = table.measure_rows(rows, settings, rounds, lambda: progress.advance(task))
        rows = table.add_scores(rows, given)
        text = jsonlib.dumps([row.as_dict() for row in rows], indent=2)
        if json and str(json) != "-":
            write_atomically(json, text + "\n")
        if figure:
            from factorizer.profiling.figure import draw_profile

            title = f"{preset}: {settings.in_channels} x {' x '.join(map(str, settings.data.patch_size))}"
            write_atomically(figure, draw_profile(rows, title, file_format))
    if str(json) == "-":
        typer.echo(text)
    else:
        print_table(profile_table(rows))
        for row in rows:
            if row.note:
                typer.echo(f"{row.model}: {row.note}")


def parse_scores(scores: Sequence[str], names: Sequence[str]) -> dict[str, Path]:
    """NAME=PATH, each name once and among those profiled."""
    paths: dict[str, Path] = {}
    for text in scores:
        name, sign, path = text.partition("=")
        if not sign or name not in names or name in paths or not Path(path).exists():
            raise ValueError(
                f"--scores got {text!r}; give NAME=PATH, each NAME once and one of {', '.join(names)}, "
                "PATH an existing scores.csv or run folder"
            )
        paths[name] = Path(path)
    return paths


def check_figure_format(path: Path) -> str:
    allowed = ("png", "svg", "pdf")
    if path.suffix[1:] not in allowed:
        raise ValueError(f"--figure got {path}; its name must end in .{', .'.join(allowed)}")
    return path.suffix[1:]


def profile_table(rows: Sequence[Row]) -> Table:
    """Columns without any value are left out."""
    from rich.table import Table

    columns: dict[str, list[Any]] = {
        "system": [row.model for row in rows],
        "params, M": [f"{row.params / 1e6:.3f}" for row in rows],
        "paper": [row.paper_params_m for row in rows],
        "GFLOPs": [f"{row.gflops:.2f}" for row in rows],
        "paper ": [row.paper_gflops for row in rows],
        "GMACs": [f"{row.gmacs:.2f}" for row in rows],
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
    used = {title: values for title, values in columns.items() if any(value is not None for value in values)}
    for title in used:
        table.add_column(title, justify="left" if title == "system" else "right", no_wrap=True)
    for cells in zip(*used.values(), strict=True):
        table.add_row(*("-" if cell is None else str(cell) for cell in cells))
    return table


@app.command()
def doctor(json: Json = False) -> None:
    """Report versions, devices, memory, and which optional parts are present or missing."""
    from factorizer.doctor import examine

    with Console(stderr=True).status("Looking at this machine"):
        findings = examine()
    if json:
        typer.echo(jsonlib.dumps([finding.as_dict() for finding in findings], indent=2))
        return
    for finding in findings:
        mark = "[green]ok     [/]" if finding.present else "[yellow]missing[/]"
        remedy = "" if finding.present else f" ({finding.remedy})"
        Console().print(f"{mark} {finding.name:<15} {escape(finding.found + remedy)}", soft_wrap=True, highlight=False)
