"""The figure of the cost table: bars of what the systems take, and Dice against it as in the
paper's Fig. 4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from factorizer.profiling.table import Row

OURS, THEIRS = "#c0392b", "#7f8c9a"
Value = Callable[[Row], float | None]


def draw_profile(rows: Sequence[Row], title: str, file_format: str) -> bytes:
    """A page with one panel per figure that the rows have; systems that could not be built are left
    out."""
    rows = [row for row in rows if row.params]
    bars: list[tuple[str, list[tuple[str, Value]]]] = [
        ("Parameters, millions", [("", params_m)]),
        ("GFLOPs, forward", [("", gflops)]),
    ]
    if any(row.training_s is not None for row in rows):
        bars = [
            (
                "Seconds, CPU",
                [("forward", lambda r: r.forward_s), ("training step", lambda r: r.training_s)],
            ),
            (
                "Peak memory, GiB",
                [("forward", in_gib("forward_mib")), ("training step", in_gib("training_mib"))],
            ),
        ]
    scored = [row for row in rows if row.dice is not None]
    scatters: list[tuple[str, Callable[[Row], float]]] = [
        ("Parameters, millions", params_m),
        ("GFLOPs, forward", gflops),
    ]
    height = 1.2 + 0.42 * len(rows)
    figure = Figure(figsize=(11, height + (4.5 if scored else 0)), layout="constrained")
    figure.suptitle(title)
    grid = figure.add_gridspec(
        2 if scored else 1, 2, height_ratios=(height, 4.5) if scored else None
    )
    for index, (label, series) in enumerate(bars):
        draw_bars(figure.add_subplot(grid[0, index]), rows, label, series)
    for index, (label, value) in enumerate(scatters if scored else []):
        draw_scatter(figure.add_subplot(grid[1, index]), scored, label, value)
    buffer = BytesIO()
    figure.savefig(buffer, format=file_format, dpi=150)
    return buffer.getvalue()


def params_m(row: Row) -> float:
    return (row.params or 0) / 1e6


def gflops(row: Row) -> float:
    return row.gflops or 0.0


def in_gib(field: str) -> Value:
    def value(row: Row) -> float | None:
        mib: float | None = getattr(row, field)
        return None if mib is None else mib / 1024

    return value


def color_of(row: Row) -> str:
    return OURS if row.model.endswith("factorizer") else THEIRS


def draw_bars(
    axes: Axes, rows: Sequence[Row], label: str, series: Sequence[tuple[str, Value]]
) -> None:
    """Horizontal bars, the first system on top; a value that is missing is said."""
    height = 0.8 / len(series)
    for number, (_, value) in enumerate(series):
        for place, row in enumerate(rows):
            y, got = place + (number - (len(series) - 1) / 2) * height, value(row)
            style: dict[str, Any] = {"alpha": 0.5} if number < len(series) - 1 else {}
            axes.barh(y, got or 0, height, color=color_of(row), **style)
            axes.annotate(
                "not measured" if got is None else f"{got:.3g}" if got < 1000 else f"{got:.0f}",
                (got or 0, y),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
            )
    axes.set_yticks(range(len(rows)), [row.model for row in rows])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    note = f"  (light: {series[0][0]}, full: {series[1][0]})" if len(series) > 1 else ""
    axes.set_xlabel(label + note)
    axes.spines[["top", "right"]].set_visible(False)


def draw_scatter(
    axes: Axes, rows: Sequence[Row], label: str, value: Callable[[Row], float]
) -> None:
    for row in rows:
        x, y = value(row), 100 * (row.dice or 0)
        axes.scatter(x, y, color=color_of(row), zorder=3)
        axes.annotate(row.model, (x, y), xytext=(5, 4), textcoords="offset points", fontsize=8)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.25, y=0.15)
    axes.set_xlabel(label)
    axes.set_ylabel("Dice, %")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
