"""`factorizer evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from factorizer.commands.console import (
    Json,
    print_json,
    print_problems,
    print_table,
    print_text,
    refuse_existing,
    say,
    say_written,
    scores_table,
    track,
)
from factorizer.commands.program import exit_for
from factorizer.errors import FactorizerError
from factorizer.words import count

if TYPE_CHECKING:
    from factorizer.evaluation.scores import HD95Empty

MOST_PENALTY_MM = 1_000_000


def evaluate(
    predictions: Annotated[
        Path, typer.Option("-p", "--predictions", help="A folder of predicted label maps.")
    ],
    references: Annotated[
        Path,
        typer.Option(
            "-r", "--references", help="A folder of label files, or a data set in any layout."
        ),
    ],
    preset: Annotated[
        str,
        typer.Option("--preset", help="A preset's name, YAML file, or zoo:NAME: its labels count."),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="scores.csv; summary.json goes beside it.")
    ],
    hd95_empty: Annotated[
        str,
        typer.Option(
            "--hd95-empty", help="HD95 where one mask is empty: nan, diagonal, or millimetres."
        ),
    ] = "diagonal",
    prediction_values: Annotated[
        str,
        typer.Option(
            "--prediction-values",
            help="Whose label values predictions carry: preset, as from `predict`, or dataset "
            "(BraTS has others).",
        ),
    ] = "preset",
    json: Json = False,
) -> None:
    """Score predictions against references: Dice, HD95, volumes and lesions, per case and
    region."""
    rule = parse_penalty(hd95_empty)
    if prediction_values not in ("preset", "dataset"):
        raise FactorizerError(
            f"--prediction-values got {prediction_values!r}; give preset or dataset"
        )
    if output.suffix != ".csv":
        raise FactorizerError(f"--output got {output}; give a name that ends in .csv")
    stem = output.stem.removeprefix("scores").strip("_- ")
    summary = output.with_name(f"summary_{stem}.json" if stem else "summary.json")
    refuse_existing(output, summary)
    from dataclasses import asdict

    from factorizer.data.cases import list_some
    from factorizer.evaluation.evaluate import (
        evaluate_folders,
        list_references,
        make_summary,
        renamed_values,
    )
    from factorizer.evaluation.scores import describe_conventions, mean_scores, write_scores
    from factorizer.files import write_atomically
    from factorizer.preset_files import load_preset

    data = load_preset(preset).data
    theirs = renamed_values(list_references(references, data), data)
    if theirs:
        used = data.labels if prediction_values == "preset" else theirs
        say(
            f"{references} has other label values than the preset; predictions are read as "
            f"{', '.join(f'{name} = {value}' for name, value in used.items())} "
            "(--prediction-values)"
        )
    result = evaluate_folders(
        predictions,
        references,
        data,
        hd95_empty=rule,
        prediction_values=prediction_values,  # type: ignore[arg-type]
        track=track,
    )
    for side, names in result.unmatched.items():
        if names:
            other = "reference" if side == "predictions" else "prediction"
            say(
                f"{count(len(names), side.removesuffix('s'))} without a {other}: {list_some(names)}"
            )
    print_problems(result.problems)
    if result.scores:
        write_scores(output, result.scores)
        write_atomically(summary, make_summary(result.counts))
        say_written(output)
        say_written(summary)
    if json:
        means = {region: asdict(means) for region, means in mean_scores(result.scores).items()}
        print_json(
            {
                "means": means,
                "conventions": describe_conventions(rule),
                "unmatched": result.unmatched,
                "problems": [problem.as_dict() for problem in result.problems],
            }
        )
    else:
        print_table(scores_table(result.scores))
        print_text(describe_conventions(rule))
    exit_for(result.problems)


def parse_penalty(text: str) -> HD95Empty:
    if text == "nan" or text == "diagonal":
        return text  # type: ignore[return-value]
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MOST_PENALTY_MM:
        allowed = f"a number of millimetres from 0 to {MOST_PENALTY_MM:,}"
        raise FactorizerError(f"--hd95-empty got {text!r}; give nan, diagonal, or {allowed}")
    return value
