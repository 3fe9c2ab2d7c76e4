"""How the Conv-Factorizer was designed: short trainings of variants, compared on a tuning fold.

\b
python benchmarks/design.py run hippocampus DATA --variant conv-factorizer --variant res-unet
python benchmarks/design.py run isles22 DATA --variant res-unet --steps 800 --seeds 3
python benchmarks/design.py report

A training has a constant rate after a short warm-up, and its averaged weights are scored. Each
seed gives all variants the same patches. `run` skips what is finished and resumes what was stopped.
Several of them may work at the same time. Results are in docs/results/design.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from design_plan import (
    OUTPUT,
    TASKS,
    VARIANTS,
    WORK,
    folds_for,
    network_for,
    patients_file,
    preset_for,
)
from rich.console import Console
from short_training import ShortTraining, claim

from factorizer.config import Preset
from factorizer.data.cache import CaseStore, preparation_for
from factorizer.data.layouts import read_cohort
from factorizer.evaluation.scores import write_scores
from factorizer.files import write_atomically
from factorizer.training.stream import make_patches

SAVE_EVERY = 100  # steps
console = Console(highlight=False)
app = typer.Typer(add_completion=False, help=__doc__)


class Bench:
    """The cases of a task, preprocessed."""

    def __init__(self, name: str, data: Path) -> None:
        self.name, self.task = name, TASKS[name]
        self.cohort = read_cohort(data)
        folds = folds_for(self.task, self.cohort, data)
        self.scored = list(folds[self.task.tuning_fold])
        self.training: list[str] = []
        for fold, cases in folds.items():
            if fold != self.task.tuning_fold:
                self.training += cases
        self.preparation = preparation_for(self.cohort, self.preset("res-unet", 0).data)
        owners = {case: self.cohort.case(case).owner for case in self.scored}
        write_atomically(patients_file(name), json.dumps(owners, indent=1) + "\n")
        self.store = CaseStore(WORK / "cache", self.cohort.cases, self.preparation)
        problems = self.store.prepare(self.training)
        assert not [problem for problem in problems if problem.severity != "warning"], problems

    def preset(self, variant: str, seed: int) -> Preset:
        return preset_for(self.task, VARIANTS[variant], seed=seed)

    def train(self, name: str, *, seed: int, steps: int) -> ShortTraining:
        """The training of a variant after so many steps."""
        variant, preset = VARIANTS[name], self.preset(name, seed)
        training = ShortTraining(
            lambda: network_for(preset, variant),
            make_patches(preset, self.store, self.training, steps),
            preset,
            optimizer=variant.optimizer,
            rate=variant.rate,
        )
        state = WORK / "states" / f"{self.name}-{name}-{seed}.pt"
        if state.exists():
            training.resume(state)
        losses = []
        while training.steps < steps:
            losses.append(training.step())
            if training.steps % SAVE_EVERY == 0 or training.steps == steps:
                training.save(state)
                mean = sum(losses) / len(losses)
                console.print(f"{name}, seed {seed}: step {training.steps}, loss {mean:.3f}")
                losses = []
        return training


@app.command()
def run(
    task: Annotated[str, typer.Argument(help=f"One of {', '.join(TASKS)}.")],
    data: Annotated[Path, typer.Argument(help="The data set of the task.")],
    variant: Annotated[list[str], typer.Option(help="Repeatable.")],
    steps: Annotated[int, typer.Option(help="Steps after which it is scored.")] = 400,
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0.")] = 1,
    threads: Annotated[int, typer.Option(help="Threads of PyTorch.")] = 1,
) -> None:
    """Train variants and score them."""
    torch.set_num_threads(threads)
    bench = Bench(task, data)
    for seed in range(seeds):
        for name in variant:
            with claim(score_file(task, name, steps, seed), WORK) as free:
                if free:
                    score(bench, name, seed=seed, steps=steps)


def score_file(task: str, variant: str, steps: int, seed: int) -> Path:
    return OUTPUT / task / f"{variant}-{steps}-{seed}.csv"


def score(bench: Bench, name: str, *, seed: int, steps: int) -> None:
    """Train one variant, and write its scores."""
    started = time.perf_counter()
    training = bench.train(name, seed=seed, steps=steps)
    rows = training.scores(bench.cohort, bench.preparation, bench.scored)
    write_scores(score_file(bench.name, name, steps, seed), rows)
    dices = [row.value for row in rows if row.metric == "dice"]
    minutes = (time.perf_counter() - started) / 60
    console.print(f"{name}, seed {seed}: Dice {sum(dices) / len(dices):.4f}, {minutes:.1f} min")


@app.command()
def report() -> None:
    """Write the tables of what is finished."""
    from design_report import write_report

    write_report()


if __name__ == "__main__":
    app()
