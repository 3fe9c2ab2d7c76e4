"""`factorizer predict`: the cases of a cohort one after the other, each written whole or not at
all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from factorizer.data.attempts import attempt
from factorizer.data.cases import Case, Problem
from factorizer.data.images import check_dimensions
from factorizer.data.layouts import IMAGES_2D, NIFTI
from factorizer.data.outputs import (
    prediction_file,
    probabilities_file,
    write_labels,
    write_probabilities,
)
from factorizer.errors import FactorizerError
from factorizer.files import FileError
from factorizer.inference.cleaning import Cleaning, clean_labels
from factorizer.inference.manifest import (
    Facts,
    Record,
    describe_inputs,
    describe_predictor,
    differences,
    doubt,
    put_in_place,
    read_record,
    remove_leftovers,
)
from factorizer.inference.memory import check_memory
from factorizer.inference.predictor import Predictor


@dataclass(frozen=True)
class Prediction:
    """What became of a case: a file, or the problems that prevented it."""

    case: str
    file: Path | None = None
    seconds: float = 0.0
    skipped: bool = False
    problems: Sequence[Problem] = field(default_factory=tuple)
    warnings: Sequence[Problem] = field(default_factory=tuple)


Watch = Callable[
    [Case, int], Callable[[], object]
]  # a case and its windows -> what to call after each


def predict_cases(
    predictor: Predictor,
    cases: Sequence[Case],
    out: Path,
    *,
    skip_existing: bool = False,
    save_probabilities: bool = False,
    rules: Mapping[str, Cleaning] | None = None,
    watch: Watch = lambda case, windows: lambda: None,
) -> Iterator[Prediction]:
    """Predict cases into a folder; one that fails is reported and the others go on.

    With `skip_existing`, what this model made before with the same settings from the same images is
    skipped, and any other file of the same name is a problem of its case.
    """
    wanted = {case.name: output_files(case, out, save_probabilities) for case in cases}
    made_with = describe_predictor(predictor, rules or {})
    check_outputs(wanted, out, skip_existing=skip_existing)
    check_same_model(cases, out, wanted, made_with)
    remove_leftovers(out)
    for case in cases:
        started = time.monotonic()
        missing = [file for file in wanted[case.name] if not file.exists()]
        warnings: list[Problem] = []
        options: dict[str, Any] = {"rules": rules or {}, "watch": watch, "warnings": warnings}
        work = partial(predict_case, predictor, case, out, missing, made_with, **options)
        problems = check_done(case, out, wanted[case.name], made_with) or (
            attempt(case.name, work)[1] if missing else ()
        )
        if problems:
            yield Prediction(case.name, problems=problems, warnings=warnings)
        else:
            file, seconds = wanted[case.name][0], time.monotonic() - started
            yield Prediction(case.name, file, seconds, skipped=not missing, warnings=warnings)


def output_files(case: Case, out: Path, save_probabilities: bool) -> list[Path]:
    """The files of a case, first its label map."""
    return [
        prediction_file(out, case),
        *([probabilities_file(out, case)] if save_probabilities else []),
    ]


def check_outputs(wanted: Mapping[str, Sequence[Path]], out: Path, *, skip_existing: bool) -> None:
    """Each file is one case's, nothing is overwritten, and the folder can be written to."""
    if out.name.endswith((*NIFTI, *IMAGES_2D)):
        raise FactorizerError(
            f"{out} is the name of an image; give a folder, in which each case's labels get its "
            "name"
        )
    owner: dict[Path, str] = {}
    for case, files in wanted.items():
        for file in files:
            if owner.setdefault(file, case) != case:
                raise FactorizerError(
                    f"{file.name} would be a file of the case {owner[file]} and of the case "
                    f"{case}; rename one of them, or leave out --save-probabilities"
                )
    there = [file for file in owner if file.exists()]
    if there and not skip_existing:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise FactorizerError(
            f"{there[0]}{more} is there already; skip it with --continue, or give another folder"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise FactorizerError(
            f"{out} cannot be written to ({error.strerror}); give another folder"
        ) from None


def check_same_model(
    cases: Sequence[Case], out: Path, wanted: Mapping[str, Sequence[Path]], made_with: Facts
) -> None:
    """What is there was made with this model and these settings, as far as it is known: no folder
    becomes a mixture."""
    found: dict[Path, list[str]] = {}
    for case in cases:
        existing = [file for file in wanted[case.name] if file.exists()]
        with suppress(FileError):  # which is a problem of its case later
            record = read_record(out, case) if existing else None
            words = differences(record.made_with, made_with) if record else []
            if words:
                found[existing[0]] = words
    if found:
        file, words = next(iter(found.items()))
        more = f" (as were {len(found) - 1} more)" if len(found) > 1 else ""
        raise FactorizerError(
            f"{file} was made {' and '.join(words[:3])}{more}; give another --output, or remove "
            "what is there"
        )


def check_done(
    case: Case, out: Path, wanted: Sequence[Path], made_with: Facts
) -> Sequence[Problem]:
    """Files of a case that exist must be its predictions, unchanged."""
    existing = [file for file in wanted if file.exists()]
    if not existing:
        return ()
    try:
        problem = doubt(read_record(out, case), Record(made_with, describe_inputs(case)), existing)
    except FileError as error:
        problem = Problem(case.name, error.file, error.reason, error.remedy)
    except OSError as error:
        problem = Problem(
            case.name, str(error.filename), f"it cannot be read ({error.strerror})", "check it"
        )
    return () if problem is None else (replace(problem, case=case.name),)


def predict_case(
    predictor: Predictor,
    case: Case,
    out: Path,
    files: Sequence[Path],
    made_with: Facts,
    *,
    rules: Mapping[str, Cleaning],
    watch: Watch,
    warnings: list[Problem],
) -> None:
    """Write those files of a case that are missing."""
    preset, keep = predictor.preset, probabilities_file(out, case) in files
    check_dimensions(case, len(preset.data.patch_size))
    check_memory(preset, case, batch_size=predictor.sliding.batch_size, keep_probabilities=keep)
    prepared = predictor.prepare(case, preset.data.channels)
    warnings.extend(prepared.warnings)
    advance = watch(case, predictor.windows(prepared))
    segmented = predictor.segment(prepared, keep_probabilities=keep, advance=advance)
    labels = clean_labels(
        segmented.labels,
        rules,
        targets=preset.data.targets,
        spacing_mm=prepared.frame.grid.spacing_mm,
    )
    writers: dict[Path, Callable[[Path], object]] = {}
    if segmented.probabilities is not None:
        writers[probabilities_file(out, case)] = partial(
            write_probabilities, probabilities=segmented.probabilities, case=case
        )
    if prediction_file(out, case) in files:
        binary = len(preset.data.labels) == 1
        writers[prediction_file(out, case)] = partial(
            write_labels, labels=labels, case=case, binary=binary
        )
    record = Record(made_with, describe_inputs(case))
    with suppress(FileError):  # of files that are gone, otherwise the case was refused
        before = read_record(out, case)
        if before is not None and before.of_same(record):
            record = replace(record, files=before.files)
    put_in_place(out, case, record, writers)
