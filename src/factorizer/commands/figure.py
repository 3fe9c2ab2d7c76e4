"""`factorizer figure`."""

from __future__ import annotations

import typer

from factorizer.bars import ConsoleProgress
from factorizer.commands import options
from factorizer.commands.console import print_problems, say_written
from factorizer.commands.program import exit_for

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
    show: options.ShownCases = None,
    rows: options.Rows = None,
    channel: options.Channel = None,
) -> None:
    """Draw segmentations side by side: a row per case and a column per system.

    The first column is the ground truth if it is known. --data may also be images, as `predict`
    takes them. The output is a .png file.
    """
    from factorizer.studies.gallery import draw_gallery

    names = [name.strip() for name in show.split(",")] if show else None
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
    exit_for(drawn.problems)
