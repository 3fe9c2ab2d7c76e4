"""`factorizer data`: check a data set, plan a preset for it, make a synthetic one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from factorizer.commands.bars import ConsoleProgress
from factorizer.commands.console import (
    Json,
    add_cells,
    print_json,
    print_line,
    print_problem,
    print_table,
    progress_bar,
    refuse_existing,
    say,
    say_written,
)
from factorizer.commands.program import exit_for
from factorizer.errors import FactorizerError
from factorizer.words import count, printable

if TYPE_CHECKING:
    from factorizer.config import Preset
    from factorizer.data.cases import Cohort
    from factorizer.data.check import Report
    from factorizer.data.plan import Plan

app = typer.Typer(
    no_args_is_help=True, help="Check a data set, plan a preset for it, or make a synthetic one."
)

Folder = Annotated[
    Path,
    typer.Argument(
        help="The folder of the data set, as downloaded, or a CSV or JSON list of cases."
    ),
]
MaskSuffix = Annotated[
    str | None, typer.Option(help="How masks of 2D images are named, such as _1stHO.")
]


@app.command()
def check(
    folder: Folder,
    preset: Annotated[
        str | None, typer.Option(help="Check against a preset's channels and labels.")
    ] = None,
    mask_suffix: MaskSuffix = None,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw some cases with their labels.")
    ] = None,
    json: Json = False,
) -> None:
    """Read every image and label, print what there is and what is wrong; exit code 1 if there are
    errors."""
    if figure and figure.suffix != ".png":
        raise FactorizerError(f"--figure got {figure}; its name must end in .png")
    if figure:
        refuse_existing(figure)
    cohort, report = examine(folder, preset, mask_suffix)
    if json:
        print_json(report.as_dict())
    else:
        print_report(report)
    if figure and report.cases:
        draw(cohort, report, figure)
    exit_for(report.problems)


@app.command("plan")
def make_plan(
    folder: Folder,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The preset to write.")
    ],
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Plan a training that takes so long on this machine: 90m, 2h, 1.5h.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="Where it will train, for --budget: auto, cpu, cuda or mps; auto unless given."
        ),
    ] = None,
    mask_suffix: MaskSuffix = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that is there.")
    ] = False,
) -> None:
    """Write a preset for a data set from what its cases are like: spacing, patch, window,
    regions."""
    from factorizer.files import write_atomically
    from factorizer.preset_files import to_yaml
    from factorizer.training.budget import parse_budget

    if output.suffix not in (".yaml", ".yml"):
        raise FactorizerError(f"-o got {output}; a preset's name ends in .yaml")
    if output.exists() and not overwrite:
        raise FactorizerError(f"{output} is there already; give another name, or --overwrite")
    if device is not None and budget is None:
        raise FactorizerError(f"--device {device} is for --budget; give that too, or leave it out")
    seconds = None if budget is None else parse_budget(budget)
    from factorizer.data.plan import plan_preset

    cohort, report = examine(folder, None, mask_suffix)
    print_all_problems(report)
    plan = plan_preset(cohort, report, mask_suffix=mask_suffix)
    if seconds is not None:
        plan = fit_budget(plan, cohort, report, seconds, device or "auto")
    write_atomically(output, to_yaml(plan.preset))
    print_plan(plan, output)
    if budget is None:
        say(
            f"Training is not planned: {plan.preset.training.max_steps:,} steps as in the paper, "
            "which takes days on a CPU. Add --budget 2h to plan a training for this machine and "
            "that time."
        )
    else:
        say(f"Train with: factorizer train --preset {output} --data {folder}")


def fit_budget(plan: Plan, cohort: Cohort, report: Report, seconds: float, device: str) -> Plan:
    """Measure this machine, with a bar that says what is being measured, or lines where there is no
    terminal."""
    from factorizer.training.trial import plan_with_budget

    return plan_with_budget(
        plan, cohort, report, budget=seconds, device=device, progress=ConsoleProgress()
    )


def print_plan(plan: Plan, output: Path) -> None:
    """What was written, and why it is as it is."""
    size = " x ".join(map(str, plan.preset.data.patch_size))
    widths = ", ".join(map(str, plan.preset.model.widths))
    print_line(f"{escape(str(output))}: patches of {size}, widths {widths}")
    for reason in plan.reasons:
        print_line(f"  {escape(printable(reason))}")


@app.command()
def folds(
    folder: Folder,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The folds.json to write.")
    ],
    number: Annotated[int, typer.Option("--folds", min=2, max=10_000, help="How many.")] = 5,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same folds.")
    ] = 0,
    stratify: Annotated[
        bool, typer.Option("--stratify", help="Alike in lesion volume; reads all labels.")
    ] = False,
    split: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Take a split: CSV with case, fold, or nnU-Net's."),
    ] = None,
    mask_suffix: MaskSuffix = None,
) -> None:
    """Deal the cases into folds for cross-validation; a patient is never in two."""
    from factorizer.data.folds import draw_folds, read_folds, write_folds
    from factorizer.data.layouts import read_cohort

    if output.suffix != ".json":
        raise FactorizerError(f"-o got {output}; the name of folds ends in .json")
    refuse_existing(output)
    if split and stratify:
        raise FactorizerError("--stratify is for folds that are drawn; leave it out with --split")
    cohort = read_cohort(folder, mask_suffix=mask_suffix)
    origin = f"split {split.name}" if split else f"seed {seed}{', stratified by volume' * stratify}"
    if split:
        dealt = read_folds(split, cohort.labelled)
    else:
        volumes = None
        if stratify:
            _, report = examine(folder, None, mask_suffix)
            print_all_problems(report)
            volumes = {case.name: 0.0 for case in cohort.cases} | {
                case.name: case.ml for case in report.cases
            }
        dealt = draw_folds(cohort.labelled, num_folds=number, seed=seed, volumes=volumes)
    write_folds(output, dealt, origin=origin)
    for fold, names in dealt.items():
        print_line(f"fold {fold}: {count(len(names), 'case')}")


@app.command()
def synth(
    kind: Annotated[str, typer.Argument(help="brats, isles22 or hippocampus.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="A new or empty folder.")
    ],
    cases: Annotated[int, typer.Option(min=1, max=100_000, help="How many.")] = 10,
    size: Annotated[int, typer.Option(min=1, max=512, help="Voxels along the longest axis.")] = 64,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same cases.")
    ] = 0,
) -> None:
    """Write synthetic scans in the layout of a real data set: procedural anatomy, no patient,
    public domain."""
    with progress_bar() as progress:
        from factorizer.data.synthetic import write_synthetic

        task = progress.add_task("drawing scans", total=cases)
        first = 1000 * seed + 1  # cases of another seed have other names
        write_synthetic(
            kind,
            output,
            cases=cases,
            size=size,
            seed=seed,
            first=first,
            advance=lambda: progress.advance(task),
        )
    print_line(f"{escape(str(output))}: {count(cases, 'synthetic case')} of {kind}")


def examine(folder: Path, preset: str | None, mask_suffix: str | None) -> tuple[Cohort, Report]:
    """List and read a data set, with a progress bar."""
    with progress_bar() as progress:
        from factorizer.data.check import check_cohort
        from factorizer.data.label_values import name_labels
        from factorizer.data.layouts import read_cohort
        from factorizer.preset_files import load_preset

        settings: Preset | None = load_preset(preset) if preset else None
        cohort = read_cohort(
            folder, mask_suffix=mask_suffix or (settings.data.mask_suffix if settings else None)
        )
        cohort = name_labels(cohort, settings.data.labels if settings else None)
        task = progress.add_task("reading cases", total=len(cohort.cases))
        report = check_cohort(
            cohort,
            channels=settings.data.channels if settings else None,
            targets=settings.data.targets if settings else None,
            advance=lambda: progress.advance(task),
        )
        return cohort, report


def draw(cohort: Cohort, report: Report, figure: Path) -> None:
    from factorizer.figures.contact_sheet import draw_contact_sheet
    from factorizer.files import write_atomically

    names = [case.name for case in report.cases]
    write_atomically(figure, draw_contact_sheet(cohort, names[:6], report.channels))
    say_written(figure)


def print_report(report: Report) -> None:
    from rich.table import Table

    table = Table(show_header=False)
    for title, text in report.lines().items():
        add_cells(table, (title, text))
    print_table(table)
    print_all_problems(report)


def print_all_problems(report: Report) -> None:
    """Each on a line; the errors first, which must be fixed."""
    for problem in [*report.errors, *report.warnings]:
        print_problem(problem)
