"""`factorizer compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from factorizer.bars import ConsoleProgress
from factorizer.commands import options
from factorizer.commands.console import (
    add_cells,
    make_table,
    print_json,
    print_table,
    print_text,
    say_written,
)
from factorizer.terminal import plain, say

if TYPE_CHECKING:
    from factorizer.evaluation.compare import Comparison

MARKS = ("*", "_", "")  # before the best, the second best, and other numbers
STYLES = {"*": "bold", "_": "underline"}


def compare(
    sources: options.Sources,
    output: options.NewFolder,
    reference: options.ReferenceSystem = None,
    data: options.PatientData = None,
    json: options.Json = False,
) -> None:
    """Compare systems on the cases that all of them have.

    The output folder gets the paper's table, tests, intervals, box plots and a ranking.
    """
    from factorizer.studies.comparing import compare

    comparison = compare(
        sources, out=output, reference=reference, data=data, progress=ConsoleProgress()
    )
    for file in comparison.files:
        say_written(file)
    if json:
        print_json(as_json(comparison))
    else:
        print_comparison(comparison)


def as_json(comparison: Comparison) -> object:
    from dataclasses import asdict

    from factorizer.evaluation.compare import rank

    ranking = []
    for place, name, mean in rank(comparison):
        ranking.append({"place": place, "name": name, "mean": mean})
    differences = []
    for difference in comparison.differences:
        differences.append({"what": difference.what, "values": dict(difference.values)})
    return {
        "reference": comparison.reference,
        "patients" if comparison.per_patient else "cases": list(comparison.cases),
        "means": nested_means(comparison),
        "tests": [asdict(test) for test in comparison.tests],
        "ranking": ranking,
        "hd95_undefined": dict(comparison.undefined),
        "left_out": {name: list(left_out) for name, left_out in comparison.left_out.items()},
        "differences": differences,
        "unknown": comparison.unknown,
    }


def nested_means(comparison: Comparison) -> dict[str, dict[str, dict[str, float]]]:
    """Means by metric, region and system."""
    means: dict[str, dict[str, dict[str, float]]] = {}
    for metric in comparison.metrics:
        means[metric] = {}
        for region in comparison.regions:
            values = {name: comparison.mean(metric, region, name) for name in comparison.names}
            means[metric][region] = values
    return means


def print_comparison(comparison: Comparison) -> None:
    """The table, the tests and the ranking; on standard error what the numbers do not say."""
    from factorizer.evaluation.compare import NAMES, rank
    from factorizer.reports.notes import difference_lines, notes
    from factorizer.reports.tables import body, header, tests_rows

    table = make_table(header(comparison))
    for row in body(comparison, mark):
        add_cells(table, [row[0], *map(styled, row[1:])])
    print_table(table)
    columns, rows = tests_rows(comparison)
    title = f"{comparison.reference} against the others: paired two-sided Wilcoxon"
    tests = make_table(columns, title=title)
    for row in rows:
        add_cells(tests, row)
    print_table(tests)
    places = ", ".join(f"{place}. {name}" for place, name, _ in rank(comparison))
    metric = NAMES[comparison.metrics[0]]
    print_text(f"ranking by mean {metric}, places shared unless significantly different: {places}")
    say("What the numbers leave out:")
    for line in notes(comparison):
        say(f"- {line}")
    say("What differs between the runs:")
    for line in difference_lines(comparison):
        say(f"- {line}")


def mark(cell: str, place: int) -> str:
    return f"{MARKS[place]}{cell}"


def styled(cell: str) -> Text:
    """A marked cell: the best in bold, the second best underlined."""
    style = STYLES.get(cell[:1], "")
    return plain(cell[1:] if style else cell, style)
