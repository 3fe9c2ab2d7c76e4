"""The command line, put together. Anything heavy is imported inside the command that needs it."""

from __future__ import annotations

import typer

from factorizer.commands import (
    ablate,
    compare,
    data,
    doctor,
    evaluate,
    explain,
    figure,
    models,
    options,
    postprocess,
    predict,
    presets,
    profile,
    train,
    tune,
    zoo,
)
from factorizer.commands.program import Program

app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    add_completion=False,
    help="Segment 3D medical images with matrix factorization. Research software, not a medical "
    "device.",
)


@app.callback()
def main(version: options.Version = False, debug: options.Debug = False) -> None:
    """`Program` removes --debug before the line is parsed. Here it stands for the help."""


app.command()(models.models)
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
app.command()(doctor.doctor)
