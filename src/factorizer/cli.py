"""The command line, put together. Anything heavy is imported inside the command that needs it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from factorizer import __version__
from factorizer.commands import (
    ablate,
    compare,
    data,
    evaluate,
    explain,
    figure,
    postprocess,
    predict,
    presets,
    profile,
    train,
    tune,
    zoo,
)
from factorizer.commands.console import SafeConsole, print_json, print_line
from factorizer.commands.options import Json
from factorizer.commands.program import DEBUG, Program
from factorizer.models.registry import SYSTEMS

app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    add_completion=False,
    help="Segment 3D medical images with matrix factorization. Research software, not a medical "
    "device.",
)


def print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"factorizer {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Show the traceback of every error. May stand anywhere.")
    ] = False,
) -> None:
    """`Program` takes --debug from the line before it is parsed; here it is for the help."""


@app.command()
def models(json: Json = False) -> None:
    """List the systems that can be built, one line each."""
    if json:
        print_json([{"name": name, "summary": system.summary} for name, system in SYSTEMS.items()])
        return
    for name, system in SYSTEMS.items():
        print_line(f"[bold]{name:<18}[/] {system.summary}")


app.add_typer(presets.app, name="presets")
app.add_typer(data.app, name="data")
app.command()(profile.profile)
app.command()(train.train)
app.command()(train.cross_validate)
app.add_typer(zoo.app, name="zoo")
app.command()(predict.predict)
app.command()(postprocess.postprocess)
app.command()(evaluate.evaluate)
app.command()(compare.compare)
app.add_typer(figure.app, name="figure")
app.command()(explain.explain)
app.add_typer(ablate.app, name="ablate")
app.command()(tune.tune)


@app.command()
def doctor(json: Json = False) -> None:
    """Report versions, devices, memory, and which optional parts are present or missing."""
    from factorizer.doctor import examine

    with SafeConsole(stderr=True).status("Looking at this machine"):
        findings = examine()
    if json:
        print_json([finding.as_dict() for finding in findings])
        return
    for finding in findings:
        mark = "[green]ok     [/]" if finding.present else "[yellow]missing[/]"
        remedy = "" if finding.present else f" ({finding.remedy})"
        print_line(f"{mark} {finding.name:<15} {escape(finding.found + remedy)}")
