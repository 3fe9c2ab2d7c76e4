"""Figures of ablations (Fig. 8) and of tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from factorizer.figures.boxes import COLORS, png
from factorizer.inspection.settings import Point

PANELS = {
    "first layers kept": ("first layers kept",),
    "layer removed": ("layer removed",),
    "iterations T": ("iterations",),
    "rank R": ("rank (HALS)", "rank (MU)"),
}
METRICS = {
    "dice": "mean Dice",
    "hd95_mm": "mean HD95 (mm)",
    "time_ratio": "time relative to trained model",
    "gflops": "GFLOPs per patch",
}
FIRST_REFERENCE = 3  # its color; those before it are of the studies


@dataclass(frozen=True)
class Timed:
    """A setting of a network: its time relative to the trained model, and its mean Dice."""

    name: str
    time_ratio: float
    dice: float


def draw_ablation(points: Sequence[Point], references: Mapping[str, Point]) -> bytes:
    """A PNG with a column per study and a row per metric.

    Dashed lines are models as they were trained.
    """
    measured = {point.study for point in points}
    titles = [title for title, studies in PANELS.items() if measured & set(studies)]
    figure = Figure(figsize=(3.3 * len(titles), 9.2), layout="constrained")
    panels = figure.subplots(len(METRICS), len(titles), squeeze=False, sharex="col")
    for row, (metric, label) in zip(panels, METRICS.items(), strict=True):
        for panel, title in zip(row, titles, strict=True):
            draw_studies(panel, points, PANELS[title], metric)
            draw_references(panel, references, metric)
            clean_panel(panel)
        row[0].set_ylabel(label)
    for panel, title in zip(panels[-1], titles, strict=True):
        panel.set_xlabel(title)
        panel.xaxis.get_major_locator().set_params(integer=True)
    for panel in panels[0]:
        panel.legend(frameon=False, fontsize=7)
    return png(figure)


def draw_studies(panel: Axes, points: Sequence[Point], studies: Sequence[str], metric: str) -> None:
    """A line per study."""
    for color, study in zip(COLORS, studies, strict=False):
        own = [point for point in points if point.study == study]
        own.sort(key=lambda point: point.value)
        places = [point.value for point in own]
        values = [getattr(point, metric) for point in own]
        panel.plot(places, values, marker="o", markersize=3, color=color, label=study)


def draw_references(panel: Axes, references: Mapping[str, Point], metric: str) -> None:
    """A dashed line per model as it was trained."""
    for index, (name, point) in enumerate(references.items(), start=FIRST_REFERENCE):
        value = getattr(point, metric)
        panel.axhline(value, label=name, color=COLORS[index], linestyle="--", linewidth=1)


def clean_panel(panel: Axes) -> None:
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)


def draw_front(tried: Sequence[Timed], chosen: Sequence[Timed]) -> bytes:
    """A PNG of mean Dice against time: all settings tried, the best of them, and the chosen."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    panel = figure.subplots()
    panel.scatter(*coordinates(tried), s=12, color="0.6", label="tried")
    panel.step(*coordinates(pareto(tried)), where="post", color=COLORS[0], label="front")
    for color, setting in zip(COLORS[1:], chosen, strict=False):
        panel.plot(setting.time_ratio, setting.dice, "D", color=color, label=setting.name)
    panel.set_xlabel("time per patch, relative to the trained model")
    panel.set_ylabel("mean Dice of the held-out cases")
    clean_panel(panel)
    panel.legend(frameon=False)
    return png(figure)


def coordinates(settings: Sequence[Timed]) -> tuple[list[float], list[float]]:
    """The times and the Dice."""
    return [setting.time_ratio for setting in settings], [setting.dice for setting in settings]


def pareto(settings: Sequence[Timed]) -> list[Timed]:
    """The settings that no other beats in both time and Dice, the fastest first."""
    front: list[Timed] = []
    for setting in sorted(settings, key=lambda setting: (setting.time_ratio, -setting.dice)):
        if not front or setting.dice > front[-1].dice:
            front.append(setting)
    return front
