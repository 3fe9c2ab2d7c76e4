"""`factorizer data`: check a data set, plan a preset, divide cases, make synthetic scans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from factorizer.bars import ConsoleProgress
from factorizer.commands import options
from factorizer.commands.console import (
    add_cells,
    print_json,
    print_line,
    print_problem,
    print_table,
    say_written,
)
from factorizer.commands.program import exit_for
from factorizer.terminal import say
from factorizer.words import count, printable

if TYPE_CHECKING:
    from factorizer.data.cases import Problem
    from factorizer.data.check import Report
    from factorizer.data.plan import Plan

app = typer.Typer(
    no_args_is_help=True,
    help="Check a data set, plan a preset, divide cases into folds, or write synthetic scans.",
)


@app.command()
def check(
    data: options.DataArgument,
    preset: options.CheckedPreset = None,
    mask_suffix: options.MaskSuffix = None,
    figure: options.Figure = None,
    json: options.Json = False,
) -> None:
    """Read every image and label. Print what was found and what is wrong."""
    from factorizer.reports.data_check import check_data

    checked = check_data(
        data, preset=preset, mask_suffix=mask_suffix, figure=figure, progress=ConsoleProgress()
    )
    if json:
        print_json(checked.report.as_dict())
    else:
        print_report(checked.report)
    for file in checked.files:
        say_written(file)
    exit_for(checked.report.problems)


@app.command("plan")
def make_plan(
    data: options.DataArgument,
    output: options.OutputFile,
    budget: options.Budget = None,
    device: options.BudgetDevice = None,
    mask_suffix: options.MaskSuffix = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Write a preset for a data set: spacing, patch size, network, intensities and regions."""
    from factorizer.training.planning import plan_data

    planned = plan_data(
        data,
        out=output,
        budget=budget,
        device=device,
        mask_suffix=mask_suffix,
        overwrite=overwrite,
        progress=ConsoleProgress(),
    )
    print_problems_by_severity(planned.report.problems)
    print_plan(planned.plan, output)
    if budget is None:
        say_how_long(planned.plan.preset.training.max_steps)
    else:
        say(f"Train with: factorizer train --preset {output} --data {data}")


@app.command()
def folds(
    data: options.DataArgument,
    output: options.OutputFile,
    num_folds: options.NumFolds = 5,
    seed: options.Seed = 0,
    stratify: options.Stratify = False,
    split: options.Split = None,
    mask_suffix: options.MaskSuffix = None,
) -> None:
    """Divide the cases into folds for cross-validation. A patient's cases are in the same fold."""
    from factorizer.data.deal import make_folds

    dealt = make_folds(
        data,
        out=output,
        num_folds=num_folds,
        seed=seed,
        stratify=stratify,
        split=split,
        mask_suffix=mask_suffix,
        progress=ConsoleProgress(),
    )
    print_problems_by_severity(dealt.problems)
    for fold, names in dealt.folds.items():
        print_line(f"fold {fold}: {count(len(names), 'case')}")
    exit_for(dealt.problems)


@app.command()
def synth(
    kind: options.Kind,
    output: options.NewFolder,
    cases: options.CaseCount = 10,
    size: options.Size = 64,
    seed: options.Seed = 0,
) -> None:
    """Write synthetic scans in the layout of a real data set. They show no patient."""
    from factorizer.data.synthetic import make_synthetic

    make_synthetic(kind, output, cases=cases, size=size, seed=seed, progress=ConsoleProgress())
    print_line(f"{escape(str(output))}: {count(cases, 'synthetic case')} of {kind}")


def print_plan(plan: Plan, output: Path) -> None:
    """Print where the preset is, its size, and the reasons for it."""
    size = " x ".join(map(str, plan.preset.data.patch_size))
    widths = ", ".join(map(str, plan.preset.model.widths))
    print_line(f"{escape(str(output))}: patches of {size}, widths {widths}")
    for reason in plan.reasons:
        print_line(f"  {escape(printable(reason))}")


def say_how_long(steps: int) -> None:
    """Say how long a training without a budget is, and how to get a shorter one."""
    say(
        f"The length of the training is the paper's, {steps:,} steps: it takes days on a CPU. Add "
        "--budget 2h to plan a training for this machine and that time."
    )


def print_report(report: Report) -> None:
    from rich.table import Table

    table = Table(show_header=False)
    for title, text in report.lines().items():
        add_cells(table, (title, text))
    print_table(table)
    print_problems_by_severity(report.problems)


def print_problems_by_severity(problems: Sequence[Problem]) -> None:
    """One line for each: first the errors, then the warnings."""
    for problem in sorted(problems, key=lambda problem: problem.is_warning):
        print_problem(problem)
