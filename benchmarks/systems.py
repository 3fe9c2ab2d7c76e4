"""All ten systems on the hippocampus at equal budget: same data, fold, patches, augmentation and
learning-rate search.

    python benchmarks/systems.py DATA measure   # seconds of a training step; on a machine that does
    nothing else python benchmarks/systems.py DATA search    # three learning rates per system, on
    the tuning fold python benchmarks/systems.py DATA train     # one run per system and seed,
    scored on another fold python benchmarks/systems.py DATA report    # tables, tests, box plots
    and learning curves

Every system has half its default width, and is trained at a constant rate after a short warm-up;
what is scored is a running average of the weights, so that a run can be read at any step. `measure`
is what turns steps into time: a run is read after as many steps as fit into SECONDS, and after
STEPS steps. So `search` and `train` may share the machine with other work, two at a time too;
called again they make what is missing, a run that was interrupted from its start. What is finished
lies in docs/results/systems, weights in runs/systems/weights (300 MB are no part of a repository).
"""

from __future__ import annotations

import csv
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from filelock import FileLock, Timeout
from matplotlib.figure import Figure
from rich.console import Console
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader

from factorizer.config import Preset, build_options
from factorizer.data.cache import CaseStore, Settings, settings_for
from factorizer.data.cases import Cohort
from factorizer.data.folds import draw_folds
from factorizer.data.layouts import read_cohort
from factorizer.data.patches import PatchDataset
from factorizer.evaluation.compare import Entry, compare_entries
from factorizer.evaluation.scores import Score, read_scores, write_scores
from factorizer.figures.boxes import png
from factorizer.files import write_atomically
from factorizer.hardware import cpu_model
from factorizer.inference.predictor import Predictor
from factorizer.models.build import build_network
from factorizer.models.registry import SYSTEMS
from factorizer.preset_files import change_preset, load_preset
from factorizer.profiling.table import count_rows
from factorizer.reports.comparison import comparison_files
from factorizer.training.loss import supervised_loss
from factorizer.training.scoring import score_case

OUTPUT = Path(__file__).parents[1] / "docs" / "results" / "systems"
WORK = Path(__file__).parents[1] / "runs" / "systems"  # preprocessed cases and locks
SECONDS, STEPS = 300, 300  # at which runs are read
MARKS = (30, 60, 120, 180, 240, SECONDS)  # seconds at which the learning curve has points
RATES = (5e-4, 1.5e-3, 4.5e-3)
SEARCH_STEPS = 100
TUNING_FOLD, TEST_FOLD = 0, 1
CURVE_CASES = 10
WARMUP, AVERAGE = 20, 0.98
SEEDS = {
    "global-factorizer": 3,
    "local-factorizer": 3,
    "swin-factorizer": 3,
    "nnunet": 3,
    "res-unet": 3,
}
COMMON = [
    "data.patch_size=[32,64,32]",  # a size that all ten can take
    "data.augmentation.flip.probability=0",  # these three as when the results were made
    "data.augmentation.affine.axes=null",
    "data.augmentation.elastic.probability=0",
    "model.widths=[16,32,64,128,256]",
]
HALVES = {  # of the systems whose widths have names of their own
    "transbts": "{width: 8, embed_dim: 256, hidden: 2048, num_heads: 4}",
    "unetr": "{feature_size: 16, hidden_size: 384, mlp_dim: 1536, num_heads: 6}",
    "swin-unetr": "{feature_size: 24, window_size: 4}",  # the window of the Factorizers here
    "nnformer": "{embed_dim: 96}",
}
Row = dict[str, Any]
console = Console()
app = typer.Typer(add_completion=False, help=__doc__)
Data = Annotated[
    Path, typer.Argument(help="Task04_Hippocampus of the Medical Segmentation Decathlon.")
]


@app.callback()
def main(context: typer.Context, data: Data) -> None:
    context.obj = data


def preset_of(name: str) -> Preset:
    changes = [
        *COMMON,
        f"model.name={name}",
        *([f"model.extra={HALVES[name]}"] if name in HALVES else []),
    ]
    return change_preset(load_preset("hippocampus"), changes)


@cache
def cohort_of(data: Path) -> tuple[Cohort, Settings, dict[int, list[str]]]:
    cohort, preset = read_cohort(data), preset_of("nnunet")
    return cohort, settings_for(cohort, preset.data), draw_folds(cohort.cases, num_folds=5, seed=0)


