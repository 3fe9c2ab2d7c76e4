"""Figures of a comparison: box plots with marks of significance (Fig. 3) and Dice against cost
(Fig. 4)."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter
from numpy.typing import NDArray

from factorizer.evaluation.compare import FACTOR, HIGHER_IS_BETTER, TITLES, Comparison, Entry
from factorizer.evaluation.statistics import stars
from factorizer.figures.escapes import escape_label

COLORS = (
    "#4c72b0",
    "#dd8452",
    "#55a868",
    "#c44e52",
    "#8172b3",
    "#937860",
    "#da8bc3",
    "#8c8c8c",
    "#ccb974",
    "#64b5cd",
)
MEAN = {"marker": "D", "markersize": 3, "markerfacecolor": "white", "markeredgecolor": "black"}
OUTLIER = {"marker": ".", "markersize": 3, "markerfacecolor": "0.4", "markeredgecolor": "none"}
LEAST_WIDTH = 5.5  # inches; as wide as the note below
TICKS_MM = (0, 2, 5, 10, 20, 50, 100, 200, 500)
LINEAR_MM = 10  # HD95 is drawn logarithmically above


def draw_boxes(comparison: Comparison, metric: str) -> bytes:
    """A PNG with a group of boxes per region and a box per system.

    Stars over a box compare its system with the reference system (Holm).
    """
    names, regions = comparison.names, comparison.regions
    width = 1.5 + 0.42 * len(names) * len(regions) + 0.8 * len(regions)
    figure = Figure(figsize=(max(width, LEAST_WIDTH), 4.2), layout="constrained")
    panel = figure.subplots()
    highest = 0.0
    for index in range(len(names)):
        highest = max(highest, draw_system(panel, comparison, metric, index))
    step = len(names) + 1
    centres = [step * place + (len(names) - 1) / 2 for place in range(len(regions))]
    panel.set_xticks(centres, [escape_label(region) for region in regions])
    panel.set_ylabel(TITLES[metric] + (" ↑" if HIGHER_IS_BETTER[metric] else " ↓"))
    reference = escape_label(comparison.reference)
    note = (
        f"diamonds are means; * ** *** **** p < 0.05 0.01 0.001 0.0001 against {reference} (Holm)"
    )
    if metric == "hd95_mm":
        note += f"; logarithmic above {LINEAR_MM} mm"
        scale_distances(panel, highest)
    else:
        bottom, _ = panel.get_ylim()
        panel.set_ylim(top=bottom + 1.06 * (highest - bottom))
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", alpha=0.3)
    panel.set_axisbelow(True)
    figure.legend(loc="outside upper center", ncols=min(5, len(names)), frameon=False, fontsize=8)
    figure.supxlabel(note, size=7)
    return png(figure)


def draw_system(panel: Axes, comparison: Comparison, metric: str, index: int) -> float:
    """The boxes of a system, one per region, with their marks. The highest value is returned."""
    name = comparison.names[index]
    color = COLORS[index % len(COLORS)]
    step = len(comparison.names) + 1
    positions = [step * place + index for place in range(len(comparison.regions))]
    values = []
    for region in comparison.regions:
        values.append(FACTOR[metric] * comparison.defined_values(metric, region, name))
    boxes = panel.boxplot(
        values,
        positions=positions,
        widths=0.75,
        patch_artist=True,
        showmeans=True,
        meanprops=MEAN,
        medianprops={"color": "black"},
        flierprops=OUTLIER,
    )
    for box in boxes["boxes"]:
        box.set_facecolor(color)
    panel.plot([], [], "s", color=color, label=escape_label(name))  # for the legend
    draw_marks(panel, positions, values, marks_of(comparison, metric, name))
    return max((float(own.max()) for own in values if len(own)), default=0.0)


def marks_of(comparison: Comparison, metric: str, name: str) -> list[str]:
    """The stars of a system in each region. The reference system has none."""
    marks: dict[str, str] = {}
    for test in comparison.tests:
        if test.metric == metric and test.other == name:
            marks[test.region] = stars(test.corrected)
    return [marks.get(region, "") for region in comparison.regions]


def draw_marks(
    panel: Axes,
    positions: Sequence[float],
    values: Sequence[NDArray[Any]],
    marks: Sequence[str],
) -> None:
    """Stars over the highest value of each box."""
    for position, own, mark in zip(positions, values, marks, strict=True):
        if len(own):
            panel.annotate(
                mark,
                (position, own.max()),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                size=8,
            )


def scale_distances(panel: Axes, highest: float) -> None:
    """An axis on which penalties fit, although they are far above all distances."""
    panel.set_yscale("symlog", linthresh=LINEAR_MM)
    panel.yaxis.set_major_locator(FixedLocator(TICKS_MM))
    panel.yaxis.set_major_formatter("{x:g}")
    panel.set_ylim(0, 1.3 * highest or 1)


def draw_costs(comparison: Comparison) -> bytes | None:
    """A PNG of mean Dice against parameters and FLOPs. None unless two systems have both."""
    known = [entry for entry in comparison.entries if has_cost(entry)]
    if len(known) < 2 or "dice" not in comparison.metrics:
        return None
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for entry in known:
        draw_cost(left, entry, comparison, entry.parameters, label=escape_label(entry.name))
        draw_cost(right, entry, comparison, entry.gflops)
    style_costs(left, "parameters (millions)")
    style_costs(right, "GFLOPs of one patch")
    figure.legend(loc="outside upper center", ncols=min(5, len(known)), frameon=False, fontsize=8)
    left.set_ylabel(f"mean {TITLES['dice']}, 95 % interval")
    return png(figure)


def has_cost(entry: Entry) -> bool:
    return entry.parameters is not None and entry.gflops is not None


def draw_cost(
    panel: Axes,
    entry: Entry,
    comparison: Comparison,
    cost: float | None,
    label: str | None = None,
) -> None:
    """The mean Dice of a system with its interval, at its cost."""
    assert cost is not None, "only systems with a known cost are drawn"
    region = comparison.regions[-1]
    index = comparison.names.index(entry.name)
    mean = comparison.mean("dice", region, entry.name)
    low, high = comparison.interval("dice", region, entry.name)
    panel.errorbar(
        cost,
        mean,
        yerr=[[mean - low], [high - mean]],
        fmt="o",
        color=COLORS[index % len(COLORS)],
        capsize=3,
        label=label,
    )


def style_costs(panel: Axes, title: str) -> None:
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.margins(x=0.25, y=0.12)
    panel.set_xlabel(title)
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)


def png(figure: Figure) -> bytes:
    """A figure as a PNG file."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()
