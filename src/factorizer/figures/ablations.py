"""The figures of ablations (Fig. 8) and of tuning: scores against what was changed, and against
time."""

from __future__ import annotations

from collections.abc import Sequence

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
    "time_ratio": "time / as trained",
    "gflops": "GFLOPs of a window",
}


def draw_ablation(points: Sequence[Point], references: dict[str, Point]) -> bytes:
    """A column per study, a row per measure; dashed lines are models as they were trained."""
    titles = [title for title, studies in PANELS.items() if any(p.study in studies for p in points)]
    figure = Figure(figsize=(3.3 * len(titles), 9.2), layout="constrained")
    panels = figure.subplots(len(METRICS), len(titles), squeeze=False, sharex="col")
    for row, (metric, label) in zip(panels, METRICS.items(), strict=True):
        for panel, title in zip(row, titles, strict=True):
            for index, study in enumerate(PANELS[title]):
                own = sorted((p for p in points if p.study == study), key=lambda p: p.value)
                places, values = [p.value for p in own], [getattr(p, metric) for p in own]
                panel.plot(
                    places, values, marker="o", markersize=3, color=COLORS[index], label=study
                )
            for index, (name, point) in enumerate(references.items()):
                style = {"color": COLORS[3 + index], "linestyle": "--", "linewidth": 1}
                panel.axhline(getattr(point, metric), label=name, **style)
            panel.grid(alpha=0.3)
            panel.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(label)
    for panel, title in zip(panels[-1], titles, strict=True):
        panel.set_xlabel(title)
        panel.xaxis.get_major_locator().set_params(integer=True)
    for panel in panels[0]:
        panel.legend(frameon=False, fontsize=7)
    return png(figure)


def draw_front(
    points: Sequence[tuple[float, float, str]], chosen: dict[str, tuple[float, float]]
) -> bytes:
    """Mean Dice against time: everything tried, the front of what is best, and what was chosen."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    panel = figure.subplots()
    panel.scatter([p[0] for p in points], [p[1] for p in points], s=12, color="0.6", label="tried")
    front = pareto(points)
    panel.step(
        [p[0] for p in front], [p[1] for p in front], where="post", color=COLORS[0], label="front"
    )
    for index, (name, (ratio, dice)) in enumerate(chosen.items()):
        panel.plot(ratio, dice, "D", color=COLORS[1 + index], label=name)
    panel.set_xlabel("time of a window / as trained")
    panel.set_ylabel("mean Dice of validation cases")
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False)
    return png(figure)


def pareto(points: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Those that no other beats in both time and Dice, from the fastest on."""
    front: list[tuple[float, float, str]] = []
    for point in sorted(points, key=lambda p: (p[0], -p[1])):
        if not front or point[1] > front[-1][1]:
            front.append(point)
    return front
