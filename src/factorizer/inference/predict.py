"""`factorizer predict`: the cases of a cohort one after the other, each written whole or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from factorizer.data.cases import Case, DataError, Problem
from factorizer.data.images import check_dimensions
from factorizer.data.layouts import IMAGES_2D, NIFTI
from factorizer.data.outputs import prediction_file, probabilities_file, write_labels, write_probabilities
from factorizer.inference.memory import check_memory
from factorizer.inference.postprocess import Cleaning, clean_labels
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


Watch = Callable[[Case, int], Callable[[], object]]  # a case and its windows -> what to call after each


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
    """Predict cases into a folder; one that fails is reported and the others go on."""
    check_outputs(cases, out, skip_existing=skip_existing, save_probabilities=save_probabilities)
    for case in cases:
        file, started = prediction_file(out, case), time.monotonic()
        if is_done(out, case, save_probabilities):
            yield Prediction(case.name, file, skipped=True)
            continue
        warnings: list[Problem] = []
        options: dict[str, Any] = {
            "warnings": warnings,
            "save_probabilities": save_probabilities,
            "rules": rules or {},
            "watch": watch,
        }
        problems = attempt(case, partial(predict_case, predictor, case, out, **options))
        if problems:
            yield Prediction(case.name, problems=problems, warnings=warnings)
        else:
            yield Prediction(case.name, file, time.monotonic() - started, warnings=warnings)


def attempt(case: Case, work: Callable[[], object]) -> Sequence[Problem]:
    """Do something with a case; what prevented it, if something did."""
    try:
        work()
    except DataError as error:
        return error.problems
    except (MemoryError, RuntimeError, ValueError) as error:
        return (Problem(case.name, "", f"it failed: {error}", "look at this image; the others go on"),)
    return ()


def is_done(out: Path, case: Case, save_probabilities: bool) -> bool:
    return prediction_file(out, case).exists() and (not save_probabilities or probabilities_file(out, case).exists())


def check_outputs(cases: Sequence[Case], out: Path, *, skip_existing: bool, save_probabilities: bool) -> None:
    """Nothing is overwritten, and the folder can be written to."""
    if out.name.endswith((*NIFTI, *IMAGES_2D)):
        raise ValueError(f"{out} is the name of an image; give a folder, in which each case's labels get its name")
    files = [prediction_file(out, case) for case in cases]
    files += [probabilities_file(out, case) for case in cases if save_probabilities]
    there = [file for file in files if file.exists()]
    if there and not skip_existing:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise ValueError(f"{there[0]}{more} is there already; skip it with --continue, or give another folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".factorizer"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(f"{out} cannot be written to ({error.strerror}); give another folder") from None


def predict_case(
    predictor: Predictor,
    case: Case,
    out: Path,
    *,
    save_probabilities: bool,
    rules: Mapping[str, Cleaning],
    watch: Watch,
    warnings: list[Problem],
) -> None:
    preset = predictor.preset
    check_dimensions(case, len(preset.data.patch_size))
    check_memory(preset, case, batch_size=predictor.sliding.batch_size, keep_probabilities=save_probabilities)
    prepared = predictor.prepare(case, preset.data.channels)
    warnings.extend(prepared.warnings)
    advance = watch(case, predictor.windows(prepared))
    segmented = predictor.segment(prepared, keep_probabilities=save_probabilities, advance=advance)
    labels = clean_labels(
        segmented.labels,
        rules,
        labels=preset.data.labels,
        regions=preset.data.regions,
        spacing_mm=prepared.frame.grid.spacing_mm,
    )
    if segmented.probabilities is not None and not probabilities_file(out, case).exists():
        write_probabilities(probabilities_file(out, case), segmented.probabilities, case)
    if not prediction_file(out, case).exists():  # else only its probabilities were missing
        write_labels(prediction_file(out, case), labels, case, binary=len(preset.data.labels) == 1)
