"""`factorizer predict`: the cases of a cohort one after the other, each written whole or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from factorizer.data.cases import Case, DataError, Problem
from factorizer.data.images import is_picture
from factorizer.data.outputs import first_file, prediction_file, probabilities_file, write_labels, write_probabilities
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
    check_outputs(cases, out, skip_existing=skip_existing)
    for case in cases:
        file, started = prediction_file(out, case), time.monotonic()
        if is_done(out, case, save_probabilities):
            yield Prediction(case.name, file, skipped=True)
            continue
        try:
            predict_case(predictor, case, out, save_probabilities=save_probabilities, rules=rules or {}, watch=watch)
        except DataError as error:
            yield Prediction(case.name, problems=error.problems)
        except (MemoryError, RuntimeError, ValueError) as error:
            remedy = "look at this image; the others go on"
            yield Prediction(case.name, problems=(Problem(case.name, "", f"it failed: {error}", remedy),))
        else:
            yield Prediction(case.name, file, time.monotonic() - started)


def is_done(out: Path, case: Case, save_probabilities: bool) -> bool:
    return prediction_file(out, case).exists() and (not save_probabilities or probabilities_file(out, case).exists())


def check_outputs(cases: Sequence[Case], out: Path, *, skip_existing: bool) -> None:
    """Nothing is overwritten, and the folder can be written to."""
    there = [file for case in cases if (file := prediction_file(out, case)).exists()]
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
) -> None:
    preset = predictor.preset
    flat = is_picture(first_file(case))
    if flat != (len(preset.data.patch_size) == 2):
        message = f"it is {'2D' if flat else '3D'}, and the model is for {'3D' if flat else '2D'} images"
        raise DataError(Problem(case.name, str(first_file(case)), message, "choose another model"))
    check_memory(preset, case, batch_size=predictor.sliding.batch_size, keep_probabilities=save_probabilities)
    prepared = predictor.prepare(case, preset.data.channels)
    advance = watch(case, predictor.windows(prepared))
    segmented = predictor.segment(prepared, keep_probabilities=save_probabilities, advance=advance)
    labels = clean_labels(
        segmented.labels,
        rules,
        labels=preset.data.labels,
        regions=preset.data.regions,
        spacing_mm=prepared.frame.grid.spacing_mm,
    )
    if segmented.probabilities is not None:
        write_probabilities(probabilities_file(out, case), segmented.probabilities, case)
    write_labels(prediction_file(out, case), labels, case, binary=len(preset.data.labels) == 1)
