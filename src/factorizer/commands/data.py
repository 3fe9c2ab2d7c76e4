"""`factorizer data`: check a data set, plan a preset for it, deal folds, make a synthetic one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from factorizer.commands import options
from factorizer.commands.bars import ConsoleProgress
from factorizer.commands.console import (
    add_cells,
    print_json,
    print_line,
    print_problem,
    print_table,
    say,
    say_written,
)
from factorizer.commands.program import exit_for
from factorizer.errors import FactorizerError
from factorizer.files import refuse_existing
from factorizer.words import count, printable

if TYPE_CHECKING:
    from factorizer.data.cases import Cohort, Problem
    from factorizer.data.check import Report
    from factorizer.data.plan import Plan, PlannedData

app = typer.Typer(
    no_args_is_help=True, help="Check a data set, plan a preset for it, or make a synthetic one."
)

MOST_DRAWN = 6  # cases in a figure


@app.command()
def check(
    data: options.DataArgument,
    preset: options.CheckedPreset = None,
    mask_suffix: options.MaskSuffix = None,
    figure: options.Figure = None,
    json: options.Json = False,
) -> None:
    """Read every image and label. Print what was found and what is wrong."""
    from factorizer.data.check import check_data
    from factorizer.preset_files import load_preset

    if figure is not None:
        check_name(figure, "--figure", ".png")
        refuse_existing(figure)
    wanted = load_preset(preset) if preset else None
    checked = check_data(data, preset=wanted, mask_suffix=mask_suffix, progress=ConsoleProgress())
    if json:
        print_json(checked.report.as_dict())
    else:
        print_report(checked.report)
    if figure is not None and checked.report.cases:
        draw_cases(checked.cohort, checked.report, figure)
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
    from factorizer.data.plan import plan_data
    from factorizer.training.budget import parse_budget

    check_name(output, "-o", ".yaml", ".yml")
    if output.exists() and not overwrite:
        raise FactorizerError(f"{output} already exists; give another name, or --overwrite")
    if device is not None and budget is None:
        raise FactorizerError(f"--device {device} is for --budget; give that too, or leave it out")
    seconds = None if budget is None else parse_budget(budget)
    planned = plan_data(data, mask_suffix=mask_suffix, progress=ConsoleProgress())
    print_problems_by_severity(planned.report.problems)
    plan = planned.plan
    if seconds is not None:
        plan = fit_budget(planned, seconds, device or "auto")
    write_plan(plan, output)
    if seconds is None:
        say(
            f"The length of the training is the paper's, {plan.preset.training.max_steps:,} steps: "
            "it takes days on a CPU. Add --budget 2h to plan a training for this machine and that "
            "time."
        )
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
    """Deal the cases into folds for cross-validation. All cases of a patient are in one fold."""
    from factorizer.data.deal import make_folds

    check_name(output, "-o", ".json")
    refuse_existing(output)
    dealt = make_folds(
        data,
        num_folds=num_folds,
        seed=seed,
        stratify=stratify,
        split=split,
        mask_suffix=mask_suffix,
        progress=ConsoleProgress(),
    )
    print_problems_by_severity(dealt.problems)
    dealt.save(output)
    for fold, names in dealt.folds.items():
        print_line(f"fold {fold}: {count(len(names), 'case')}")
    exit_for(dealt.problems)


@app.command()
def synth(
    kind: options.Kind,
    output: options.OutputFolder,
    cases: options.CaseCount = 10,
    size: options.Size = 64,
    seed: options.Seed = 0,
) -> None:
    """Write synthetic scans in the layout of a real data set. They show no patient."""
    from factorizer.data.synthetic import make_synthetic

    make_synthetic(kind, output, cases=cases, size=size, seed=seed, progress=ConsoleProgress())
    print_line(f"{escape(str(output))}: {count(cases, 'synthetic case')} of {kind}")


def check_name(file: Path, option: str, *endings: str) -> None:
    """Refuse a file whose name does not end as its content needs."""
    if file.suffix not in endings:
        raise FactorizerError(f"{option} got {file}; its name must end in {endings[0]}")


def fit_budget(planned: PlannedData, seconds: float, device: str) -> Plan:
    from factorizer.training.trial import plan_with_budget

    return plan_with_budget(
        planned.plan,
        planned.cohort,
        planned.report,
        budget=seconds,
        device=device,
        progress=ConsoleProgress(),
    )


def write_plan(plan: Plan, output: Path) -> None:
    """Write the preset. Print its size and the reasons for it."""
    from factorizer.files import write_atomically
    from factorizer.preset_files import to_yaml

    write_atomically(output, to_yaml(plan.preset))
    size = " x ".join(map(str, plan.preset.data.patch_size))
    widths = ", ".join(map(str, plan.preset.model.widths))
    print_line(f"{escape(str(output))}: patches of {size}, widths {widths}")
    for reason in plan.reasons:
        print_line(f"  {escape(printable(reason))}")


def draw_cases(cohort: Cohort, report: Report, figure: Path) -> None:
    """Draw the first cases with their labels."""
    from factorizer.figures.contact_sheet import draw_contact_sheet
    from factorizer.files import write_atomically

    names = [case.name for case in report.cases[:MOST_DRAWN]]
    write_atomically(figure, draw_contact_sheet(cohort, names, report.channels))
    say_written(figure)


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
