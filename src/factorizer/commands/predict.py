"""`factorizer predict`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from factorizer.commands.bars import ConsoleProgress
from factorizer.commands.console import (
    Json,
    print_json,
    print_problem,
    print_problems,
    say,
)
from factorizer.commands.program import exit_for
from factorizer.commands.stopping import stoppable
from factorizer.errors import FactorizerError
from factorizer.words import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from factorizer.data.cases import Case
    from factorizer.inference.predict import Prediction

Run = Annotated[
    Path | None,
    typer.Option("--run", metavar="RUN[/foldK]", help="A run that `factorizer train` wrote."),
]
Zoo = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="zoo:NAME",
        help="A model that ships with the package; `factorizer zoo` lists them.",
    ),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]


def predict(
    inputs: Annotated[
        list[Path],
        typer.Option(
            "-i",
            "--input",
            help="A folder, a CSV or JSON list, an image, or (repeated) one image per channel.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The folder for <case>.nii.gz (.png in 2D).")
    ],
    run: Run = None,
    model: Zoo = None,
    folds: Annotated[
        str | None, typer.Option("--folds", help="all, or numbers such as 0,2: an ensemble.")
    ] = None,
    tta: Annotated[
        bool, typer.Option("--tta", help="Average over mirror images, as far as trained on.")
    ] = False,
    speed: Annotated[
        str, typer.Option("--speed", help="best is as trained; balanced and fast if tuned.")
    ] = "best",
    postprocess: Annotated[
        bool, typer.Option("--postprocess", help="Clean up as the run's rules say.")
    ] = False,
    save_probabilities: Annotated[
        bool,
        typer.Option(
            "--save-probabilities", help="Also write <case>_probabilities.nii.gz, regions last."
        ),
    ] = False,
    go_on: Annotated[
        bool,
        typer.Option(
            "--continue",
            help="Skip what this model made before, with the same settings and images.",
        ),
    ] = False,
    device: Device = "auto",
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, max=4096, help="Windows at a time.")
    ] = 1,
    json: Json = False,
) -> None:
    """Segment images with a trained model: label maps on the grid of the images."""
    advice = (
        f"stopped; finished cases are in {output}. Run the same command with --continue to predict "
        "the others"
    )
    with stoppable(advice):
        if (run is None) == (model is None):
            raise FactorizerError("give either --run RUN or --model zoo:NAME")
        if model is not None and not model.startswith("zoo:"):
            raise FactorizerError(
                f"--model got {model!r}; give zoo:NAME, or a run of your own as --run"
            )
        source = str(run or model)
        from factorizer.data.inputs import read_inputs
        from factorizer.inference.load import load
        from factorizer.inference.memory import estimate_bytes
        from factorizer.inference.predict import predict_cases
        from factorizer.runs.find import find_folds, trained_on

        wanted = parse_folds(folds)
        predictor = load(
            source,
            folds=wanted,
            device=device,
            mirrored=tta,
            speed=speed,
            batch_size=batch_size,
            progress=ConsoleProgress(),
        )
        preset = predictor.preset
        models = find_folds(source, wanted)
        rules = models[0].rules(list(preset.data.regions)) if postprocess else {}
        estimate = partial(
            estimate_bytes, batch_size=batch_size, keep_probabilities=save_probabilities
        )
        cases, problems = read_inputs(
            inputs, preset.data.channels, mask_suffix=preset.data.mask_suffix
        )
        print_problems(problems)
        memory = max((estimate(preset, case) for case in cases), default=0.0)
        say(
            f"{count(len(cases), 'case')}, {count(len(predictor.networks), 'network')} on "
            f"{predictor.device}, at most about {memory / 2**30:.1f} GiB of memory; research use, "
            "not a medical device"
        )
        if cases and len(preset.data.channels) > 1:
            files = {channel: source.file.name for channel, source in cases[0].channels.items()}
            say(
                f"channels of {cases[0].name}: "
                f"{', '.join(f'{channel} = {file}' for channel, file in files.items())}"
            )
        say(
            "labels are written as "
            f"{', '.join(f'{label} = {value}' for label, value in preset.data.labels.items())}"
        )
        for fold in models:
            if not fold.is_finished:
                say(f"{fold.name} is not finished; its weights are those of the last checkpoint")
        seen = len(trained_on(models) & {case.name for case in cases})
        if seen:
            have = "has the name of a case" if seen == 1 else "have names of cases"
            say(f"{seen} of them {have} that this model was trained on: scores of those say little")
        done: list[Prediction] = []
        with Watcher() as watcher:
            results = predict_cases(
                predictor,
                cases,
                output,
                skip_existing=go_on,
                save_probabilities=save_probabilities,
                rules=rules,
                watch=watcher.watch,
            )
            for result in watcher.track(results, len(cases)):
                done.append(result)
                for problem in (*result.warnings, *result.problems):
                    print_problem(problem)
    failed = [problem.case for problem in problems if not problem.is_warning] + [
        result.case for result in done if result.problems
    ]
    if json:
        print_json(
            {
                "written": {r.case: str(r.file) for r in done if r.file and not r.skipped},
                "seconds": {r.case: round(r.seconds, 2) for r in done if r.file and not r.skipped},
                "skipped": [r.case for r in done if r.skipped],
                "failed": failed,
            }
        )
    else:
        written = sum(1 for r in done if r.file and not r.skipped)
        skipped = sum(r.skipped for r in done)
        typer.echo(f"{output}: {written} written, {skipped} skipped, {len(failed)} failed")
    problems += [problem for result in done for problem in result.problems]
    exit_for(problems)


def parse_folds(text: str | None) -> Literal["all"] | list[int] | None:
    if text is None or text == "all":
        return text  # type: ignore[return-value]
    try:
        folds = [int(part) for part in text.split(",")]
        if len(set(folds)) < len(folds):
            raise ValueError
        return folds
    except ValueError:
        raise FactorizerError(
            f"--folds got {text!r}; give all, or different numbers such as 0,2"
        ) from None


class Watcher:
    """Two bars: over the cases, and over the windows of the case at hand."""

    def __enter__(self) -> Watcher:
        from factorizer.commands.console import progress_bar

        self.bars = progress_bar()
        self.bars.start()
        self.windows = self.bars.add_task("", total=None, visible=False)
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def watch(self, case: Case, windows: int) -> Callable[[], object]:
        self.bars.reset(self.windows, total=windows, description=case.name, visible=True)
        return lambda: self.bars.advance(self.windows)

    def track(self, results: Iterable[Prediction], total: int) -> Iterable[Prediction]:
        return self.bars.track(results, total=total, description="cases")
