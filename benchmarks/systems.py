"""All ten systems on the hippocampus at equal budget: same data, fold, patches, augmentation and learning-rate search.

    python benchmarks/systems.py DATA measure   # seconds of a training step; on a machine that does nothing else
    python benchmarks/systems.py DATA search    # three learning rates per system, on the tuning fold
    python benchmarks/systems.py DATA train     # one run per system and seed, scored on another fold
    python benchmarks/systems.py DATA report    # tables, tests, box plots and learning curves

Every system has half its default width, and is trained at a constant rate after a short warm-up; what is scored is a
running average of the weights, so that a run can be read at any step. `measure` is what turns steps into time: a run is
read after as many steps as fit into SECONDS, and after STEPS steps. So `search` and `train` may be interrupted, go on
where they were, and may share the machine with other work, two at a time too. What is finished lies in
docs/results/systems.
"""

from __future__ import annotations

import csv
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from filelock import FileLock, Timeout
from matplotlib.figure import Figure
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import DataLoader

from factorizer.config import Preset, change_preset, load_preset
from factorizer.data.cache import CaseStore, Settings, settings_for
from factorizer.data.folds import draw_folds
from factorizer.data.layouts import Cohort, read_cohort
from factorizer.data.patches import PatchDataset
from factorizer.doctor import cpu_model
from factorizer.evaluation.compare import Entry, compare_entries
from factorizer.evaluation.scores import Score, read_scores, write_scores
from factorizer.files import write_atomically
from factorizer.inference.load import make_network
from factorizer.inference.predictor import Predictor
from factorizer.inference.score import score_case
from factorizer.models.registry import SYSTEMS
from factorizer.profiling.table import count_rows
from factorizer.reports.figures import png
from factorizer.reports.tables import comparison_files
from factorizer.training.loss import supervised_loss

OUTPUT = Path(__file__).parents[1] / "docs" / "results" / "systems"
WORK = Path(__file__).parents[1] / "runs" / "systems"  # preprocessed cases and locks
SECONDS, STEPS = 300, 300  # at which runs are read
MARKS = (30, 60, 120, 180, 240, SECONDS)  # seconds at which the learning curve has points
RATES = (5e-4, 1.5e-3, 4.5e-3)
SEARCH_STEPS = 100
TUNING_FOLD, TEST_FOLD = 0, 1
CURVE_CASES = 10
WARMUP, AVERAGE = 20, 0.98
SEEDS = {"global-factorizer": 3, "local-factorizer": 3, "swin-factorizer": 3, "nnunet": 3, "res-unet": 3}
COMMON = ["data.patch_size=[32,64,32]", "model.widths=[16,32,64,128,256]"]  # a size that all ten can take
HALVES = {  # of the systems whose widths have names of their own
    "transbts": "{width: 8, embed_dim: 256, hidden: 2048, num_heads: 4}",
    "unetr": "{feature_size: 16, hidden_size: 384, mlp_dim: 1536, num_heads: 6}",
    "swin-unetr": "{feature_size: 24}",
    "nnformer": "{embed_dim: 96}",
}
Row = dict[str, Any]
console = Console()
app = typer.Typer(add_completion=False, help=__doc__)
Data = Annotated[Path, typer.Argument(help="Task04_Hippocampus of the Medical Segmentation Decathlon.")]


@app.callback()
def main(context: typer.Context, data: Data) -> None:
    context.obj = data


def preset_of(name: str) -> Preset:
    changes = [*COMMON, f"model.name={name}", *([f"model.extra={HALVES[name]}"] if name in HALVES else [])]
    return change_preset(load_preset("hippocampus"), changes)


@cache
def cohort_of(data: Path) -> tuple[Cohort, Settings, dict[int, list[str]]]:
    cohort, preset = read_cohort(data), preset_of("nnunet")
    return cohort, settings_for(cohort, preset.data), draw_folds(cohort.cases, num_folds=5, seed=0)


