"""`factorizer data`: check a data set, plan a preset for it, deal folds, make a synthetic one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    refuse_existing,
    say,
    say_written,
)
from factorizer.commands.program import exit_for
from factorizer.errors import FactorizerError
from factorizer.words import count, printable

if TYPE_CHECKING:
    from factorizer.config import Preset
    from factorizer.data.cases import Cohort, Problem
    from factorizer.data.check import Report
    from factorizer.data.folds import Folds
    from factorizer.data.plan import Plan
    from factorizer.progress import Progress

app = typer.Typer(
    no_args_is_help=True, help="Check a data set, plan a preset for it, or make a synthetic one."
)

MOST_SEED = 2**32 - 1
MOST_DRAWN = 6  # cases in a figure

CheckedPreset = Annotated[
    str | None,
    typer.Option("--preset", metavar="PRESET", help="Check against a preset's channels, labels."),
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="TIME",
        help="Plan a training that takes this long on this machine: 90m, 2h or 1.5h.",
    ),
]
BudgetDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="Where it will be trained, for --budget: auto, cpu, cuda or mps. [default: auto]",
        show_default=False,
    ),
]
FoldCount = Annotated[int, typer.Option("--folds", min=2, max=10_000, help="The number of folds.")]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=MOST_SEED, help="The same seed gives the same result.")
]
Stratify = Annotated[
    bool,
    typer.Option("--stratify", help="Make folds similar in lesion volume. Reads all labels."),
]
Kind = Annotated[str, typer.Argument(metavar="KIND", help="brats, isles22 or hippocampus.")]
CaseCount = Annotated[
    int, typer.Option("--cases", min=1, max=options.MOST_CASES, help="The number of cases.")
]
Size = Annotated[int, typer.Option("--size", min=1, max=512, help="Voxels along the longest axis.")]


@app.command()
def check(
    data: options.DataArgument,
    preset: CheckedPreset = None,
    mask_suffix: options.MaskSuffix = None,
    figure: options.Figure = None,
    json: options.Json = False,
) -> None:
    """Read every image and label. Print what was found and what is wrong. Errors end with 1."""
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
    budget: Budget = None,
    device: BudgetDevice = None,
    mask_suffix: options.MaskSuffix = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Write a preset for a data set: spacing, patch size, network, intensities and regions."""
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
    number: FoldCount = 5,
    seed: Seed = 0,
    stratify: Stratify = False,
    split: options.Split = None,
    mask_suffix: options.MaskSuffix = None,
) -> None:
    """Deal the cases into folds for cross-validation. All cases of a patient are in one fold."""
    check_name(output, "-o", ".json")
    refuse_existing(output)
    dealt = make_folds(
        data,
        num_folds=number,
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


@app.command()
def synth(
    kind: Kind,
    output: options.OutputFolder,
    cases: CaseCount = 10,
    size: Size = 64,
    seed: Seed = 0,
) -> None:
    """Write synthetic scans in the layout of a real data set. They show no patient."""
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


@dataclass(frozen=True)
class CheckedData:
    """A data set and the report on its cases."""

    cohort: Cohort
    report: Report


@dataclass(frozen=True)
class PlannedData:
    """A data set, the report on its cases, and the plan made from it."""

    cohort: Cohort
    report: Report
    plan: Plan


@dataclass(frozen=True)
class DealtFolds:
    """Folds of a data set, where they come from, and problems of cases that were read for them."""

    folds: Folds
    origin: str
    problems: Sequence[Problem] = ()

    def save(self, file: Path) -> None:
        from factorizer.data.folds import write_folds

        write_folds(file, self.folds, origin=self.origin)


def check_data(
    folder: Path, *, preset: Preset | None, mask_suffix: str | None, progress: Progress
) -> CheckedData:
    """Read every image and label of a data set."""
    from factorizer.data.check import check_cohort
    from factorizer.data.label_values import name_labels
    from factorizer.data.layouts import read_cohort

    data = preset.data if preset else None
    usual_suffix = data.mask_suffix if data else None
    cohort = read_cohort(folder, mask_suffix=mask_suffix or usual_suffix)
    cohort = name_labels(cohort, data.labels if data else None)
    with progress.task("reading cases", total=len(cohort.cases)) as task:
        report = check_cohort(
            cohort,
            channels=data.channels if data else None,
            targets=data.targets if data else None,
            advance=task.advance,
        )
    return CheckedData(cohort, report)


def plan_data(folder: Path, *, mask_suffix: str | None, progress: Progress) -> PlannedData:
    """Read a data set and choose a preset for it."""
    from factorizer.data.plan import plan_preset

    checked = check_data(folder, preset=None, mask_suffix=mask_suffix, progress=progress)
    if not checked.report.cases:
        print_problems_by_severity(checked.report.problems)
    plan = plan_preset(checked.cohort, checked.report, mask_suffix=mask_suffix)
    return PlannedData(checked.cohort, checked.report, plan)


def make_folds(
    folder: Path,
    *,
    num_folds: int,
    seed: int,
    stratify: bool,
    split: Path | None,
    mask_suffix: str | None,
    progress: Progress,
) -> DealtFolds:
    """Deal the labelled cases of a data set into folds."""
    from factorizer.data.folds import draw_folds, read_folds
    from factorizer.data.layouts import read_cohort

    if split is not None and stratify:
        raise FactorizerError("--stratify is for folds that are drawn; leave it out with --split")
    if stratify:
        checked = check_data(folder, preset=None, mask_suffix=mask_suffix, progress=progress)
        volumes = {case.name: 0.0 for case in checked.cohort.cases}
        volumes |= {case.name: case.ml for case in checked.report.cases}
        dealt = draw_folds(checked.cohort.labelled, num_folds=num_folds, seed=seed, volumes=volumes)
        return DealtFolds(dealt, f"seed {seed}, stratified by volume", checked.report.problems)
    cohort = read_cohort(folder, mask_suffix=mask_suffix)
    if split is not None:
        return DealtFolds(read_folds(split, cohort.labelled), f"split {split.name}")
    dealt = draw_folds(cohort.labelled, num_folds=num_folds, seed=seed)
    return DealtFolds(dealt, f"seed {seed}")


def make_synthetic(
    kind: str, folder: Path, *, cases: int, size: int, seed: int, progress: Progress
) -> None:
    """Write a synthetic data set in the layout of a real one."""
    from factorizer.data.synthetic import write_synthetic

    first = 1000 * seed + 1  # cases of another seed have other names
    with progress.task("drawing scans", total=cases) as task:
        write_synthetic(
            kind, folder, cases=cases, size=size, seed=seed, first=first, advance=task.advance
        )
