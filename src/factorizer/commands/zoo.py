"""`factorizer zoo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from factorizer.commands import options
from factorizer.commands.console import (
    add_cells,
    goes_to_subcommand,
    make_table,
    print_json,
    print_table,
)
from factorizer.terminal import say

if TYPE_CHECKING:
    from factorizer.runs.zoo import RegionDice, ZooModel

app = typer.Typer(invoke_without_command=True)


@app.callback()
def zoo(context: typer.Context, json: options.Json = False) -> None:
    """List the trained models that ship with the package. For research, not for clinical use."""
    if goes_to_subcommand(context, json, "zoo show hippocampus"):
        return
    from factorizer.runs.zoo import describe_model, zoo_names

    models = [describe_model(name) for name in zoo_names()]
    if json:
        print_json([as_json(model) for model in models])
        return
    table = make_table(("model", "takes", "finds, with mean Dice [95 %] of held-out cases", "MB"))
    for model in models:
        channels = ", ".join(model.preset.data.channels)
        finds = "\n".join(map(describe_dice, model.dice))
        add_cells(table, (f"zoo:{model.name}", channels, finds, f"{model.megabytes:.1f}"))
    print_table(table)
    say(
        "`factorizer zoo show NAME` prints a model's card, and `factorizer predict --model "
        "zoo:NAME` uses it. Not for clinical use."
    )


def describe_dice(dice: RegionDice) -> str:
    """A region with its mean Dice and interval."""
    interval = f"[{dice.low:.3f}, {dice.high:.3f}]"
    return f"{dice.region} {dice.mean:.3f} {interval}, {dice.cases} cases"


@app.command("show")
def show_model(name: options.ZooName, json: options.Json = False) -> None:
    """Print the card of a model: data, licence, training, scores, intended use and limits."""
    from factorizer.runs.zoo import describe_model

    model = describe_model(name.removeprefix("zoo:"))
    if json:
        print_json(as_json(model))
    else:
        typer.echo(model.card, nl=False)


def as_json(model: ZooModel) -> dict[str, Any]:
    """The keys of --json."""
    from dataclasses import asdict

    return {
        "name": model.name,
        "title": model.preset.title,
        "source": model.preset.source,
        "channels": list(model.preset.data.channels),
        "dice": [asdict(dice) for dice in model.dice],
        "megabytes": round(model.megabytes, 2),
        "card": model.card,
    }
