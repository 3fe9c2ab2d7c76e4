"""The figure of the cost table: what the systems take, and their Dice against it (Fig. 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from factorizer.profiling.table import Row

OURS, THEIRS = "#c0392b", "#7f8c9a"
FORMATS = ("png", "svg", "pdf")
SCATTER_HEIGHT = 4.5  # inches
Value = Callable[[Row], float | None]


@dataclass(frozen=True)
class Bars:
    """A panel: its label, and the values of one bar per system, or of a light and a full one."""

    label: str
    full: Value
    light: Value | None = None


def params_m(row: Row) -> float:
    return (row.params or 0) / 1e6


def gflops(row: Row) -> float:
    return row.gflops or 0.0


def forward_gib(row: Row) -> float | None:
    return None if row.forward_mib is None else row.forward_mib / 1024


def training_gib(row: Row) -> float | None:
    return None if row.training_mib is None else row.training_mib / 1024


COUNTED = [Bars("parameters (millions)", params_m), Bars("GFLOPs, forward", gflops)]
MEASURED = [
    Bars("seconds on the CPU", lambda row: row.training_s, light=lambda row: row.forward_s),
    Bars("peak memory (GiB)", training_gib, light=forward_gib),
]
SCATTERS = {"parameters (millions)": params_m, "GFLOPs, forward": gflops}


def draw_profile(rows: Sequence[Row], title: str, file_format: str) -> bytes:
    """A page with two panels of bars, and below them two of Dice if some system has scores.

    The bars are times and memory if they were measured, otherwise parameters and FLOPs. Systems
    that could not be built are left out.
    """
    rows = [row for row in rows if row.params]
    scored = [row for row in rows if row.dice is not None]
    measured = any(row.training_s is not None for row in rows)
    heights = [1.2 + 0.42 * len(rows)]
    if scored:
        heights.append(SCATTER_HEIGHT)
    figure = Figure(figsize=(11, sum(heights)), layout="constrained")
    figure.suptitle(title)
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    for column, bars in enumerate(MEASURED if measured else COUNTED):
        draw_bars(figure.add_subplot(grid[0, column]), rows, bars)
    if scored:
        for column, (label, value) in enumerate(SCATTERS.items()):
            draw_scatter(figure.add_subplot(grid[1, column]), scored, label, value)
    buffer = BytesIO()
    figure.savefig(buffer, format=file_format, dpi=150)
    return buffer.getvalue()


def color_of(row: Row) -> str:
    return OURS if row.model.endswith("factorizer") else THEIRS


def draw_bars(axes: Axes, rows: Sequence[Row], bars: Bars) -> None:
    """Horizontal bars, the first system on top. Missing values are named."""
    height = 0.8 if bars.light is None else 0.4
    for place, row in enumerate(rows):
        if bars.light is None:
            draw_bar(axes, place, bars.full(row), height, color_of(row))
        else:
            draw_bar(axes, place - height / 2, bars.light(row), height, color_of(row), alpha=0.5)
            draw_bar(axes, place + height / 2, bars.full(row), height, color_of(row))
    axes.set_yticks(range(len(rows)), [row.model for row in rows])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    note = "" if bars.light is None else "; light: forward, full: training step"
    axes.set_xlabel(bars.label + note)
    axes.spines[["top", "right"]].set_visible(False)


def draw_bar(
    axes: Axes, place: float, value: float | None, height: float, color: str, alpha: float = 1.0
) -> None:
    """A bar with its value beside it."""
    axes.barh(place, value or 0, height, color=color, alpha=alpha)
    axes.annotate(
        describe(value),
        (value or 0, place),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
    )


def describe(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def draw_scatter(
    axes: Axes, rows: Sequence[Row], label: str, value: Callable[[Row], float]
) -> None:
    """Dice against what a system takes."""
    for row in rows:
        place = value(row), 100 * (row.dice or 0)
        axes.scatter(*place, color=color_of(row), zorder=3)
        axes.annotate(row.model, place, xytext=(5, 4), textcoords="offset points", fontsize=8)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.25, y=0.15)
    axes.set_xlabel(label)
    axes.set_ylabel("Dice (%)")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
