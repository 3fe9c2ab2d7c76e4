"""A comparison as tables: Markdown, CSV and LaTeX in the form of the paper's Tables 1 and 2, and
the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from factorizer.evaluation.compare import HIGHER_IS_BETTER, NAMES, TITLES, Comparison, rank
from factorizer.evaluation.differences import RunDifference, show
from factorizer.evaluation.scores import describe_conventions
from factorizer.evaluation.statistics import LEVEL, RESAMPLES, stars
from factorizer.figures.boxes import draw_boxes, draw_costs
from factorizer.figures.escapes import escape_cell, escape_latex, escape_markdown
from factorizer.files import csv_text
from factorizer.words import count

Mark = Callable[
    [str, int], str
]  # a cell and its place (0 best, 1 second, 2 other) -> the cell marked


def markdown_mark(cell: str, place: int) -> str:
    return (f"**{cell}**", f"<u>{cell}</u>", cell)[place]


def latex_mark(cell: str, place: int) -> str:
    return (rf"\textbf{{{cell}}}", rf"\underline{{{cell}}}", cell)[place]


def body(comparison: Comparison, mark: Mark) -> list[list[str]]:
    """A row per system: name, parameters, FLOPs, then every metric and region, best and second best
    marked.

    Systems whose printed numbers are the same are marked alike.
    """
    rows = [
        [
            entry.name,
            "-" if entry.parameters is None else with_prefix(1e6 * entry.parameters, "M"),
            "-" if entry.gflops is None else with_prefix(1e9 * entry.gflops, "G"),
        ]
        for entry in comparison.entries
    ]
    for metric in comparison.metrics:
        for region in comparison.regions:
            cells = [f"{comparison.mean(metric, region, name):.2f}" for name in comparison.names]
            numbers = sorted(
                {float(c) for c in cells if c != "nan"}, reverse=HIGHER_IS_BETTER[metric]
            )
            for row, cell in zip(rows, cells, strict=True):
                row.append(mark(cell, min(numbers.index(float(cell)), 2) if cell != "nan" else 2))
    return rows


def with_prefix(value: float, largest: str) -> str:
    """A number with one decimal and the largest prefix that leaves at least 1 before the point:
    5.9M, 12.3k, 950."""
    prefixes = {"G": 1e9, "M": 1e6, "k": 1e3}
    for prefix in list(prefixes)[list(prefixes).index(largest) :]:
        if value >= prefixes[prefix]:
            return f"{value / prefixes[prefix]:.1f}{prefix}"
    return f"{value:.0f}"


def header(comparison: Comparison) -> list[str]:
    columns = [f"{NAMES[m]} {region}" for m in comparison.metrics for region in comparison.regions]
    return ["Model", "#Params", "FLOPs", *columns]


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells stand as they are: what comes from others must be escaped before."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def table_csv(comparison: Comparison) -> str:
    """Means with their bootstrap intervals, one line per system, metric and region."""
    rows = []
    for metric in comparison.metrics:
        for region in comparison.regions:
            for entry in comparison.entries:
                low, high = comparison.interval(metric, region, entry.name)
                mean = comparison.mean(metric, region, entry.name)
                cost = ["" if x is None else f"{x:.6g}" for x in (entry.parameters, entry.gflops)]
                names = [escape_cell(entry.name), *cost, metric, escape_cell(region)]
                rows.append([*names, f"{mean:.6g}", f"{low:.6g}", f"{high:.6g}"])
    return csv_text(
        ["model", "parameters_m", "gflops", "metric", "region", "mean", "ci_low", "ci_high"], rows
    )


def tests_csv(comparison: Comparison) -> str:
    columns = [
        "metric",
        "region",
        "model",
        "other",
        "cases",
        "mean_difference",
        "ci_low",
        "ci_high",
    ]
    columns += ["p", "stars", "p_holm", "stars_holm", "rank_biserial"]
    rows = []
    for test in comparison.tests:
        d = test.difference
        numbers = [f"{x:.6g}" for x in (d.mean, d.low, d.high)]
        marks = [
            f"{d.p:.4g}",
            stars(d.p),
            f"{test.corrected:.4g}",
            stars(test.corrected),
            f"{d.effect:.4f}",
        ]
        names = [escape_cell(name) for name in (test.region, comparison.reference, test.other)]
        rows.append([test.metric, *names, d.cases, *numbers, *marks])
    return csv_text(columns, rows)


def latex_table(comparison: Comparison) -> str:
    """For booktabs; in the paper's form."""
    regions, metrics = comparison.regions, comparison.metrics
    columns = " | ".join(["l", "cc", *("c" * len(regions) for _ in metrics)])
    arrows = {True: r"$\uparrow$", False: r"$\downarrow$"}
    titles = []
    for metric in metrics:
        title = f"{escape_latex(TITLES[metric])} {arrows[HIGHER_IS_BETTER[metric]]}"
        titles.append(rf"\multicolumn{{{len(regions)}}}{{c}}{{{title}}}")
    names = [escape_latex(region) for _ in metrics for region in regions]
    lines = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        f" & & & {' & '.join(titles)} \\\\",
        rf"Model & \#Params & FLOPs & {' & '.join(names)} \\",
        r"\midrule",
        *(
            f"{escape_latex(row[0])} & {' & '.join(row[1:])} \\\\"
            for row in body(comparison, latex_mark)
        ),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def comparison_files(comparison: Comparison) -> dict[str, str | bytes]:
    """Everything that is written about a comparison, by file name."""
    figures = {f"{metric}.png": draw_boxes(comparison, metric) for metric in comparison.metrics}
    costs = draw_costs(comparison)
    if costs is not None:
        figures["cost.png"] = costs
    return {
        "table.csv": table_csv(comparison),
        "table.tex": latex_table(comparison),
        "tests.csv": tests_csv(comparison),
        "comparison.md": report(comparison, list(figures)),
        **figures,
    }


