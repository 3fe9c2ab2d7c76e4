"""Predict the cases of a cohort, one after the other. Each is written whole or not at all."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from factorizer.data.attempts import attempt
from factorizer.data.cases import Case, Problem
from factorizer.data.images import check_dimensions
from factorizer.data.inputs import read_inputs
from factorizer.data.outputs import (
    prediction_file,
    probabilities_file,
    write_labels,
    write_probabilities,
)
from factorizer.data.preprocess import Prepared
from factorizer.files import FileError
from factorizer.inference.cleaning import clean_labels
from factorizer.inference.existing import (
    check_existing,
    check_outputs,
    check_same_model,
    output_files,
)
from factorizer.inference.load import load_ensemble
from factorizer.inference.manifest import (
    Facts,
    Record,
    Write,
    describe_inputs,
    describe_predictor,
    put_in_place,
    read_record,
    remove_leftovers,
)
from factorizer.inference.memory import check_memory
from factorizer.inference.predictor import Predictor, Segmented
from factorizer.inference.remarks import describe_problem, describe_problems, remarks_before
from factorizer.progress import SILENT, Progress
from factorizer.runs.find import Wanted, find_folds
from factorizer.runs.rules import Rules
from factorizer.runs.speeds import AS_TRAINED


@dataclass(frozen=True)
class Prediction:
    """A case: its label map, or the problems that prevented it."""

    case: str
    file: Path | None = None
    seconds: float = 0.0
    skipped: bool = False
    problems: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()

    @property
    def is_new(self) -> bool:
        """Whether it was written now."""
        return self.file is not None and not self.skipped


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

    A case that fails is reported, and the others are predicted. No file is overwritten.

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
        resume: Skip what this model predicted before with the same settings from the same images.
        device: auto, cpu, cuda or mps.
        batch_size: How many patches are predicted at a time.
        progress: Where remarks, problems and bars go.

    Returns:
        What was written, skipped and failed, with all problems.

    Example:
        >>> done = predict("zoo:hippocampus", "crops", "labels")  # doctest: +SKIP
        >>> done.written  # doctest: +SKIP
        {'case_1': PosixPath('labels/case_1.nii.gz')}
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
        [Path(path) for path in given], data.channels, mask_suffix=data.mask_suffix
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
    settings from the same images. Any other file of the same name is a problem of its case.
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


@dataclass(frozen=True, eq=False)
class Job:
    """Everything that is the same for all cases: the model, the folder and the settings."""

    predictor: Predictor
    out: Path
    rules: Rules
    made_with: Facts
    progress: Progress

    def predict(self, case: Case, files: Sequence[Path]) -> Prediction:
        """Write those files of a case that are missing. The first is its label map."""
        started = time.monotonic()
        existing = [file for file in files if file.exists()]
        missing = [file for file in files if file not in existing]
        check = partial(check_existing, case, self.out, existing, self.made_with)
        _, problems = attempt(case.name, check)
        warnings: Sequence[Problem] = ()
        if missing and not problems:
            prepared, problems = attempt(case.name, partial(self.prepare, case, missing))
            if prepared is not None:
                warnings = prepared.warnings
                work = partial(self.segment_and_write, case, prepared, missing)
                _, problems = attempt(case.name, work)
        if problems:
            return Prediction(case.name, problems=problems, warnings=warnings)
        seconds = time.monotonic() - started
        return Prediction(case.name, files[0], seconds, skipped=not missing, warnings=warnings)

    def prepare(self, case: Case, files: Sequence[Path]) -> Prepared:
        """Read a case, if the model can take it and the memory is sufficient for its files."""
        preset = self.predictor.preset
        check_dimensions(case, len(preset.data.patch_size))
        check_memory(
            preset,
            case,
            batch_size=self.predictor.sliding.batch_size,
            keep_probabilities=self.has_probabilities(case, files),
        )
        return self.predictor.prepare(case, preset.data.channels)

    def segment_and_write(self, case: Case, prepared: Prepared, files: Sequence[Path]) -> None:
        """Predict a case that was read, and write its files with a record."""
        patches = self.predictor.count_patches(prepared)
        with self.progress.task(case.name, total=patches) as task:
            segmented = self.predictor.segment(
                prepared,
                keep_probabilities=self.has_probabilities(case, files),
                advance=task.advance,
            )
        spacing_mm = prepared.frame.grid.spacing_mm
        writers = self.writers(case, segmented, spacing_mm, files)
        put_in_place(self.out, case, self.record(case), writers)

    def writers(
        self,
        case: Case,
        segmented: Segmented,
        spacing_mm: Sequence[float],
        files: Sequence[Path],
    ) -> dict[Path, Write]:
        """How each file is written."""
        data = self.predictor.preset.data
        writers: dict[Path, Write] = {}
        if segmented.probabilities is not None:
            writers[probabilities_file(self.out, case)] = partial(
                write_probabilities, probabilities=segmented.probabilities, case=case
            )
        if prediction_file(self.out, case) in files:
            labels = clean_labels(
                segmented.labels, self.rules, targets=data.targets, spacing_mm=spacing_mm
            )
            binary = len(data.labels) == 1
            writers[prediction_file(self.out, case)] = partial(
                write_labels, labels=labels, case=case, binary=binary
            )
        return writers

    def record(self, case: Case) -> Record:
        """The record of a case, with the files that the same work wrote before."""
        record = Record(self.made_with, describe_inputs(case))
        with suppress(FileError):  # a damaged record: none of its files exist any more
            before = read_record(self.out, case)
            if before is not None and before.is_same_work(record):
                return replace(record, files=before.files)
        return record

    def has_probabilities(self, case: Case, files: Sequence[Path]) -> bool:
        return probabilities_file(self.out, case) in files
