"""Predict the cases of a cohort, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from factorizer.data.cases import Case, Problem
from factorizer.data.inputs import read_inputs
from factorizer.inference.existing import check_outputs, check_same_model, output_files
from factorizer.inference.job import Job, Prediction
from factorizer.inference.load import load_ensemble
from factorizer.inference.manifest import describe_predictor, remove_leftovers
from factorizer.inference.predictor import Predictor
from factorizer.inference.remarks import describe_problem, describe_problems, remarks_before
from factorizer.progress import SILENT, Progress
from factorizer.runs.find import Wanted, find_folds
from factorizer.runs.rules import Rules
from factorizer.runs.speeds import AS_TRAINED


@dataclass(frozen=True)
class Predictions:
    """What `predict` did with each case, and the problems of the inputs that are no cases."""

    folder: Path
    cases: Sequence[Prediction]
    input_problems: Sequence[Problem] = ()

    @property
    def written(self) -> dict[str, Path]:
        """The label maps that were written now, by case."""
        return {done.case: done.file for done in self.cases if done.file and done.is_new}

    @property
    def seconds(self) -> dict[str, float]:
        """How long each case took that was written now."""
        return {done.case: done.seconds for done in self.cases if done.is_new}

    @property
    def skipped(self) -> list[str]:
        """The cases that the same model had predicted before."""
        return [done.case for done in self.cases if done.skipped]

    @property
    def failed(self) -> list[str]:
        """The cases that have no prediction. The first are those that could not be read."""
        unread = [problem.case for problem in self.input_problems if not problem.is_warning]
        return unread + [done.case for done in self.cases if done.problems]

    @property
    def problems(self) -> list[Problem]:
        """Everything that prevented a prediction, and the warnings."""
        found = list(self.input_problems)
        for done in self.cases:
            found += (*done.warnings, *done.problems)
        return found


def predict(
    model: str | Path,
    inputs: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    folds: Wanted = None,
    mirrored: bool = False,
    speed: str = AS_TRAINED,
    postprocess: bool = False,
    save_probabilities: bool = False,
    resume: bool = False,
    device: str = "auto",
    batch_size: int = 1,
    progress: Progress = SILENT,
) -> Predictions:
    """Segment the images of some cases, and write a label map on the grid of each.

    A case that fails is reported, and the others are predicted. No file is overwritten. A model
    that was trained with lost channels takes cases without some channels, with a warning for each.

    Args:
        model: RUN, RUN/foldK or zoo:NAME.
        inputs: A data set, a folder of images, a CSV or JSON list, an image, or several images of
            one case, one per channel.
        out: The folder for <case>.nii.gz, or <case>.png of 2D images.
        folds: "all" or some numbers, for an ensemble of a run's folds.
        mirrored: Average over mirror images, along the axes that were mirrored in training.
        speed: best is as trained. Others exist after `factorizer tune`.
        postprocess: Drop lesions by the rules that are stored with the run.
        save_probabilities: Write <case>_probabilities.nii.gz too, with the regions as last axis.
        resume: Skip what this model predicted before with the same options from the same images.
        device: auto, cpu, cuda or mps.
        batch_size: How many patches are predicted at a time.
        progress: Where remarks, problems and bars go.

    Returns:
        What was written, skipped and failed, with all problems.

    Example:
        >>> done = factorizer.predict("runs/strokes/fold0", "strokes", "labels", device="cpu")
        >>> str(done.written["sub-strokecase0001"])
        'labels/sub-strokecase0001.nii.gz'
    """
    found = find_folds(model, folds)
    predictor = load_ensemble(
        found,
        device=device,
        mirrored=mirrored,
        speed=speed,
        batch_size=batch_size,
        progress=progress,
    )
    data = predictor.preset.data
    rules = found[0].rules(list(data.regions)) if postprocess else {}
    given = [inputs] if isinstance(inputs, str | Path) else inputs
    cases, problems = read_inputs(
        [Path(path) for path in given],
        data.channels,
        mask_suffix=data.mask_suffix,
        allow_missing=data.takes_missing_channels,
    )
    remarks = remarks_before(predictor, found, cases, keep_probabilities=save_probabilities)
    for line in (*describe_problems(problems), *remarks):
        progress.say(line)
    results = predict_cases(
        predictor,
        cases,
        Path(out),
        skip_existing=resume,
        save_probabilities=save_probabilities,
        rules=rules,
        progress=progress,
    )
    done = []
    for result in progress.follow(results, "cases", total=len(cases)):
        done.append(result)
        for problem in (*result.warnings, *result.problems):
            progress.say(describe_problem(problem))
    return Predictions(Path(out), done, problems)


def predict_cases(
    predictor: Predictor,
    cases: Sequence[Case],
    out: Path,
    *,
    skip_existing: bool = False,
    save_probabilities: bool = False,
    rules: Rules | None = None,
    progress: Progress = SILENT,
) -> Iterator[Prediction]:
    """Predict cases into a folder, one after the other. A case that fails does not stop the others.

    With `skip_existing`, a case is skipped if this model made its prediction before, with the same
    options from the same images. Any other file of the same name is a problem of its case.
    """
    wanted = {
        case.name: output_files(case, out, save_probabilities=save_probabilities) for case in cases
    }
    job = Job(predictor, out, rules or {}, describe_predictor(predictor, rules or {}), progress)
    check_outputs(wanted, out, skip_existing=skip_existing)
    check_same_model(cases, out, wanted, job.made_with)
    remove_leftovers(out)
    for case in cases:
        yield job.predict(case, wanted[case.name])
