"""Notes to a comparison: what the numbers leave out, and what differs between the runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from factorizer.evaluation.compare import TITLES, Comparison
from factorizer.evaluation.differences import RunDifference, show
from factorizer.figures.escapes import escape_markdown
from factorizer.reports.tables import markdown_table

NOTHING_LEFT_OUT = (
    "no score: all systems have the same cases, regions and metrics, and every HD95 is defined"
)


def notes(comparison: Comparison) -> list[str]:
    """Lines about scores that are undefined or left out."""
    lines = [
        *undefined_lines(comparison),
        *fewer_cases_lines(comparison),
        *left_out_lines(comparison),
    ]
    return lines or [NOTHING_LEFT_OUT]


def undefined_lines(comparison: Comparison) -> list[str]:
    """How often HD95 of each system is undefined."""
    lines = []
    for name, number in comparison.undefined.items():
        if number:
            how = "is left out" if has_nan(comparison, name) else "counts with the penalty"
            lines.append(f"{name}: HD95 is undefined in {number} (one mask empty) and {how}")
    return lines


def fewer_cases_lines(comparison: Comparison) -> list[str]:
    """Which means are not over all cases."""
    lines = []
    for metric, region in product(comparison.metrics, comparison.regions):
        number = int(comparison.defined(metric, region).sum())
        if number < len(comparison.cases):
            column = f"{TITLES[metric]} {region}"
            lines.append(f"{column}: means are over the {number} where every system has it")
    return lines


def left_out_lines(comparison: Comparison) -> list[str]:
    """Which cases, regions and metrics of each system are not compared."""
    lines = []
    for name, left_out in comparison.left_out.items():
        if left_out:
            lines.append(
                f"{name}: left out, because not every system has all its regions and metrics: "
                f"{', '.join(left_out)}"
            )
    return lines


def has_nan(comparison: Comparison, name: str) -> bool:
    """Whether an undefined HD95 of a system is nan and not a penalty."""
    if "hd95_mm" not in comparison.metrics:
        return False
    values = [comparison.values["hd95_mm", region, name] for region in comparison.regions]
    return bool(np.isnan(values).any())


def difference_lines(comparison: Comparison) -> list[str]:
    """What differs between the runs, and what they do not say, as lines of text."""
    lines = []
    for difference in comparison.differences:
        values = ", ".join(f"{name} = {show(value)}" for name, value in difference.values.items())
        lines.append(f"{difference.what}: {values}")
    if not lines and says_something(comparison):
        lines.append("nothing that the runs recorded")
    return [*lines, *comparison.unknown]


def difference_parts(comparison: Comparison) -> list[str]:
    """The same as Markdown: a table of the training, a table of the systems, and a list."""
    training = [item for item in comparison.differences if not item.is_the_system]
    systems = [item for item in comparison.differences if item.is_the_system]
    parts = []
    if training:
        parts += ["Apart from the systems:\n", difference_table(comparison.names, training)]
    if systems:
        parts += ["The systems:\n", difference_table(comparison.names, systems)]
    if not parts and says_something(comparison):
        parts.append("Nothing that the runs recorded.\n")
    unknown = [f"- {escape_markdown(line)}\n" for line in comparison.unknown]
    return [*parts, *unknown]


def says_something(comparison: Comparison) -> bool:
    """Whether at least one run wrote everything down."""
    return len(comparison.unknown) < len(comparison.names)


def difference_table(names: Sequence[str], differences: Sequence[RunDifference]) -> str:
    """A Markdown table with a row per difference and a column per system."""
    rows = []
    for difference in differences:
        values = [escape_markdown(show(difference.values[name])) for name in names]
        rows.append([escape_markdown(difference.what), *values])
    return markdown_table(["setting", *map(escape_markdown, names)], rows)
