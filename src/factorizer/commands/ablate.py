"""`factorizer ablate` and `factorizer tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from factorizer.commands.bars import ConsoleProgress
from factorizer.commands.console import (
    Json,
    add_cells,
    make_table,
    print_json,
    print_table,
    print_text,
    progress_bar,
    say,
    say_written,
    track,
)
from factorizer.commands.options import Changes, Workers
from factorizer.commands.options import Preset as PresetName
from factorizer.commands.stopping import stoppable
from factorizer.errors import FactorizerError
from factorizer.training.environment import check_environment
from factorizer.words import count

if TYPE_CHECKING:
    from factorizer.studies.ablating import Point

app = typer.Typer(no_args_is_help=True, help="Change a model and see what it costs.")

Run = Annotated[Path, typer.Option("--run", metavar="RUN[/foldK]", help="A run of a Factorizer.")]
DataFolder = Annotated[Path, typer.Option("--data", help="The data set it was trained on.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
FEWEST_CASES = 3  # to tune on

Cases = Annotated[
    int | None,
    typer.Option("--cases", min=1, max=100_000, help="Only so many of the held-out cases."),
]


@app.callback()
def main() -> None:
    """Change a model and see what it costs."""


@app.command()
def inference(
    run: Run,
    data: DataFolder,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A folder; one that was begun is gone on with.")
    ],
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Another run, drawn as a dashed line.")
    ] = None,
    iterations: Annotated[
        int, typer.Option("--iterations", min=1, max=1000, help="The largest T.")
    ] = 20,
    cases: Cases = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Turn the layers of a trained model down, as in the paper's Fig. 8: layers kept or removed,
    iterations, rank."""
    from dataclasses import asdict

    from factorizer.figures.ablations import draw_ablation
    from factorizer.files import write_atomically
    from factorizer.inspection.settings import Setting, matrix_sizes, nmf_layers, paper_settings
    from factorizer.studies.ablating import (
        check_baseline,
        fingerprint,
        make_bench,
        run_ablation,
    )

    bench = make_bench(run, data, device=device, limit=cases)
    preset = bench.predictor.preset
    layers = nmf_layers(bench.network)
    limits = matrix_sizes(bench.network, preset.in_channels, preset.data.patch_size)
    trained = Setting("as trained", 0, ({},) * len(layers))
    settings = paper_settings(len(layers), preset.model.head_dim, limits, iterations=iterations)
    other = make_bench(baseline, data, device=device, limit=cases) if baseline is not None else None
    if other is not None:
        check_baseline(bench, other)
    points = run_ablation(bench, [trained, *settings], output / "points.csv", track)
    references = {"as trained": next(point for point in points if point.study == "as trained")}
    if other is not None:
        name = f"baseline ({other.predictor.preset.model.name})"
        file = output / f"baseline-{fingerprint(other.network)}.csv"
        (references[name],) = run_ablation(other, [Setting(name, 0, ())], file, track, beside=bench)
    write_atomically(output / "ablation.png", draw_ablation(points, references))
    points = [*points, *(point for point in references.values() if point not in points)]
    say_written(output / "points.csv")
    say_written(output / "ablation.png")
    if json:
        print_json([asdict(point) for point in points])
    else:
        print_points(points)


@app.command()
def training(
    preset: PresetName,
    data: DataFolder,
    out: Annotated[
        Path, typer.Option("-o", "--output", help="A folder; one that was begun is gone on with.")
    ],
    table: Annotated[
        str,
        typer.Option(
            "--table",
            help="subblocks (Table 3), position (Table 4), both, or solvers (beyond the paper).",
        ),
    ] = "both",
    fold: Annotated[int, typer.Option(min=0, max=9_999, help="The fold that is held out.")] = 0,
    changes: Changes = None,
    device: Device = "auto",
    workers: Workers = 2,
) -> None:
    """Train the variants of the paper's Tables 3 and 4 (without NMF, without MLP, with and without
    positions), or the ways to factorize."""
    with stoppable("stopped; run the same command to resume"):
        from factorizer.training.train import settle_preset

        check_environment()
        settings = settle_preset(preset, changes=changes or ())
        from factorizer.studies.variants import PAPER, TABLES, ablate_training, fields_of
        from factorizer.training.machine import Machine

        tables = PAPER if table == "both" else [table]
        if tables[0] not in TABLES:
            raise FactorizerError(
                f"--table got {table!r}; choose both, or one of {', '.join(TABLES)}"
            )
        for name in tables:
            taken = sorted(
                fields_of(name) & {change.split("=")[0].strip() for change in changes or []}
            )
            if taken:
                raise FactorizerError(
                    f"--set {taken[0]} has no effect: the table {name} sets it itself; leave it out"
                )
        files = ablate_training(
            settings,
            tables=tables,
            data=data,
            fold=fold,
            out=out,
            machine=Machine(device=device, workers=workers),
            progress=ConsoleProgress(),
        )
        for file in files:
            say_written(file)


