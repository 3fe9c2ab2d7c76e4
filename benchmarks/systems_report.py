"""The report of the comparison of all systems: tables, tests, box plots and learning curves."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from systems_plan import (
    COST_FILE,
    CURVE_CASES,
    OUTPUT,
    RATES,
    SECONDS,
    SYSTEMS,
    best_rate,
    make_plan,
    mean_dice,
    read_rows,
)

from factorizer.evaluation.compare import Entry, compare_entries
from factorizer.evaluation.scores import read_scores
from factorizer.figures.boxes import png
from factorizer.files import write_atomically
from factorizer.reports.comparison import comparison_files

KINDS = ("time", "steps")  # what is equal when runs are compared
COLUMNS = (
    "system",
    "parameters, M",
    "GFLOPs",
    "step, s",
    "rate",
    "steps in time",
    "Dice, equal time",
    "Dice, equal steps",
)
NOTES = (
    "Dice is the mean over regions and held-out scans (both sides of a scan are averaged "
    "first), one number per seed. Tests, tables and box plots in time/ and steps/ are of the "
    "first seed, over scans: they know nothing of how a result varies from training to "
    "training. * The best of the three rates is at an end of their range."
)
Curve = Sequence[tuple[float, float]]  # seconds and Dice
Curves = Mapping[str, Sequence[Path]]  # the curve.csv of each seed, by system


def write_report(data: Path) -> None:
    """Compare the runs that are finished, at equal time and at equal steps."""
    cost = {row["system"]: row for row in read_rows(COST_FILE)}
    finished = finished_runs()
    owners = {case.name: case.owner for case in make_plan(data).cohort.cases}
    for kind in KINDS:
        entries = [
            make_entry(name, curves[0], kind, cost[name]) for name, curves in finished.items()
        ]
        comparison = compare_entries(entries, patients=owners)
        for file, content in comparison_files(comparison).items():
            write_atomically(OUTPUT / kind / file, content)
    write_atomically(OUTPUT / "curves.png", draw_curves(finished))
    lines = [table_line(COLUMNS), "|" + "---|" * len(COLUMNS)]
    for name, curves in finished.items():
        lines.append(table_line(cells_of(name, curves, cost[name], owners)))
    write_atomically(OUTPUT / "cost.md", "\n".join([*lines, "", NOTES]) + "\n")


def finished_runs() -> Curves:
    """The curve.csv of every finished run. The Factorizers come first.

    The first system is tested against the others.
    """
    finished = {}
    for name in reversed(SYSTEMS):
        curves = sorted((OUTPUT / "runs").glob(f"{name}-[0-9]/curve.csv"))
        if curves:
            finished[name] = curves
    return finished


def scores_file(curve: Path, kind: str) -> Path:
    return curve.with_name(f"scores-{kind}.csv")


def make_entry(name: str, curve: Path, kind: str, cost: Mapping[str, str]) -> Entry:
    scores = read_scores(scores_file(curve, kind))
    return Entry(name, scores, float(cost["parameters_m"]), float(cost["gflops"]))


def cells_of(
    name: str, curves: Sequence[Path], cost: Mapping[str, str], owners: Mapping[str, str]
) -> list[object]:
    """The line of a system in the table of costs."""
    rate = best_rate(name)
    edge = "*" if rate in (min(RATES), max(RATES)) else ""
    cells: list[object] = [name, cost["parameters_m"], cost["gflops"], cost["step_s"]]
    cells += [f"{rate:g}{edge}", round(SECONDS / float(cost["step_s"]))]
    for kind in KINDS:
        dices = [mean_dice(read_scores(scores_file(curve, kind)), owners) for curve in curves]
        cells.append(" ".join(f"{dice:.3f}" for dice in dices))
    return cells


def table_line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def draw_curves(finished: Curves) -> bytes:
    """A PNG of Dice against training time: the median over seeds, with their range."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for index, (name, files) in enumerate(finished.items()):
        draw_system(axes, name, [read_curve(file) for file in files], f"C{index}")
    axes.set_xlabel("training time (s)")
    axes.set_ylabel(f"mean Dice of {CURVE_CASES} held-out cases")
    axes.set_ylim(0.5, 0.92)
    axes.set_xlim(0, SECONDS * 1.02)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, ncols=2, loc="lower right")
    return png(figure)


def read_curve(file: Path) -> Curve:
    return [(float(row["seconds"]), float(row["dice"])) for row in read_rows(file)]


def draw_system(axes: Axes, name: str, runs: Sequence[Curve], color: str) -> None:
    seconds = [point[0] for point in runs[0]]
    medians, lowest, highest = [], [], []
    for points in zip(*runs, strict=True):
        dices = [dice for _, dice in points]
        medians.append(statistics.median(dices))
        lowest.append(min(dices))
        highest.append(max(dices))
    style = "-" if "factorizer" in name else "--"
    axes.plot(seconds, medians, style, color=color, label=name, marker=".")
    axes.fill_between(seconds, lowest, highest, color=color, alpha=0.15)
