"""`factorizer presets`."""

from __future__ import annotations

import typer
from rich.markup import escape

from factorizer.commands import options
from factorizer.commands.console import goes_to_subcommand, print_json, print_line

app = typer.Typer(invoke_without_command=True)


@app.callback()
def presets(context: typer.Context, json: options.Json = False) -> None:
    """List the presets. A preset describes a data set, its network and its training."""
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
def show_preset(preset: options.PresetArgument, json: options.Json = False) -> None:
    """Print a preset as YAML, with a comment per field.

    Save it, change it, and give it as --preset FILE.
    """
    from factorizer.preset_files import load_preset, to_yaml

    found = load_preset(preset)
    if json:
        print_json(found.model_dump(mode="json"))
    else:
        typer.echo(to_yaml(found), nl=False)
