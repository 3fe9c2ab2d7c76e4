"""The work on each case of a prediction: read, segment, clean and write it, whole or not at all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from factorizer.data.attempts import attempt
from factorizer.data.cases import Case, Problem, missing_channels
from factorizer.data.images import check_dimensions
from factorizer.data.missing import note_missing, prepare_incomplete
from factorizer.data.outputs import (
    prediction_file,
    probabilities_file,
    write_labels,
    write_probabilities,
)
from factorizer.data.preprocess import Prepared, preprocessing_of
from factorizer.files import FileError
from factorizer.inference.cleaning import clean_labels
from factorizer.inference.existing import check_existing
from factorizer.inference.manifest import (
    Facts,
    Record,
    Write,
    describe_inputs,
    put_in_place,
    read_record,
)
from factorizer.inference.memory import check_memory
from factorizer.inference.predictor import Predictor, Segmented
from factorizer.progress import Progress
from factorizer.runs.rules import Rules


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


@dataclass(frozen=True, eq=False)
class Job:
    """Everything that is the same for all cases: the model, the folder and the options."""

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
        warnings = self.note_channels(case)
        if missing and not problems:
            prepared, problems = attempt(case.name, partial(self.prepare, case, missing))
            if prepared is not None:
                warnings += prepared.warnings
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
        if preset.data.takes_missing_channels:
            preprocessing = preprocessing_of(preset.data)
            return prepare_incomplete(case, preprocessing, channels=preset.data.channels)
        return self.predictor.prepare(case, preset.data.channels)

    def note_channels(self, case: Case) -> list[Problem]:
        """A warning if channels are missing that the model can do without."""
        data = self.predictor.preset.data
        if not data.takes_missing_channels:
            return []
        return note_missing(case.name, missing_channels(case, data.channels))

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
