"""`factorizer tune`."""

from __future__ import annotations

from typing import Annotated

import typer

from factorizer.commands.ablate import Cases, DataFolder, Device, Run
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
)
from factorizer.errors import FactorizerError
from factorizer.words import count

FEWEST_CASES = 3


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
    from factorizer.studies.bench import make_bench
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
