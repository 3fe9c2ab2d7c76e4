"""A comparison as pictures: box plots with marks of significance (Fig. 3) and Dice against cost
(Fig. 4)."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter

from factorizer.evaluation.compare import FACTOR, HIGHER_IS_BETTER, TITLES, Comparison
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


def draw_boxes(comparison: Comparison, metric: str) -> bytes:
    """A group of boxes per region, a box per system; stars over a box compare it with the reference
    (Holm)."""
    names, regions = comparison.names, comparison.regions
    width = 1.5 + 0.42 * len(names) * len(regions) + 0.8 * len(regions)
    figure = Figure(
        figsize=(max(width, 5.5), 4.2), layout="constrained"
    )  # the note below is as wide
    panel = figure.subplots()
    step, factor = len(names) + 1, FACTOR[metric]
    marks = {
        (test.region, test.other): stars(test.corrected)
        for test in comparison.tests
        if test.metric == metric
    }
    highest = 0.0
    for index, name in enumerate(names):
        values = [
            factor * comparison.values[metric, region, name][comparison.defined(metric, region)]
            for region in regions
        ]
        boxes = panel.boxplot(
            values,
            positions=[step * place + index for place in range(len(regions))],
            widths=0.75,
            patch_artist=True,
            showmeans=True,
            meanprops={
                "marker": "D",
                "markersize": 3,
                "markerfacecolor": "white",
                "markeredgecolor": "black",
            },
            medianprops={"color": "black"},
            flierprops={
                "marker": ".",
                "markersize": 3,
                "markerfacecolor": "0.4",
                "markeredgecolor": "none",
            },
        )
        for box in boxes["boxes"]:
            box.set_facecolor(COLORS[index % len(COLORS)])
        panel.plot([], [], "s", color=COLORS[index % len(COLORS)], label=escape_label(name))
        for place, (region, own) in enumerate(zip(regions, values, strict=True)):
            if not len(own):
                continue
            highest = max(highest, float(own.max()))
            mark = marks.get((region, name), "")
            panel.annotate(
                mark,
                (step * place + index, own.max()),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                size=8,
            )
    labels = [escape_label(region) for region in regions]
    panel.set_xticks([step * place + (len(names) - 1) / 2 for place in range(len(regions))], labels)
    panel.set_ylabel(TITLES[metric] + (" ↑" if HIGHER_IS_BETTER[metric] else " ↓"))
    reference = escape_label(comparison.reference)
    note = (
        f"diamonds are means; * ** *** **** p < 0.05 0.01 0.001 0.0001 against {reference} (Holm)"
    )
    if metric == "hd95_mm":  # penalties are far above everything else
        note += "; logarithmic above 10 mm"
        panel.set_yscale("symlog", linthresh=10)
        panel.yaxis.set_major_locator(FixedLocator([0, 2, 5, 10, 20, 50, 100, 200, 500]))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.set_ylim(0, 1.3 * highest or 1)
    else:
        panel.set_ylim(top=panel.get_ylim()[0] + 1.06 * (highest - panel.get_ylim()[0]))
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", alpha=0.3)
    panel.set_axisbelow(True)
    figure.legend(loc="outside upper center", ncols=min(5, len(names)), frameon=False, fontsize=8)
    figure.supxlabel(note, size=7)
    return png(figure)


def draw_costs(comparison: Comparison) -> bytes | None:
    """Mean Dice against parameters and FLOPs; None unless two systems have both."""
    known = [
        entry
        for entry in comparison.entries
        if entry.parameters is not None and entry.gflops is not None
    ]
    if len(known) < 2 or "dice" not in comparison.metrics:
        return None
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    region = comparison.regions[-1]
    for entry in known:
        index = comparison.names.index(entry.name)
        mean = comparison.mean("dice", region, entry.name)
        low, high = comparison.interval("dice", region, entry.name)
        for panel, cost in zip(panels, (entry.parameters, entry.gflops), strict=True):
            assert cost is not None, "known"
            style: dict[str, Any] = {"fmt": "o", "color": COLORS[index % len(COLORS)], "capsize": 3}
            style["label"] = escape_label(entry.name) if panel is panels[0] else None
            panel.errorbar(cost, mean, yerr=[[mean - low], [high - mean]], **style)
    for panel, title in zip(panels, ("parameters (millions)", "GFLOPs of one patch"), strict=True):
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.margins(x=0.25, y=0.12)
        panel.set_xlabel(title)
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=min(5, len(known)), frameon=False, fontsize=8)
    panels[0].set_ylabel(f"mean {TITLES['dice']}, 95 % interval")
    return png(figure)


def png(figure: Figure) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()