@app.command()
def measure() -> None:
    """Parameters, FLOPs, and the median time of a training step; the systems take turns."""
    names = list(SYSTEMS)
    steps = {name: make_step(preset_of(name)) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(4):
        for name in names:
            steps[name]()  # which finds its memory again
            for _ in range(3):
                started = time.perf_counter()
                steps[name]()
                times[name].append(time.perf_counter() - started)
        console.print(f"turn {turn + 1} of 4")
    rows = []
    for name in names:
        (count,) = count_rows(preset_of(name), "", [name], lambda: None)
        assert count.params, count.note
        assert count.gflops
        rows.append(
            {
                "system": name,
                "parameters_m": round(count.params / 1e6, 3),
                "gflops": round(count.gflops, 2),
                "step_s": round(statistics.median(times[name]), 3),
            }
        )
    write_rows(OUTPUT / "cost.csv", rows)
    write_atomically(
        OUTPUT / "machine.txt", f"{cpu_model()}, {torch.get_num_threads()} threads, torch {torch.__version__}\n"
    )
    console.print(*rows, sep="\n")


def make_step(preset: Preset) -> Callable[[], object]:
    """A training step on noise."""
    torch.manual_seed(0)
    network, shape = make_network(preset), preset.data.patch_size
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5)
    image = torch.randn(preset.training.batch_size, 1, *shape)
    target = (torch.rand(preset.training.batch_size, 2, *shape) > 0.9).float()

    def step() -> None:
        train_step(network, optimizer, image, target, preset)

    return step


def train_step(
    network: nn.Module, optimizer: torch.optim.Optimizer, image: Tensor, target: Tensor, preset: Preset
) -> float:
    settings = preset.training
    network.train()
    loss = supervised_loss(
        network(image), target, weights=settings.deep_supervision_weights, epsilon=settings.dice_epsilon
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@app.command()
def search(context: typer.Context) -> None:
    """SEARCH_STEPS steps with each rate, scored on the tuning fold."""
    folds = cohort_of(context.obj)[2]
    tuned = folds[TUNING_FOLD][: 2 * CURVE_CASES]
    others = [fold for fold in folds if fold not in (TUNING_FOLD, TEST_FOLD)]
    for name in SYSTEMS:
        for rate in RATES:
            file = OUTPUT / "search" / f"{name}-{rate:g}.csv"
            with claim(file) as free:
                if free:
                    for _, scores in train_run(name, context.obj, others, rate, 0, [SEARCH_STEPS], lambda _: tuned):
                        write_scores(file, scores)


@app.command()
def train(context: typer.Context) -> None:
    """Every system and seed with its best rate, scored on the test fold."""
    cost = {row["system"]: float(row["step_s"]) for row in read_rows(OUTPUT / "cost.csv")}
    runs = [(name, seed) for seed in range(max(SEEDS.values())) for name in SYSTEMS if seed < SEEDS.get(name, 1)]
    folds = cohort_of(context.obj)[2]
    held_out, others = folds[TEST_FOLD], [fold for fold in folds if fold != TEST_FOLD]
    for name, seed in runs:
        folder = OUTPUT / "runs" / f"{name}-{seed}"
        with claim(folder / "curve.csv") as free:
            if not free or not is_searched(name):
                console.print(f"{name} {seed}: finished, in work elsewhere, or without a rate yet")
                continue
            marks = {round(seconds / cost[name]): seconds for seconds in MARKS}
            last = round(SECONDS / cost[name])

            def cases_at(step: int, last: int = last) -> Sequence[str]:
                return held_out if step in (last, STEPS) else held_out[:CURVE_CASES]

            curve = []
            rate = best_rate(name)
            for step, scores in train_run(name, context.obj, others, rate, seed, sorted({*marks, STEPS}), cases_at):
                if step in (last, STEPS):
                    for kind in ["time"] * (step == last) + ["steps"] * (step == STEPS):
                        write_scores(folder / f"scores-{kind}.csv", scores)
                first = [score for score in scores if score.case in held_out[:CURVE_CASES]]
                dice = mean_dice(first)
                curve.append(
                    {"step": step, "seconds": round(step * cost[name], 1), "dice": round(dice, 4), "rate": rate}
                )
                console.print(f"{name} {seed}: step {step}, {step * cost[name]:.0f} s, Dice {dice:.3f}")
            write_rows(folder / "curve.csv", curve)


def train_run(
    name: str,
    data: Path,
    training_folds: Sequence[int],
    rate: float,
    seed: int,
    marks: Sequence[int],
    cases_at: Callable[[int], Sequence[str]],
) -> Iterator[tuple[int, list[Score]]]:
    """Train on some folds; at every mark, the scores of the averaged weights on some cases of another."""
    cohort, settings, folds = cohort_of(data)
    preset = change_preset(preset_of(name), [f"training.seed={seed}"])
    names = [case for fold in training_folds for case in folds[fold]]
    store = CaseStore(WORK / "cache", cohort.cases, settings)
    patches = PatchDataset(
        store,
        names,
        length=marks[-1] * preset.training.batch_size,
        patch_size=preset.data.patch_size,
        labels=preset.data.labels,
        regions=preset.data.regions,
        seed=seed,
        augmentation=preset.data.augmentation,
    )
    torch.manual_seed(seed)
    network, averaged = make_network(preset), make_network(preset)
    averaged.load_state_dict(network.state_dict())
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=preset.training.weight_decay)
    batches = DataLoader(patches, batch_size=preset.training.batch_size)
    for step, batch in enumerate(batches, start=1):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, step / WARMUP)
        loss = train_step(network, optimizer, batch["image"], batch["target"], preset)
        if step % 25 == 0:
            console.print(f"{name}, rate {rate:g}, seed {seed}: step {step} of {marks[-1]}, loss {loss:.3f}")
        update_average(averaged, network, min(AVERAGE, step / (step + 9)))
        if step in marks:
            predictor = Predictor(preset, [averaged])
            scored = [score_case(predictor, cohort.case(case), settings) for case in cases_at(step)]
            yield step, [score for scores in scored for score in scores]


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
    means = {rate: mean_dice(read_scores(OUTPUT / "search" / f"{name}-{rate:g}.csv")) for rate in RATES}
    return max(means, key=lambda rate: means[rate])


