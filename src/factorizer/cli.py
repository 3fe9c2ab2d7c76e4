"""The command line: parse, call, print. Anything heavy is imported inside the command that needs it."""

from __future__ import annotations

import json as jsonlib
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from factorizer import __version__
from factorizer.models.registry import SYSTEMS

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


@app.command()
def models(json: Json = False) -> None:
    """List the systems that can be built, one line each."""
    if json:
        typer.echo(jsonlib.dumps([{"name": name, "summary": s.summary} for name, s in SYSTEMS.items()], indent=2))
        return
    for name, system in SYSTEMS.items():
        Console().print(f"[bold]{name:<18}[/] {system.summary}", soft_wrap=True, highlight=False)


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