def report(comparison: Comparison, figures: Sequence[str]) -> str:
    """Everything on one Markdown page."""
    first = comparison.metrics[0]
    number = len(comparison.cases)
    which = (
        f"{count(number, 'patient')} with cases"
        if comparison.per_patient
        else count(number, "case")
    )
    owners = (
        "The cases of one patient were averaged first."
        if comparison.per_patient
        else "Cases count as independent: where several are of one patient, intervals and p are "
        "too small (--data)."
    )
    conventions = describe_conventions(
        "nan" if any(has_nan(comparison, name) for name in comparison.names) else "diagonal"
    )
    columns, rows = tests_rows(comparison)
    parts = [
        "# Comparison\n",
        f"{which} that all systems have. Best in bold, second best underlined.\n",
        markdown_table(
            [escape_markdown(column) for column in header(comparison)],
            [[escape_markdown(row[0]), *row[1:]] for row in body(comparison, markdown_mark)],
        ),
        *[f"![{figure}]({figure})\n" for figure in figures],
        f"## {escape_markdown(comparison.reference)} against the others\n",
        markdown_table(columns, [[escape_markdown(cell) for cell in row] for row in rows]),
        "Wilcoxon signed-rank tests, paired and two-sided; cases without a difference are left "
        "out. "
        "\\* p < 0.05, \\*\\* p < 0.01, \\*\\*\\* p < 0.001, \\*\\*\\*\\* p < 0.0001, as in the "
        "paper; "
        "p (Holm) is corrected for the number of other systems. "
        f"Intervals are {LEVEL:.0%} percentile bootstrap over cases ({RESAMPLES} resamples). "
        "The effect is the rank-biserial correlation: 1 if every case is higher, -1 if every "
        "case "
        "is "
        "lower. "
        f"{owners} Nothing here tells how a result varies from training to training.\n",
        f"## Ranking by mean {NAMES[first]}\n",
        markdown_table(
            ["place", "model", TITLES[first]],
            [
                [str(place), escape_markdown(name), f"{mean:.2f}"]
                for place, name, mean in rank(comparison)
            ],
        ),
        "Systems share a place unless one is significantly better than the other (all pairs, "
        "Holm-corrected).\n",
        conventions.replace("the diagonal of the image", "a penalty") + "\n",
        "## What the numbers leave out\n",
        *[f"- {escape_markdown(line)}\n" for line in notes(comparison)],
        "## What differs between the runs\n",
        *difference_parts(comparison),
    ]
    return "\n".join(parts)


def difference_parts(comparison: Comparison) -> list[str]:
    """Tables of what is not the same in all runs, beside the systems and of the systems, and what
    is unknown."""
    beside = [difference for difference in comparison.differences if not difference.is_the_system]
    systems = [difference for difference in comparison.differences if difference.is_the_system]
    parts = []
    if beside:
        parts += ["Beside the systems:\n", difference_table(comparison.names, beside)]
    if systems:
        parts += ["The systems:\n", difference_table(comparison.names, systems)]
    if not parts and len(comparison.unknown) < len(comparison.names):
        parts.append("Nothing that they wrote down.\n")
    return parts + [f"- {escape_markdown(line)}\n" for line in comparison.unknown]


def difference_table(names: Sequence[str], differences: Sequence[RunDifference]) -> str:
    rows = []
    for difference in differences:
        values = [escape_markdown(show(difference.values[name])) for name in names]
        rows.append([escape_markdown(difference.what), *values])
    return markdown_table(["setting", *map(escape_markdown, names)], rows)


def difference_lines(comparison: Comparison) -> list[str]:
    """The same as lines of text."""
    lines = []
    for difference in comparison.differences:
        values = ", ".join(f"{name} = {show(value)}" for name, value in difference.values.items())
        lines.append(f"{difference.what}: {values}")
    if not lines and len(comparison.unknown) < len(comparison.names):
        lines.append("nothing that they wrote down")
    return [*lines, *comparison.unknown]


def tests_rows(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    rows = []
    for test in comparison.tests:
        d = test.difference
        difference = f"{d.mean:+.2f} [{d.low:+.2f}, {d.high:+.2f}]"
        p = [f"{x:.2g} {stars(x)}".strip() for x in (d.p, test.corrected)]
        rows.append(
            [TITLES[test.metric], test.region, test.other, difference, *p, f"{d.effect:+.2f}"]
        )
    return ["metric", "region", "against", "difference", "p", "p (Holm)", "effect"], rows


def notes(comparison: Comparison) -> list[str]:
    lines = []
    for name, number in comparison.undefined.items():
        if number:
            how = "is left out" if has_nan(comparison, name) else "counts with the penalty"
            lines.append(f"{name}: HD95 is undefined in {number} (one mask empty) and {how}")
    for metric in comparison.metrics:
        for region in comparison.regions:
            number = int(comparison.defined(metric, region).sum())
            if number < len(comparison.cases):
                lines.append(
                    f"{TITLES[metric]} {region}: means are over the {number} where every system "
                    "has it"
                )
    for name, cases in comparison.left_out.items():
        if cases:
            what = ", ".join(cases)
            lines.append(
                f"{name}: left out, because not every system has all regions and metrics of it: "
                f"{what}"
            )
    return lines or [
        "no score: all systems have the same cases, regions and metrics, and every HD95 is defined"
    ]


def has_nan(comparison: Comparison, name: str) -> bool:
    return "hd95_mm" in comparison.metrics and any(
        bool(np.isnan(comparison.values["hd95_mm", region, name]).any())
        for region in comparison.regions
    )