def print_points(points: list[Point]) -> None:
    table = make_table(("study", "value", "Dice", "HD95, mm", "ms", "time", "GFLOPs", "note"))
    for p in points:
        cells = [
            f"{p.dice:.4f}",
            f"{p.hd95_mm:.2f}",
            f"{p.milliseconds:.1f}",
            f"{p.time_ratio:.2f} x",
            f"{p.gflops:.2f}",
        ]
        add_cells(table, [p.study, p.value, *cells, p.note])
    print_table(table)


def tune(
    run: Run,
    data: DataFolder,
    max_loss: Annotated[
        str,
        typer.Option(
            "--max-loss",
            help="How much mean Dice may fall, such as 0.5%, to the end of its interval.",
        ),
    ] = "0.5%",
    cases: Cases = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Find settings that make a trained model faster and keep its Dice: `predict --speed
    balanced|fast` uses them."""
    from factorizer.evaluation.scores import mean_of
    from factorizer.figures.ablations import draw_front
    from factorizer.files import write_atomically
    from factorizer.runs.find import find_fold
    from factorizer.studies.ablating import make_bench
    from factorizer.studies.tuning import Tuner, keep_order, options_of

    bound = parse_loss(max_loss)
    fold = find_fold(run)
    if fold.speeds_file.exists():
        raise FactorizerError(f"{fold.speeds_file} already exists; remove it to tune again")
    if not fold.is_finished:
        raise FactorizerError(
            f"{fold.path} is not finished; train it with `factorizer train --resume` first"
        )
    bench = make_bench(run, data, device=device, limit=cases)
    if len(bench.names) < FEWEST_CASES:
        raise FactorizerError(
            f"a loss of Dice cannot be judged by {count(len(bench.names), 'held-out case')}; "
            f"give at least {FEWEST_CASES}"
        )
    with progress_bar() as progress:
        task = progress.add_task("scoring as trained", total=None)
        tuner = Tuner(bench, lambda: progress.advance(task))
        total = sum(len(options_of(module.num_iters)) for module in tuner.modules)
        progress.update(task, description="single layers", total=total, completed=0)
        singles = tuner.singles()
        progress.update(task, description="combining", total=None)
        limits = {"balanced": bound / 2, "fast": bound}
        found = {
            name: tuner.confirm(tuner.combine(singles, limit)) for name, limit in limits.items()
        }
    speeds = keep_order(found)
    points = [(t.time_ratio, t.dice, t.name) for t in tuner.trials]
    trained = mean_of(tuner.reference.values())
    chosen = {"best": (1.0, trained)} | {name: (t.time_ratio, t.dice) for name, t in speeds.items()}
    write_atomically(
        fold.speeds_figure, draw_front([(1.0, trained, "as trained"), *points], chosen)
    )
    say_written(fold.speeds_figure)
    if speeds:
        fold.write_speeds({name: trial.layers for name, trial in speeds.items()})
        say_written(fold.speeds_file)
    rows = [
        {
            "speed": name,
            "time_ratio": round(trial.time_ratio, 3),
            "dice": trial.dice,
            "difference": trial.difference.mean,
            "ci": [trial.difference.low, trial.difference.high],
            "p": trial.difference.p,
            "setting": trial.name,
        }
        for name, trial in speeds.items()
    ]
    if json:
        print_json({"best": {"dice": trained}, "speeds": rows})
        return
    if not speeds:
        print_text(f"nothing saves time within a loss of {max_loss}; the model stays as it is")
        return
    table = make_table(("speed", "time", "Dice", "difference [95 %]", "p", "layers"))
    add_cells(table, ["best", "1.00 x", f"{trained:.4f}", "", "", "as trained"])
    for name, trial in speeds.items():
        d = trial.difference
        cells = [
            f"{trial.time_ratio:.2f} x",
            f"{trial.dice:.4f}",
            f"{d.mean:+.4f} [{d.low:+.4f}, {d.high:+.4f}]",
        ]
        add_cells(table, [name, *cells, f"{d.p:.2g}", trial.name])
    print_table(table)
    say("Dice is optimistic by the choice on these cases; `best` is never changed.")


def parse_loss(text: str) -> float:
    """0.5% or 0.005."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise FactorizerError(
            f"--max-loss got {text!r}; give a share of Dice such as 0.5% or 0.005"
        )
    return value
