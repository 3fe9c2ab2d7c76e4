"""`factorizer zoo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from factorizer.commands.console import (
    Json,
    goes_to_subcommand,
    print_json,
    print_table,
    say,
)

if TYPE_CHECKING:
    from factorizer.runs.zoo import ZooModel

app = typer.Typer(invoke_without_command=True)


@app.callback()
def zoo(context: typer.Context, json: Json = False) -> None:
    """List the trained models that ship with the package. For research, not for clinical use."""
    if goes_to_subcommand(context, json, "zoo show hippocampus"):
        return
    from rich.table import Table

    from factorizer.runs.zoo import describe_model, zoo_names

    models = [describe_model(name) for name in zoo_names()]
    if json:
        print_json([as_json(model) for model in models])
        return
    table = Table("model", "takes", "finds, with mean Dice [95 %] of held-out cases", "MB")
    for model in models:
        finds = [
            f"{d.region} {d.mean:.3f} [{d.low:.3f}, {d.high:.3f}], {d.cases} cases"
            for d in model.dice
        ]
        table.add_row(
            f"zoo:{model.name}",
            ", ".join(model.preset.data.channels),
            "\n".join(finds),
            f"{model.megabytes:.1f}",
        )
    print_table(table)
    say(
        "factorizer zoo show NAME tells more; factorizer predict --model zoo:NAME uses one. Not "
        "for clinical use."
    )


@app.command("show")
def show_model(
    name: Annotated[str, typer.Argument(help="A model of the zoo.")], json: Json = False
) -> None:
    """Print a model's card: data, licence, training, scores, intended use and limits."""
    from factorizer.runs.zoo import describe_model

    model = describe_model(name.removeprefix("zoo:"))
    if json:
        print_json(as_json(model))
    else:
        typer.echo(model.card, nl=False)


def as_json(model: ZooModel) -> dict[str, Any]:
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
