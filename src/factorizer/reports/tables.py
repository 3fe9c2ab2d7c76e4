"""A comparison as tables: Markdown, CSV and LaTeX in the form of the paper's Tables 1 and 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from factorizer.evaluation.compare import HIGHER_IS_BETTER, NAMES, TITLES, Comparison, Entry
from factorizer.evaluation.statistics import stars
from factorizer.figures.escapes import escape_cell, escape_latex
from factorizer.files import csv_text

BEST, SECOND, OTHER = 0, 1, 2  # places of a cell in its column
Mark = Callable[[str, int], str]  # a cell and its place -> the cell as it is shown
PREFIXES = {"G": 1e9, "M": 1e6, "k": 1e3}
TABLE_COLUMNS = (
    "model",
    "parameters_m",
    "gflops",
    "metric",
    "region",
    "mean",
    "ci_low",
    "ci_high",
)
TESTS_COLUMNS = (
    "metric",
    "region",
    "model",
    "other",
    "cases",
    "mean_difference",
    "ci_low",
    "ci_high",
    "p",
    "stars",
    "p_holm",
    "stars_holm",
    "rank_biserial",
)


def markdown_mark(cell: str, place: int) -> str:
    return (f"**{cell}**", f"<u>{cell}</u>", cell)[place]


def latex_mark(cell: str, place: int) -> str:
    return (rf"\textbf{{{cell}}}", rf"\underline{{{cell}}}", cell)[place]


def header(comparison: Comparison) -> list[str]:
    """The columns of `body`."""
    pairs = product(comparison.metrics, comparison.regions)
    columns = [f"{NAMES[metric]} {region}" for metric, region in pairs]
    return ["Model", "#Params", "FLOPs", *columns]


def body(comparison: Comparison, mark: Mark) -> list[list[str]]:
    """A row per system: its name, parameters, FLOPs, and the mean of every metric and region.

    The best and the second best of a column are marked. Systems whose printed numbers are the same
    have the same mark.
    """
    rows = [[entry.name, *cost_cells(entry)] for entry in comparison.entries]
    for metric, region in product(comparison.metrics, comparison.regions):
        cells = [f"{comparison.mean(metric, region, name):.2f}" for name in comparison.names]
        places = places_of(cells, higher_is_better=HIGHER_IS_BETTER[metric])
        for row, cell, place in zip(rows, cells, places, strict=True):
            row.append(mark(cell, place))
    return rows


def cost_cells(entry: Entry) -> list[str]:
    """Parameters and FLOPs; a dash if they are unknown."""
    parameters = "-" if entry.parameters is None else with_prefix(1e6 * entry.parameters, "M")
    flops = "-" if entry.gflops is None else with_prefix(1e9 * entry.gflops, "G")
    return [parameters, flops]


def places_of(cells: Sequence[str], *, higher_is_better: bool) -> list[int]:
    """The place of each number in a column."""
    numbers = {float(cell) for cell in cells if cell != "nan"}
    order = sorted(numbers, reverse=higher_is_better)
    places = []
    for cell in cells:
        places.append(OTHER if cell == "nan" else min(order.index(float(cell)), OTHER))
    return places


def with_prefix(value: float, largest: str) -> str:
    """A number with one decimal and a prefix up to the largest: 5.9M, 12.3k, 950."""
    names = list(PREFIXES)
    for prefix in names[names.index(largest) :]:
        if value >= PREFIXES[prefix]:
            return f"{value / PREFIXES[prefix]:.1f}{prefix}"
    return f"{value:.0f}"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are written as they are: names must be escaped before."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def table_csv(comparison: Comparison) -> str:
    """Means with their bootstrap intervals, a line per metric, region and system."""
    rows = []
    for metric, region in product(comparison.metrics, comparison.regions):
        for entry in comparison.entries:
            low, high = comparison.interval(metric, region, entry.name)
            mean = comparison.mean(metric, region, entry.name)
            costs = [number_cell(entry.parameters), number_cell(entry.gflops)]
            names = [escape_cell(entry.name), *costs, metric, escape_cell(region)]
            rows.append([*names, *map(number_cell, (mean, low, high))])
    return csv_text(TABLE_COLUMNS, rows)


def number_cell(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def tests_csv(comparison: Comparison) -> str:
    """The tests of the reference against every other system, a line per test."""
    rows: list[list[object]] = []
    for test in comparison.tests:
        found = test.difference
        rows.append(
            [
                test.metric,
                escape_cell(test.region),
                escape_cell(comparison.reference),
                escape_cell(test.other),
                found.cases,
                number_cell(found.mean),
                number_cell(found.low),
                number_cell(found.high),
                f"{found.p:.4g}",
                stars(found.p),
                f"{test.corrected:.4g}",
                stars(test.corrected),
                f"{found.effect:.4f}",
            ]
        )
    return csv_text(TESTS_COLUMNS, rows)


def tests_rows(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of the tests as they are shown."""
    rows = []
    for test in comparison.tests:
        found = test.difference
        rows.append(
            [
                TITLES[test.metric],
                test.region,
                test.other,
                f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}]",
                with_stars(found.p),
                with_stars(test.corrected),
                f"{found.effect:+.2f}",
            ]
        )
    return ["metric", "region", "against", "difference", "p", "p (Holm)", "effect"], rows


def with_stars(p: float) -> str:
    return f"{p:.2g} {stars(p)}".strip()


def latex_table(comparison: Comparison) -> str:
    """The paper's table for LaTeX with booktabs."""
    regions, metrics = comparison.regions, comparison.metrics
    columns = " | ".join(["l", "cc", *["c" * len(regions)] * len(metrics)])
    titles = [latex_title(metric, len(regions)) for metric in metrics]
    names = [escape_latex(region) for region in regions] * len(metrics)
    lines = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        f" & & & {' & '.join(titles)} \\\\",
        rf"Model & \#Params & FLOPs & {' & '.join(names)} \\",
        r"\midrule",
    ]
    for row in body(comparison, latex_mark):
        lines.append(f"{escape_latex(row[0])} & {' & '.join(row[1:])} \\\\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def latex_title(metric: str, columns: int) -> str:
    """The title of a metric over its columns, with an arrow to the better side."""
    arrow = r"$\uparrow$" if HIGHER_IS_BETTER[metric] else r"$\downarrow$"
    return rf"\multicolumn{{{columns}}}{{c}}{{{escape_latex(TITLES[metric])} {arrow}}}"