@app.command()
def report() -> None:
    """Compare what is finished, read at equal time and at equal steps."""
    cost = {row["system"]: row for row in read_rows(OUTPUT / "cost.csv")}
    ours_first = reversed(SYSTEMS)  # the first one is tested against the others
    finished = {name: sorted((OUTPUT / "runs").glob(f"{name}-[0-9]/curve.csv")) for name in ours_first}
    for kind in ("time", "steps"):
        entries = []
        for name, curves in finished.items():
            if curves:
                scores = mean_over_seeds([read_scores(file.with_name(f"scores-{kind}.csv")) for file in curves])
                entries.append(Entry(name, scores, float(cost[name]["parameters_m"]), float(cost[name]["gflops"])))
        for file, content in comparison_files(compare_entries(entries)).items():
            write_atomically(OUTPUT / kind / file, content)
    lines_of = {
        name: [[(float(row["seconds"]), float(row["dice"])) for row in read_rows(file)] for file in files]
        for name, files in finished.items()
        if files
    }
    write_atomically(OUTPUT / "curves.png", draw_curves(lines_of))
    lines = [
        "| system | parameters, M | GFLOPs | step, s | rate | steps in time | seeds | Dice at equal time, per seed |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for name, files in finished.items():
        if not files:
            continue
        dices = [f"{mean_dice(read_scores(file.with_name('scores-time.csv'))):.3f}" for file in files]
        row = cost[name]
        steps = max(int(row["step"]) for row in read_rows(files[0]) if float(row["seconds"]) <= SECONDS * 1.01)
        cells = [name, row["parameters_m"], row["gflops"], row["step_s"], f"{best_rate(name):g}", steps, len(files)]
        lines.append("| " + " | ".join(map(str, [*cells, " ".join(dices)])) + " |")
    write_atomically(OUTPUT / "cost.md", "\n".join(lines) + "\n")


def mean_over_seeds(runs: Sequence[Sequence[Score]]) -> list[Score]:
    """Each case's score, the mean over the runs."""
    for run in runs:
        assert [astuple(s)[:3] for s in run] == [astuple(s)[:3] for s in runs[0]], "runs scored different cases"
    return [replace(same[0], value=statistics.fmean(s.value for s in same)) for same in zip(*runs, strict=True)]


def draw_curves(curves: dict[str, list[list[tuple[float, float]]]]) -> bytes:
    """Dice against training time: the mean over seeds, with their range."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for index, (name, runs) in enumerate(curves.items()):
        seconds = [point[0] for point in runs[0]]
        dices = [[point[1] for point in points] for points in zip(*runs, strict=True)]
        color, style = f"C{index}", "-" if "factorizer" in name else "--"
        axes.plot(seconds, [statistics.fmean(d) for d in dices], style, color=color, label=name, marker=".")
        axes.fill_between(seconds, [min(d) for d in dices], [max(d) for d in dices], color=color, alpha=0.15)
    axes.set(xlabel="training time, s (2 CPU threads)", ylabel=f"mean Dice, {CURVE_CASES} held-out cases", ylim=(0, 1))
    axes.set_xlim(0, SECONDS * 1.02)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, ncols=2, loc="lower right")
    return png(figure)


def mean_dice(scores: Sequence[Score]) -> float:
    return statistics.fmean(score.value for score in scores if score.metric == "dice")


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
