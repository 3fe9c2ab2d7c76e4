"""`factorizer ablate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from factorizer.bars import ConsoleProgress
from factorizer.commands import options
from factorizer.commands.console import add_cells, make_table, print_json, print_table, say_written
from factorizer.commands.stopping import stoppable
from factorizer.terminal import say
from factorizer.training.environment import check_environment

if TYPE_CHECKING:
    from factorizer.inspection.settings import Point

ABOUT = "Change a model and measure how its accuracy changes."
app = typer.Typer(no_args_is_help=True, help=ABOUT)
RESUME = "stopped; run the same command to resume"


@app.callback()
def main() -> None:
    """Change a model and measure how its accuracy changes."""


@app.command()
def inference(
    model: options.Model,
    data: options.Data,
    output: options.OutputFolder,
    baseline: options.Baseline = None,
    iterations: options.Iterations = 20,
    limit: options.Limit = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Simplify the NMF layers of a trained Factorizer (the paper's Fig. 8).

    Layers are kept or removed, and iterations and rank are changed. Nothing is trained again.
    The same command resumes an ablation that was stopped.
    """
    from dataclasses import asdict

    from factorizer.studies.ablating import ablate

    ablation = ablate(
        model,
        data,
        out=output,
        baseline=baseline,
        iterations=iterations,
        limit=limit,
        device=device,
        progress=ConsoleProgress(),
    )
    for file in ablation.files:
        say_written(file)
    if json:
        print_json([asdict(point) for point in ablation.rows])
    else:
        print_points(ablation.rows)


@app.command()
def training(
    preset: options.Preset,
    data: options.Data,
    output: options.OutputFolder,
    table: options.AblationTable = "both",
    fold: options.HeldOutFold = 0,
    changes: options.Changes = None,
    device: options.Device = "auto",
    workers: options.Workers = 2,
) -> None:
    """Train the variants of the paper's Tables 3 and 4, or compare NMF solvers.

    The variants lack NMF, or the MLP, or the position embedding. The same command resumes an
    ablation that was stopped.
    """
    with stoppable(RESUME):
        check_environment()
        from factorizer.studies.training_variants import PAPER, ablate_training
        from factorizer.training.machine import Machine

        trained = ablate_training(
            preset,
            data=data,
            out=output,
            tables=PAPER if table == "both" else [table],
            changes=changes or (),
            fold=fold,
            machine=Machine(device=device, workers=workers),
            progress=ConsoleProgress(),
        )
        for file in trained.files:
            say_written(file)
        if trained.signal:
            say(RESUME)
            raise typer.Exit(128 + trained.signal)


def print_points(points: Sequence[Point]) -> None:
    table = make_table(("study", "value", "Dice", "HD95, mm", "ms", "time", "GFLOPs", "note"))
    for point in points:
        cells = [
            point.study,
            point.value,
            f"{point.dice:.4f}",
            f"{point.hd95_mm:.2f}",
            f"{point.milliseconds:.1f}",
            f"{point.time_ratio:.2f} x",
            f"{point.gflops:.2f}",
            point.note,
        ]
        add_cells(table, cells)
    print_table(table)
