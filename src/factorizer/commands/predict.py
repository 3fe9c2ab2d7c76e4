"""`factorizer predict`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import typer

from factorizer.bars import ConsoleProgress
from factorizer.commands import options
from factorizer.commands.console import print_json
from factorizer.commands.program import exit_for
from factorizer.commands.stopping import stoppable
from factorizer.errors import FactorizerError

if TYPE_CHECKING:
    from factorizer.inference.predict import Predictions

ADVICE = "Run the same command with --resume to predict the others"


def predict(
    model: options.Model,
    inputs: options.Inputs,
    output: options.OutputFolder,
    folds: options.Folds = None,
    tta: options.Mirrored = False,
    speed: options.Speed = "best",
    postprocess: options.Postprocess = False,
    save_probabilities: options.SaveProbabilities = False,
    resume: options.Resume = False,
    device: options.Device = "auto",
    batch_size: options.BatchSize = 1,
    json: options.Json = False,
) -> None:
    """Segment images with a trained model. Write a label map on the grid of each image."""
    with stoppable(f"stopped; finished cases are in {output}. {ADVICE}"):
        from factorizer.inference.predict import predict as predict_inputs

        result = predict_inputs(
            model,
            inputs,
            output,
            folds=parse_folds(folds),
            mirrored=tta,
            speed=speed,
            postprocess=postprocess,
            save_probabilities=save_probabilities,
            resume=resume,
            device=device,
            batch_size=batch_size,
            progress=ConsoleProgress(),
        )
    print_result(result, json=json)


def print_result(result: Predictions, *, json: bool) -> None:
    """Print how many cases were written, skipped and failed. End with their exit code."""
    if json:
        print_json(as_json(result))
    else:
        typer.echo(summarize(result))
    exit_for(result.problems)


def parse_folds(text: str | None) -> Literal["all"] | list[int] | None:
    """all, or some numbers."""
    if text is None:
        return None
    if text == "all":
        return "all"
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        message = f"--folds got {text!r}; give all, or different numbers such as 0,2"
        raise FactorizerError(message) from None


def summarize(result: Predictions) -> str:
    """How many cases were written, skipped and failed."""
    numbers = f"{len(result.written)} written, {len(result.skipped)} skipped"
    return f"{result.folder}: {numbers}, {len(result.failed)} failed"


def as_json(result: Predictions) -> dict[str, Any]:
    """The keys of --json."""
    return {
        "written": {case: str(file) for case, file in result.written.items()},
        "seconds": {case: round(seconds, 2) for case, seconds in result.seconds.items()},
        "skipped": result.skipped,
        "failed": result.failed,
        "problems": [problem.as_dict() for problem in result.problems],
    }
