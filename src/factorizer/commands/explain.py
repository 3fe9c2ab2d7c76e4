"""`factorizer explain`."""

from __future__ import annotations

from dataclasses import astuple
from math import isnan
from typing import TYPE_CHECKING

from factorizer.bars import ConsoleProgress
from factorizer.commands import options
from factorizer.commands.console import (
    add_cells,
    make_table,
    print_json,
    print_problems,
    print_table,
)
from factorizer.commands.program import exit_for
from factorizer.terminal import say
from factorizer.words import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from factorizer.inspection.alignment import Agreement

COLUMNS = ("layer", "region", "best component", "Dice [95 %]", "chance", "AUC [95 %]", "cases")


def explain(
    models: options.Models,
    inputs: options.Inputs,
    output: options.NewFolder,
    references: options.OtherReferences = None,
    layer: options.Layers = "both",
    volumes: options.Volumes = True,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Show what layers see: the components of their factorizations.

    A figure is drawn for each case, with all models side by side. If references are known, tables
    say how well each component alone would segment each region. The components of a U-Net are its
    channels.
    """
    from factorizer.studies.explaining import explain

    result = explain(
        models,
        inputs,
        out=output,
        layers=layer,
        references=references,
        volumes=volumes,
        device=device,
        progress=ConsoleProgress(),
    )
    print_problems(result.problems)
    if result.files:
        say(f"written: {count(len(result.files), 'file')} in {output}")
    if json:
        print_json(as_json(result.tables))
    else:
        print_tables(result.tables)
    exit_for(result.problems)


def as_json(tables: Mapping[str, Sequence[Agreement]]) -> object:
    from factorizer.inspection.alignment import Agreement, columns_of

    columns = columns_of(Agreement)
    content: dict[str, list[object]] = {}
    for name, rows in tables.items():
        content[name] = [dict(zip(columns, astuple(row), strict=True)) for row in rows]
    return content


def print_tables(tables: Mapping[str, Sequence[Agreement]]) -> None:
    """The best component of each layer and region, with a table per model."""
    from factorizer.inspection.alignment import best_per_region

    if not tables:
        say("No case has a reference. The agreement of components with regions is not measured.")
    for name, rows in tables.items():
        table = make_table(COLUMNS, title=name)
        for row in best_per_region(rows):
            dice = with_interval(row.dice, row.dice_low, row.dice_high)
            auc = with_interval(row.auc, row.auc_low, row.auc_high)
            chance = f"{row.chance:.3f}"
            add_cells(table, [row.layer, row.region, row.component, dice, chance, auc, row.cases])
        print_table(table)


def with_interval(mean: float, low: float, high: float) -> str:
    """A mean with its interval, which a single case does not have."""
    return f"{mean:.3f}" if isnan(low) else f"{mean:.3f} [{low:.3f}, {high:.3f}]"
