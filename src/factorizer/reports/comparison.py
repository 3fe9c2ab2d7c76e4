"""Everything that is written about a comparison: tables, figures, and one Markdown page."""

from __future__ import annotations

from collections.abc import Sequence

from factorizer.evaluation.compare import NAMES, TITLES, Comparison, rank
from factorizer.evaluation.scores import describe_conventions
from factorizer.evaluation.statistics import LEVEL, RESAMPLES
from factorizer.figures.boxes import draw_boxes, draw_costs
from factorizer.figures.escapes import escape_markdown
from factorizer.reports.notes import difference_parts, has_nan, notes
from factorizer.reports.tables import (
    body,
    header,
    latex_table,
    markdown_mark,
    markdown_table,
    table_csv,
    tests_csv,
    tests_rows,
)
from factorizer.words import count

TESTS_NOTE = (
    "The tests are Wilcoxon signed-rank tests, paired and two-sided. "
    "Cases without a difference are left out. "
    "The marks are those of the paper: "
    "\\* p < 0.05, \\*\\* p < 0.01, \\*\\*\\* p < 0.001, \\*\\*\\*\\* p < 0.0001. "
    "p (Holm) is corrected for the number of other systems. "
    f"Intervals are {LEVEL:.0%} percentile bootstrap over cases ({RESAMPLES} resamples). "
    "The effect is the rank-biserial correlation: 1 if every case is higher, -1 if every case is "
    "lower."
)
ONE_TRAINING = "Nothing here tells how a result varies from training to training."
AVERAGED = "The cases of a patient were averaged first."
NOT_AVERAGED = (
    "Cases count as independent. If several are of one patient, intervals and p are too small; "
    "give the data set to average them."
)
RANKING_NOTE = (
    "Systems share a place unless one is significantly better than the other (all pairs, "
    "Holm-corrected).\n"
)


def comparison_files(comparison: Comparison) -> dict[str, str | bytes]:
    """The content of every file about a comparison, by the name of the file."""
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
    """A comparison on one Markdown page. `figures` are files beside it."""
    patients = AVERAGED if comparison.per_patient else NOT_AVERAGED
    parts = [
        "# Comparison\n",
        f"{describe_cases(comparison)} Best in bold, second best underlined.\n",
        main_table(comparison),
        *[f"![{figure}]({figure})\n" for figure in figures],
        f"## {escape_markdown(comparison.reference)} against the others\n",
        tests_table(comparison),
        f"{TESTS_NOTE} {patients} {ONE_TRAINING}\n",
        f"## Ranking by mean {NAMES[comparison.metrics[0]]}\n",
        ranking_table(comparison),
        RANKING_NOTE,
        describe_penalty(comparison),
        "## What the numbers leave out\n",
        *[f"- {escape_markdown(line)}\n" for line in notes(comparison)],
        "## What differs between the runs\n",
        *difference_parts(comparison),
    ]
    return "\n".join(parts)


def describe_cases(comparison: Comparison) -> str:
    number = len(comparison.cases)
    if comparison.per_patient:
        return f"{count(number, 'patient')} with cases that all systems have."
    return f"{count(number, 'case')} that all systems have."


def main_table(comparison: Comparison) -> str:
    """Means with the best and second best marked."""
    columns = [escape_markdown(column) for column in header(comparison)]
    rows = [[escape_markdown(row[0]), *row[1:]] for row in body(comparison, markdown_mark)]
    return markdown_table(columns, rows)


def tests_table(comparison: Comparison) -> str:
    columns, rows = tests_rows(comparison)
    return markdown_table(columns, [list(map(escape_markdown, row)) for row in rows])


def ranking_table(comparison: Comparison) -> str:
    rows = []
    for place, name, mean in rank(comparison):
        rows.append([str(place), escape_markdown(name), f"{mean:.2f}"])
    return markdown_table(["place", "model", TITLES[comparison.metrics[0]]], rows)


def describe_penalty(comparison: Comparison) -> str:
    """The conventions of the scores. The scores do not say how large a penalty is."""
    if any(has_nan(comparison, name) for name in comparison.names):
        return describe_conventions("nan") + "\n"
    return describe_conventions("diagonal").replace("the diagonal of the image", "a penalty") + "\n"
