"""`factorizer evaluate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from factorizer.bars import ConsoleProgress
from factorizer.commands import options
from factorizer.commands.console import (
    print_json,
    print_problems,
    print_table,
    print_text,
    say_written,
    scores_table,
)
from factorizer.commands.program import exit_for
from factorizer.terminal import say
from factorizer.words import count

if TYPE_CHECKING:
    from factorizer.evaluation.evaluate import Evaluation


def evaluate(
    predictions: options.Predictions,
    references: options.References,
    preset: options.Preset,
    output: options.OutputFile,
    hd95_empty: options.EmptyDistance = "diagonal",
    prediction_values: options.PredictionValues = "preset",
    json: options.Json = False,
) -> None:
    """Score predictions against references: Dice, HD95, volumes and lesions.

    The output is a scores.csv, with a row per case, region and metric. nnU-Net's summary.json is
    written beside it.
    """
    from factorizer.evaluation.evaluate import evaluate

    result = evaluate(
        predictions,
        references,
        preset,
        out=output,
        hd95_empty=hd95_empty,
        prediction_values=prediction_values,
        progress=ConsoleProgress(),
    )
    say_unmatched(result)
    print_problems(result.problems)
    for file in result.files:
        say_written(file)
    if json:
        print_json(as_json(result))
    else:
        print_table(scores_table(result.scores))
        print_text(result.conventions)
    exit_for(result.problems)


def say_unmatched(result: Evaluation) -> None:
    """The cases that have only a prediction or only a reference."""
    from factorizer.data.cases import list_some

    missing = {"predictions": "reference", "references": "prediction"}
    for side, names in result.unmatched.items():
        if names:
            number = count(len(names), side.removesuffix("s"))
            say(f"{number} without a {missing[side]}: {list_some(names)}")


def as_json(result: Evaluation) -> object:
    from dataclasses import asdict

    return {
        "means": {region: asdict(means) for region, means in result.means.items()},
        "conventions": result.conventions,
        "unmatched": result.unmatched,
        "problems": [problem.as_dict() for problem in result.problems],
    }
