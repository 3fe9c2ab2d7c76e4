"""`factorizer figure`."""

from __future__ import annotations

from typing import Annotated

import typer

from factorizer.commands import options
from factorizer.commands.bars import ConsoleProgress
from factorizer.commands.console import print_problems, say_written

Names = Annotated[
    str | None,
    typer.Option(
        "--cases",
        metavar="NAMES",
        help="The cases to show, separated by commas.",
        show_default="some from worst to best",
    ),
]
Rows = Annotated[
    int | None,
    typer.Option(
        "--rows",
        min=1,
        max=100,
        help="How many cases to show if they are not named.",
        show_default="4",
    ),
]
Channel = Annotated[
    str | None,
    typer.Option(
        "--channel",
        help="The channel to draw on.",
        show_default="the preset's first",
    ),
]

app = typer.Typer(no_args_is_help=True, help="Draw figures of predictions.")


@app.callback()
def figure() -> None:
    """Draw figures of predictions."""


@app.command()
def qualitative(
    data: options.Data,
    preset: options.Preset,
    predictions: options.PredictionsOfSystems,
    output: options.OutputFile,
    references: options.OtherReferences = None,
    cases: Names = None,
    rows: Rows = None,
    channel: Channel = None,
) -> None:
    """Draw segmentations side by side: a row per case and a column per system.

    The first column is the ground truth if it is known. --data may also be images, as `predict`
    takes them. The output is a .png file.
    """
    from factorizer.studies.gallery import draw_gallery

    names = [name.strip() for name in cases.split(",")] if cases else None
    drawn = draw_gallery(
        data,
        preset,
        predictions,
        out=output,
        references=references,
        cases=names,
        rows=rows,
        channel=channel,
        progress=ConsoleProgress(),
    )
    print_problems(drawn.problems)
    for file in drawn.files:
        say_written(file)
