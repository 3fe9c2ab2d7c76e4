"""Compare the paper's ten systems on the hippocampus: same data, fold, patches and rates tried.

\b
python benchmarks/systems.py DATA measure   # seconds of a training step, on an idle machine
python benchmarks/systems.py DATA search    # three learning rates per system, on the tuning fold
python benchmarks/systems.py DATA train     # one run per system and seed, scored on another fold
python benchmarks/systems.py DATA report    # tables, tests, box plots and learning curves

Every system has half its default width. It is trained at a constant rate after a short warm-up. A
running average of its weights is scored, so that a run can be read at any step.

`measure` turns steps into time. A run is read after as many steps as fit into SECONDS, and after
STEPS steps. So `search` and `train` may share the machine with other work, and two of them may
work at the same time. When they are called again, they make the results that are missing. A run
that was stopped starts again.

Results are in docs/results/systems. Weights are in runs/systems/weights, because 300 MB are too
much for a repository.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from safetensors.torch import save_file
from short_training import ShortTraining, claim
from systems_plan import (
    COST_FILE,
    CURVE_CASES,
    MARKS,
    OUTPUT,
    RATES,
    SECONDS,
    SEEDS,
    STEPS,
    SYSTEMS,
    TEST_FOLD,
    TUNING_FOLD,
    WORK,
    Row,
    best_rate,
    is_searched,
    make_plan,
    mean_dice,
    preset_of,
    read_step_seconds,
    search_file,
    write_rows,
)

from factorizer.config.networks import network_of
from factorizer.data.cache import CaseStore
from factorizer.evaluation.scores import Score, write_scores
from factorizer.files import write_atomically
from factorizer.hardware import cpu_model
from factorizer.preset_files import change_preset
from factorizer.profiling.table import count_rows
from factorizer.training.stream import make_patches

TURNS, STEPS_PER_TURN = 9, 4
SEARCH_STEPS = 100
console = Console()
app = typer.Typer(add_completion=False, help=__doc__)
Data = Annotated[
    Path, typer.Argument(help="Task04_Hippocampus of the Medical Segmentation Decathlon.")
]


@app.callback()
def main(context: typer.Context, data: Data) -> None:
    context.obj = data


@app.command()
def measure(context: typer.Context) -> None:
    """Measure parameters, FLOPs, and the time of a training step.

    The systems take turns. Times are compared within a turn, because the machine is faster in some
    turns than in others.
    """
    if any(OUTPUT.glob("runs/*/curve.csv")):
        raise SystemExit(
            f"{OUTPUT}/runs was read with the step times that exist; remove it before measuring "
            "again"
        )
    everything = list(make_plan(context.obj).folds)
    trainings = {}
    for name in SYSTEMS:
        trainings[name] = Training(
            name, context.obj, everything, rate=1e-5, seed=0, max_steps=TURNS * STEPS_PER_TURN
        )
    times: dict[str, list[float]] = {name: [] for name in SYSTEMS}  # one for each turn
    for turn in range(TURNS):
        for name, training in trainings.items():
            training.step()  # allocates its memory again
            seconds = [time_step(training) for _ in range(STEPS_PER_TURN - 1)]
            times[name].append(statistics.median(seconds))
        console.print(f"turn {turn + 1} of {TURNS}")
    scales = [statistics.geometric_mean(turn) for turn in zip(*times.values(), strict=True)]
    rows = [cost_row(name, times[name], scales) for name in SYSTEMS]
    write_rows(COST_FILE, rows)
    machine = f"{cpu_model()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    write_atomically(OUTPUT / "machine.txt", f"{machine}, {date.today()}\n")
    console.print(*rows, sep="\n")


def cost_row(name: str, times: Sequence[float], scales: Sequence[float]) -> Row:
    """The cost of a system. `scales` are the mean times of all systems, turn by turn."""
    (count,) = count_rows(preset_of(name), "", [name])
    assert count.params, count.note
    assert count.gflops
    typical = statistics.median(scales)
    scaled = [typical * seconds / scale for seconds, scale in zip(times, scales, strict=True)]
    low, step, high = statistics.quantiles(scaled)
    return {
        "system": name,
        "parameters_m": round(count.params / 1e6, 3),
        "gflops": round(count.gflops, 2),
        "step_s": round(step, 3),
        "low_s": round(low, 3),
        "high_s": round(high, 3),
    }


def time_step(training: Training) -> float:
    started = time.perf_counter()
    training.step()
    return time.perf_counter() - started


class Training(ShortTraining):
    """A system in training on the cases of some folds, by AdamW."""

    def __init__(
        self,
        name: str,
        data: Path,
        training_folds: Sequence[int],
        *,
        rate: float,
        seed: int,
        max_steps: int,
    ) -> None:
        self.plan = make_plan(data)
        preset = change_preset(preset_of(name), [f"training.seed={seed}"])
        store = CaseStore(WORK / "cache", self.plan.cohort.cases, self.plan.preparation)
        names: list[str] = []
        for fold in training_folds:
            names += self.plan.folds[fold]
        assert not store.prepare(names)
        super().__init__(
            lambda: network_of(preset),
            make_patches(preset, store, names, max_steps),
            preset,
            optimizer="adamw",
            rate=rate,
        )

    def scores_of(self, cases: Sequence[str]) -> list[Score]:
        """The scores of the averaged weights."""
        return self.scores(self.plan.cohort, self.plan.preparation, cases)

    def save_weights(self, file: Path) -> None:
        """Save the averaged weights in half precision."""
        file.parent.mkdir(parents=True, exist_ok=True)
        weights = {}
        for name, value in self.averaged.state_dict().items():
            half = value.half() if value.is_floating_point() else value
            weights[name] = half.contiguous()
        save_file(weights, file)


@app.command()
def search(context: typer.Context) -> None:
    """Train a third of a run with each rate, at least SEARCH_STEPS steps, for the tuning fold."""
    step_seconds, folds = read_step_seconds(), make_plan(context.obj).folds
    cases = folds[TUNING_FOLD][: 2 * CURVE_CASES]
    others = [fold for fold in folds if fold not in (TUNING_FOLD, TEST_FOLD)]
    for name in SYSTEMS:
        steps = max(SEARCH_STEPS, round(SECONDS / 3 / step_seconds[name]))
        for rate in RATES:
            file = search_file(name, rate)
            with claim(file, WORK) as free:
                if not free:
                    continue
                training = Training(name, context.obj, others, rate=rate, seed=0, max_steps=steps)
                # masks of a training that failed are empty, so that its rate is not chosen
                with suppress(FloatingPointError):
                    run_until(training, steps, f"{name}, rate {rate:g}")
                write_scores(file, training.scores_of(cases))


@app.command()
def train(context: typer.Context) -> None:
    """Train every system and seed with its best rate, and score it on the test fold."""
    for seed in range(max(SEEDS.values())):
        for name in SYSTEMS:
            if seed >= SEEDS.get(name, 1):
                continue
            folder = OUTPUT / "runs" / f"{name}-{seed}"
            with claim(folder / "curve.csv", WORK) as free:
                if free and is_searched(name):
                    train_run(name, seed, folder, context.obj)
                else:
                    console.print(f"{name} {seed}: finished, claimed elsewhere, or without a rate")


def train_run(name: str, seed: int, folder: Path, data: Path) -> None:
    """Train one run, and write its scores and its learning curve."""
    step_seconds, folds = read_step_seconds()[name], make_plan(data).folds
    held_out, others = folds[TEST_FOLD], [fold for fold in folds if fold != TEST_FOLD]
    rate, last = best_rate(name), round(SECONDS / step_seconds)
    marks = sorted({*[round(seconds / step_seconds) for seconds in MARKS], STEPS})
    training = Training(name, data, others, rate=rate, seed=seed, max_steps=marks[-1])
    curve = []
    for mark in marks:
        run_until(training, mark, f"{name}, rate {rate:g}, seed {seed}")
        kinds = ["time"] * (mark == last) + ["steps"] * (mark == STEPS)
        scores = training.scores_of(held_out if kinds else held_out[:CURVE_CASES])
        for kind in kinds:
            write_scores(folder / f"scores-{kind}.csv", scores)
            training.save_weights(WORK / "weights" / f"{name}-{seed}-{kind}.safetensors")
        dice = mean_dice([row for row in scores if row.case in held_out[:CURVE_CASES]])
        seconds = round(mark * step_seconds, 1)
        curve.append({"step": mark, "seconds": seconds, "dice": round(dice, 4), "rate": rate})
        console.print(f"{name} {seed}: step {mark}, {seconds:.0f} s, Dice {dice:.3f}")
    write_rows(folder / "curve.csv", curve)


def run_until(training: Training, step: int, label: str) -> None:
    while training.steps < step:
        loss = training.step()
        if training.steps % 25 == 0:
            console.print(f"{label}: step {training.steps} of {step}, loss {loss:.3f}")


@app.command()
def report(context: typer.Context) -> None:
    """Compare the runs that are finished, at equal time and at equal steps."""
    from systems_report import write_report

    write_report(context.obj)


if __name__ == "__main__":
    app()
