"""`factorizer presets`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from factorizer.commands.console import (
    Json,
    goes_to_subcommand,
    print_json,
    print_line,
)

app = typer.Typer(invoke_without_command=True)


@app.callback()
def presets(context: typer.Context, json: Json = False) -> None:
    """List the presets: everything about a data set, its model and its training in one file."""
    if goes_to_subcommand(context, json, "presets show brats"):
        return
    from factorizer.preset_files import load_preset, preset_names

    titles = {name: load_preset(name).title for name in preset_names()}
    if json:
        print_json([{"name": name, "title": title} for name, title in titles.items()])
        return
    for name, title in titles.items():
        print_line(f"[bold]{name:<18}[/] {escape(title)}")


@app.command("show")
def show_preset(
    name: Annotated[str, typer.Argument(help="A preset's name, a YAML file, or zoo:NAME.")],
    json: Json = False,
) -> None:
    """Print a preset as YAML with a comment per field: save it, change it, and give it as --preset
    FILE."""
    from factorizer.preset_files import load_preset, to_yaml

    preset = load_preset(name)
    if json:
        print_json(preset.model_dump(mode="json"))
    else:
        typer.echo(to_yaml(preset), nl=False)
