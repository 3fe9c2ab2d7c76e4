"""`factorizer compare` and `factorizer figure`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from factorizer.commands.console import (
    Json,
    add_cells,
    make_table,
    plain,
    print_json,
    print_problems,
    print_table,
    print_text,
    refuse_existing,
    say,
    say_written,
    track,
)
from factorizer.errors import FactorizerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from factorizer.evaluation.compare import Comparison, Entry

MARKS = ("*", "_", "")  # before the best, the second best, and other numbers
STYLES = {"*": "bold", "_": "underline"}

figure_app = typer.Typer(no_args_is_help=True, help="Draw figures of predictions.")


@figure_app.callback()
def figure() -> None:
    """Draw figures of predictions."""


def compare(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN_OR_SCORES...", help="Runs or scores.csv files, also as NAME=PATH."
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A new or empty folder for tables and figures.")
    ],
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference", help="The system that is tested against the others; the first."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="The data set: cases of one patient are averaged before any test.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Compare systems on the cases they share: the paper's table, tests, intervals, box plots,
    ranking."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise FactorizerError(f"{output} is not an empty folder; give another")
    from factorizer.evaluation.compare import compare_entries, load_entry, read_entry
    from factorizer.files import write_atomically
    from factorizer.profiling.table import cost_of_run
    from factorizer.reports.tables import comparison_files

    found = [read_entry(source) for source in sources]
    entries = [
        load_entry(name, scores, cost_of_run(config) if config else None)
        for name, scores, config in track(found, "reading")
    ]
    config = next((config for _, _, config in found if config), None)
    patients = find_patients(data, config, entries) if data else None
    comparison = compare_entries(entries, reference=reference, patients=patients)
    for name, content in comparison_files(comparison).items():
        write_atomically(output / name, content)
        say_written(output / name)
    if json:
        print_json(as_json(comparison))
    else:
        print_comparison(comparison)


def find_patients(data: Path, config: Path | None, entries: Sequence[Entry]) -> dict[str, str]:
    """Whose each case is."""
    from factorizer.data.layouts import read_cohort
    from factorizer.preset_files import load_preset

    suffix = load_preset(config).data.mask_suffix if config else None
    patients = {case.name: case.owner for case in read_cohort(data, mask_suffix=suffix).cases}
    unknown = sorted({score.case for entry in entries for score in entry.scores} - patients.keys())
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise FactorizerError(
            f"{unknown[0]}{more} is not in {data}; give the data set that the scores are about"
        )
    return patients


def as_json(comparison: Comparison) -> object:
    from dataclasses import asdict

    from factorizer.evaluation.compare import rank

    return {
        "reference": comparison.reference,
        "patients" if comparison.per_patient else "cases": list(comparison.cases),
        "means": {
            metric: {
                region: {name: comparison.mean(metric, region, name) for name in comparison.names}
                for region in comparison.regions
            }
            for metric in comparison.metrics
        },
        "tests": [asdict(test) for test in comparison.tests],
        "ranking": [
            {"place": place, "name": name, "mean": mean} for place, name, mean in rank(comparison)
        ],
        "hd95_undefined": dict(comparison.undefined),
        "left_out": {name: list(cases) for name, cases in comparison.left_out.items()},
        "differences": [{"what": d.what, "values": dict(d.values)} for d in comparison.differences],
        "unknown": comparison.unknown,
    }


def print_comparison(comparison: Comparison) -> None:
    from factorizer.evaluation.compare import NAMES, rank
    from factorizer.reports.tables import body, difference_lines, header, notes, tests_rows

    table = make_table(header(comparison))
    for row in body(comparison, lambda cell, place: f"{MARKS[place]}{cell}"):
        add_cells(table, [row[0], *map(marked, row[1:])])
    print_table(table)
    columns, rows = tests_rows(comparison)
    tests = make_table(
        columns, title=f"{comparison.reference} against the others: paired two-sided Wilcoxon"
    )
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


def marked(cell: str) -> Text:
    """A cell in bold where it is the best, underlined where it is the second best."""
    style = STYLES.get(cell[:1], "")
    return plain(cell[1:] if style else cell, style)


@figure_app.command()
def qualitative(
    data: Annotated[
        Path,
        typer.Option(
            "--data", help="The data set in any layout, or images as `predict` takes them."
        ),
    ],
    preset: Annotated[
        str, typer.Option("--preset", help="A preset's name, a YAML file, or zoo:NAME.")
    ],
    predictions: Annotated[
        list[str],
        typer.Option(
            "-p", "--predictions", metavar="[NAME=]FOLDER", help="Label maps of a system; repeat."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="A new .png file.")],
    references: Annotated[
        Path | None,
        typer.Option(
            "-r",
            "--references",
            help="A folder of label files, or a data set; the labels of --data unless given.",
        ),
    ] = None,
    cases: Annotated[
        str | None,
        typer.Option(
            "--cases", help="Names, separated by commas; unless given, some from worst to best."
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", min=1, max=100, help="How many cases, 4 unless given.")
    ] = None,
    channel: Annotated[
        str | None, typer.Option("--channel", help="To draw on; the preset's first.")
    ] = None,
) -> None:
    """Draw segmentations side by side: a row per case, the ground truth first if it is known, then
    a column per system."""
    refuse_existing(output)
    if cases and rows:
        raise FactorizerError("--rows is for cases that are not named; leave it out with --cases")
    if output.suffix != ".png":
        raise FactorizerError(f"--output got {output}; give a name that ends in .png")
    from factorizer.figures.qualitative import draw_examples
    from factorizer.files import write_atomically
    from factorizer.preset_files import load_preset
    from factorizer.studies.gallery import Gallery

    settings = load_preset(preset).data
    folders = [parse_folder(text) for text in predictions]
    if len(dict(folders)) < len(folders):
        raise FactorizerError(
            f"the systems are named {', '.join(n for n, _ in folders)}; name each as NAME=FOLDER"
        )
    gallery = Gallery(data, dict(folders), settings, references=references)
    print_problems(gallery.problems)
    chosen = gallery.choose(
        [name.strip() for name in cases.split(",")] if cases else None, rows or 4, track
    )
    examples = [
        gallery.read(case, channel or settings.channels[0])
        for case in track(chosen, "reading cases")
    ]
    write_atomically(output, draw_examples(examples, targets=settings.targets))
    say_written(output)


def parse_folder(text: str) -> tuple[str, Path]:
    """NAME=FOLDER or FOLDER."""
    name, sign, folder = text.partition("=")
    return (
        (name, Path(folder)) if sign and not Path(text).exists() else (Path(text).name, Path(text))
    )
