"""`factorizer explain`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from factorizer.commands.console import (
    Json,
    add_cells,
    make_table,
    print_json,
    print_problem,
    print_problems,
    print_table,
    say,
    say_written,
    track,
)
from factorizer.commands.program import exit_for
from factorizer.errors import FactorizerError

if TYPE_CHECKING:
    from factorizer.config import Data
    from factorizer.data.cases import Case
    from factorizer.inference.predictor import Predictor
    from factorizer.inspection.alignment import Agreement


def explain(
    runs: Annotated[
        list[str],
        typer.Option(
            "--run",
            "--model",
            metavar="RUN[/foldK]",
            help="A run that `factorizer train` wrote, or zoo:NAME; several, also as NAME=RUN, "
            "stand side by side.",
        ),
    ],
    inputs: Annotated[
        list[Path],
        typer.Option("-i", "--input", help="A case or several, as `predict` takes them."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="A new or empty folder.")],
    reference: Annotated[
        Path | None,
        typer.Option(
            "-r", "--reference", help="A data set or a folder of labels; the input's unless given."
        ),
    ] = None,
    layer: Annotated[
        str,
        typer.Option(
            "--layer", help="first, last, both, all, or numbers along the data path such as 1,5."
        ),
    ] = "both",
    volumes: Annotated[
        bool, typer.Option(help="Write the pictures as NIfTI files (.npz in 2D).")
    ] = True,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")] = "auto",
    json: Json = False,
) -> None:
    """Show what layers see: the components of their factorizations (of a U-Net its channels) as
    volumes and a figure, and, where there is a reference, how well each would segment each
    region."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise FactorizerError(f"{output} is not an empty folder; give another")
    from dataclasses import asdict

    from factorizer.data.inputs import read_inputs
    from factorizer.inspection.alignment import summarize
    from factorizer.inspection.components import choose_layers, layers_of
    from factorizer.studies.explaining import Explainer

    models = load_models(runs, device)
    data = next(iter(models.values())).preset.data
    for name, model in models.items():
        choose_layers(
            layers_of(model.networks[0]), layer
        )  # wrong ones are refused before anything is computed
        if model.preset.data != data:
            raise FactorizerError(
                f"{name} was trained with other data settings; compare runs on the same data"
            )
    cases, problems = read_inputs(inputs, data.channels, mask_suffix=data.mask_suffix)
    print_problems(problems)
    references, values = find_references(reference, inputs, cases, data)
    explainer = Explainer(
        models, layer, output, references=references, label_values=values, write_volumes=volumes
    )
    for case in track(cases, "explaining"):
        for problem in explainer.explain(case):
            print_problem(problem)
            problems.append(problem)
    if list(output.glob("*.png")):
        say_written(output / "*.png")
    for file in explainer.write_tables():
        say_written(file)
    tables = {name: summarize(rows) for name, rows in explainer.rows.items() if rows}
    if json:
        print_json({name: [asdict(row) for row in table] for name, table in tables.items()})
    else:
        for name, table in tables.items():
            print_best(name, table)
        if not tables:
            say("no case has a reference: how well components agree with regions is not measured")
    exit_for(problems)


def load_models(runs: list[str], device: str) -> dict[str, Predictor]:
    """Each run, named by the system that it trained unless given as NAME=RUN."""
    from factorizer.inference.load import load

    models: dict[str, Predictor] = {}
    for text in runs:
        name, sign, path = text.partition("=")
        named = bool(sign) and not Path(text).exists()
        model = load(path if named else text, device=device)
        name = name if named else model.preset.model.name
        if name in models:
            raise FactorizerError(f"two runs are named {name}; name each differently, as NAME=RUN")
        models[name] = model
    return models


def find_references(
    given: Path | None, inputs: list[Path], cases: Sequence[Case], data: Data
) -> tuple[dict[str, Case], Mapping[int, int]]:
    """The labels given, or those of the data set that the input is or lies in; none where it is no
    data set's."""
    from factorizer.data.cases import DataError
    from factorizer.data.layouts import read_cohort
    from factorizer.evaluation.evaluate import list_references

    if given is not None:
        references = list_references(given, data)
        known = references.cases
        found = match_files(cases, known) | {
            c.name: known[c.name] for c in cases if c.name in known
        }
        if cases and not found:
            names = ", ".join(sorted(known)[:3])
            raise FactorizerError(
                f"no case ({cases[0].name}, ...) has a label in {given} ({names}, ...); name them "
                "alike"
            )
        return found, references.values
    first = inputs[0].absolute()
    for place in (
        first,
        *first.parents[:5],
    ):  # a data set, a case of it, a file in imagesTr or deep in BIDS
        try:
            read_cohort(
                place, mask_suffix=data.mask_suffix
            )  # else images would be taken for their own labels
            references = list_references(place, data)
        except DataError:
            continue
        if found := match_files(cases, references.cases):
            return found, references.values
    return {}, {}


def match_files(cases: Sequence[Case], references: Mapping[str, Case]) -> dict[str, Case]:
    """The reference of each case that shares an image with it, however they are named."""
    owners = {
        source.file.resolve(): r for r in references.values() for source in r.channels.values()
    }
    files = {
        case.name: [source.file.resolve() for source in case.channels.values()] for case in cases
    }
    return {name: owners[file] for name, own in files.items() for file in own if file in owners}


def print_best(name: str, table: list[Agreement]) -> None:
    from factorizer.inspection.alignment import best_per_region

    columns = ("layer", "region", "best picture", "Dice [95 %]", "chance", "AUC [95 %]", "cases")
    shown = make_table(columns, title=name)
    for row in best_per_region(table):
        cells: list[Any] = [
            row.layer,
            row.region,
            row.picture,
            with_interval(row.dice, row.dice_low, row.dice_high),
        ]
        cells += [f"{row.chance:.3f}", with_interval(row.auc, row.auc_low, row.auc_high), row.cases]
        add_cells(shown, cells)
    print_table(shown)


def with_interval(mean: float, low: float, high: float) -> str:
    """One case has no interval."""
    return f"{mean:.3f}" if isnan(low) else f"{mean:.3f} [{low:.3f}, {high:.3f}]"