@app.command()
def measure(context: typer.Context) -> None:
    """Parameters, FLOPs, and the time of a training step. The systems take turns, and a turn's
    times are compared with each other, as the machine is faster in some turns than in others."""
    if any(OUTPUT.glob("runs/*/curve.csv")):
        raise SystemExit(
            f"{OUTPUT}/runs was read by the step times that there are; remove it before measuring "
            "again"
        )
    names, turns, steps_per_turn = list(SYSTEMS), 9, 4
    everything = list(cohort_of(context.obj)[2])
    trainings = {
        name: Training(name, context.obj, everything, 1e-5, 0, turns * steps_per_turn)
        for name in names
    }
    times: dict[str, list[float]] = {name: [] for name in names}  # one for each turn
    for turn in range(turns):
        for name in names:
            trainings[name].step()  # which finds its memory again
            times[name].append(
                statistics.median(timed(trainings[name].step) for _ in range(steps_per_turn - 1))
            )
        console.print(f"turn {turn + 1} of {turns}")
    scales = [statistics.geometric_mean(turn) for turn in zip(*times.values(), strict=True)]
    typical, rows = statistics.median(scales), []
    for name in names:
        (count,) = count_rows(preset_of(name), "", [name])
        assert count.params, count.note
        assert count.gflops
        low, step, high = statistics.quantiles(
            typical * seconds / scale for seconds, scale in zip(times[name], scales, strict=True)
        )
        row = {
            "system": name,
            "parameters_m": round(count.params / 1e6, 3),
            "gflops": round(count.gflops, 2),
        }
        rows.append(
            row | {"step_s": round(step, 3), "low_s": round(low, 3), "high_s": round(high, 3)}
        )
    write_rows(OUTPUT / "cost.csv", rows)
    machine = f"{cpu_model()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    write_atomically(OUTPUT / "machine.txt", f"{machine}, {date.today()}\n")
    console.print(*rows, sep="\n")


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class Training:
    """A system in training: one batch after another, and the running average of its weights."""

    def __init__(
        self,
        name: str,
        data: Path,
        training_folds: Sequence[int],
        rate: float,
        seed: int,
        max_steps: int,
    ) -> None:
        self.cohort, self.settings, folds = cohort_of(data)
        self.preset = change_preset(preset_of(name), [f"training.seed={seed}"])
        section, training = self.preset.data, self.preset.training
        store = CaseStore(WORK / "cache", self.cohort.cases, self.settings)
        names = [case for fold in training_folds for case in folds[fold]]
        assert not store.prepare(names)
        patches = PatchDataset(
            store,
            names,
            length=max_steps * training.batch_size,
            patch_size=section.patch_size,
            targets=section.targets,
            seed=seed,
            augmentation=section.augmentation,
        )
        self.batches = iter(DataLoader(patches, batch_size=training.batch_size))
        torch.manual_seed(seed)  # of dropout
        options = build_options(self.preset, name)
        self.network = build_network(name, options, seed=seed)
        self.averaged = build_network(name, options, seed=seed)
        self.averaged.load_state_dict(self.network.state_dict())
        self.rate, self.steps = rate, 0
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=rate, weight_decay=training.weight_decay
        )

    def step(self) -> float:
        """Train on the next batch; its loss."""
        self.steps += 1
        training, batch = self.preset.training, next(self.batches)
        self.optimizer.param_groups[0]["lr"] = self.rate * min(1.0, self.steps / WARMUP)
        self.network.train()
        loss = supervised_loss(
            self.network(batch["image"]),
            batch["target"],
            weights=training.deep_supervision_weights,
            epsilon=training.dice_epsilon,
        )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        update_average(self.averaged, self.network, min(AVERAGE, self.steps / (self.steps + 9)))
        return loss.item()

    def scores(self, cases: Sequence[str]) -> list[Score]:
        """Of the averaged weights."""
        predictor = Predictor(self.preset, [self.averaged])
        return [
            row
            for case in cases
            for row in score_case(predictor, self.cohort.case(case), self.settings)
        ]

    def save(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        half = {
            name: x.half() if x.is_floating_point() else x
            for name, x in self.averaged.state_dict().items()
        }
        save_file({name: x.contiguous() for name, x in half.items()}, file)


@app.command()
def search(context: typer.Context) -> None:
    """A third of a run with each rate, of SEARCH_STEPS steps at least, scored on the tuning
    fold."""
    cost, folds = read_cost(), cohort_of(context.obj)[2]
    tuned = folds[TUNING_FOLD][: 2 * CURVE_CASES]
    others = [fold for fold in folds if fold not in (TUNING_FOLD, TEST_FOLD)]
    for name in SYSTEMS:
        steps = max(SEARCH_STEPS, round(SECONDS / 3 / cost[name]))
        for rate in RATES:
            file = OUTPUT / "search" / f"{name}-{rate:g}.csv"
            with claim(file) as free:
                if free:
                    training = Training(name, context.obj, others, rate, 0, steps)
                    with suppress(
                        FloatingPointError
                    ):  # its masks are empty, so that the rate is not chosen
                        run_until(training, steps, f"{name}, rate {rate:g}")
                    write_scores(file, training.scores(tuned))


@app.command()
def train(context: typer.Context) -> None:
    """Every system and seed with its best rate, scored on the test fold."""
    cost, folds = read_cost(), cohort_of(context.obj)[2]
    runs = [
        (name, seed)
        for seed in range(max(SEEDS.values()))
        for name in SYSTEMS
        if seed < SEEDS.get(name, 1)
    ]
    held_out, others = folds[TEST_FOLD], [fold for fold in folds if fold != TEST_FOLD]
    for name, seed in runs:
        folder = OUTPUT / "runs" / f"{name}-{seed}"
        with claim(folder / "curve.csv") as free:
            if not free or not is_searched(name):
                console.print(f"{name} {seed}: finished, in work elsewhere, or without a rate yet")
                continue
            rate, last = best_rate(name), round(SECONDS / cost[name])
            marks = sorted({*(round(seconds / cost[name]) for seconds in MARKS), STEPS})
            training, curve = Training(name, context.obj, others, rate, seed, marks[-1]), []
            for mark in marks:
                run_until(training, mark, f"{name}, rate {rate:g}, seed {seed}")
                full = mark in (last, STEPS)
                scores = training.scores(held_out if full else held_out[:CURVE_CASES])
                for kind in ["time"] * (mark == last) + ["steps"] * (mark == STEPS):
                    write_scores(folder / f"scores-{kind}.csv", scores)
                    training.save(WORK / "weights" / f"{name}-{seed}-{kind}.safetensors")
                dice = mean_dice([row for row in scores if row.case in held_out[:CURVE_CASES]])
                seconds = round(mark * cost[name], 1)
                curve.append(
                    {"step": mark, "seconds": seconds, "dice": round(dice, 4), "rate": rate}
                )
                console.print(f"{name} {seed}: step {mark}, {seconds:.0f} s, Dice {dice:.3f}")
            write_rows(folder / "curve.csv", curve)


def run_until(training: Training, step: int, label: str) -> None:
    while training.steps < step:
        loss = training.step()
        if not math.isfinite(loss):
            raise FloatingPointError(f"{label}: the loss is {loss} at step {training.steps}")
        if training.steps % 25 == 0:
            console.print(f"{label}: step {training.steps} of {step}, loss {loss:.3f}")


def read_cost() -> dict[str, float]:
    """Seconds of a step."""
    return {row["system"]: float(row["step_s"]) for row in read_rows(OUTPUT / "cost.csv")}


@torch.no_grad()
def update_average(averaged: nn.Module, network: nn.Module, keep: float) -> None:
    for old, new in zip(averaged.state_dict().values(), network.state_dict().values(), strict=True):
        if old.is_floating_point():
            old.lerp_(new, 1 - keep)
        else:
            old.copy_(new)


def is_searched(name: str) -> bool:
    return all((OUTPUT / "search" / f"{name}-{rate:g}.csv").exists() for rate in RATES)


def best_rate(name: str) -> float:
    means = {
        rate: mean_dice(read_scores(OUTPUT / "search" / f"{name}-{rate:g}.csv")) for rate in RATES
    }
    return max(means, key=lambda rate: means[rate])


@app.command()
def report(context: typer.Context) -> None:
    """Compare what is finished, read at equal time and at equal steps."""
    cost = {row["system"]: row for row in read_rows(OUTPUT / "cost.csv")}
    ours_first = reversed(SYSTEMS)  # the first one is tested against the others
    finished = {
        name: sorted((OUTPUT / "runs").glob(f"{name}-[0-9]/curve.csv")) for name in ours_first
    }
    finished = {name: curves for name, curves in finished.items() if curves}
    owners = {case.name: case.owner for case in cohort_of(context.obj)[0].cases}
    for kind in ("time", "steps"):
        entries = [
            Entry(
                name,
                read_scores(curves[0].with_name(f"scores-{kind}.csv")),
                float(cost[name]["parameters_m"]),
                float(cost[name]["gflops"]),
            )
            for name, curves in finished.items()
        ]
        for file, content in comparison_files(compare_entries(entries, patients=owners)).items():
            write_atomically(OUTPUT / kind / file, content)
    lines_of = {
        name: [
            [(float(row["seconds"]), float(row["dice"])) for row in read_rows(file)]
            for file in files
        ]
        for name, files in finished.items()
    }
    write_atomically(OUTPUT / "curves.png", draw_curves(lines_of))
    lines = [
        "| system | parameters, M | GFLOPs | step, s | rate | steps in time | Dice, equal time | "
        "Dice, equal steps |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for name, files in finished.items():
        row, rate = cost[name], best_rate(name)
        edge = "*" if rate in (min(RATES), max(RATES)) else ""
        dices = [
            " ".join(
                f"{mean_dice(read_scores(file.with_name(f'scores-{kind}.csv')), owners):.3f}"
                for file in files
            )
            for kind in ("time", "steps")
        ]
        steps = round(SECONDS / float(row["step_s"]))
        cells = [
            name,
            row["parameters_m"],
            row["gflops"],
            row["step_s"],
            f"{rate:g}{edge}",
            steps,
            *dices,
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    notes = (
        "Dice is the mean over regions and held-out scans (both sides of a scan are averaged "
        "first), one number per seed. Tests, tables and box plots in time/ and steps/ are of the "
        "first seed, over scans: they know nothing of how a result varies from training to "
        "training. * The best of the three rates is at an end of their range."
    )
    write_atomically(OUTPUT / "cost.md", "\n".join([*lines, "", notes]) + "\n")


def draw_curves(curves: dict[str, list[list[tuple[float, float]]]]) -> bytes:
    """Dice against training time: the median over seeds, with their range."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for index, (name, runs) in enumerate(curves.items()):
        seconds = [point[0] for point in runs[0]]
        dices = [[point[1] for point in points] for points in zip(*runs, strict=True)]
        color, style = f"C{index}", "-" if "factorizer" in name else "--"
        axes.plot(
            seconds,
            [statistics.median(d) for d in dices],
            style,
            color=color,
            label=name,
            marker=".",
        )
        axes.fill_between(
            seconds, [min(d) for d in dices], [max(d) for d in dices], color=color, alpha=0.15
        )
    axes.set(
        xlabel="training time, s",
        ylabel=f"mean Dice, {CURVE_CASES} held-out cases",
        ylim=(0.5, 0.92),
    )
    axes.set_xlim(0, SECONDS * 1.02)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, ncols=2, loc="lower right")
    return png(figure)


def mean_dice(scores: Sequence[Score], owners: Mapping[str, str] | None = None) -> float:
    """Over the regions and cases of a patient, and then over patients; over cases where `owners` is
    not known."""
    groups: dict[str, list[float]] = {}
    for score in scores:
        if score.metric == "dice":
            groups.setdefault((owners or {}).get(score.case, score.case), []).append(score.value)
    return statistics.fmean(map(statistics.fmean, groups.values()))


@contextmanager
def claim(file: Path) -> Iterator[bool]:
    """Whether a result is still to be made, and by nobody else."""
    (WORK / ".locks").mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(WORK / ".locks" / f"{file.parent.name}-{file.name}", timeout=0):
            yield not file.exists()
    except Timeout:
        yield False


def write_rows(file: Path, rows: Sequence[Row]) -> None:
    lines = [",".join(rows[0]), *(",".join(str(value) for value in row.values()) for row in rows)]
    write_atomically(file, "\n".join(lines) + "\n")


def read_rows(file: Path) -> list[Row]:
    with file.open() as lines:
        return list(csv.DictReader(lines))


if __name__ == "__main__":
    app()
