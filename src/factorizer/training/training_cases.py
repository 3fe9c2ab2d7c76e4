"""The cases of a training: which are trained on, which are held out, and their preparation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from factorizer.config import Preset
from factorizer.data.cache import CaseStore, Preparation, preparation_for
from factorizer.data.cases import Cohort
from factorizer.data.folds import Folds
from factorizer.data.layouts import read_cohort
from factorizer.data.matching import note_renamed_labels
from factorizer.errors import RunError
from factorizer.progress import Progress
from factorizer.runs.fold import Fold
from factorizer.training.consistency import check_folds, settle_folds, split_cases
from factorizer.words import count


@dataclass(frozen=True)
class TrainingCases:
    """What a fold is trained on and what it holds out."""

    cohort: Cohort
    preparation: Preparation
    folds: Folds
    origin: str  # where the folds come from
    training: Sequence[str]
    held_out: Sequence[str]


def gather_cases(
    preset: Preset, data: Path, fold: Fold, split: Path | None, progress: Progress
) -> TrainingCases:
    """Read the data set and deal its cases out."""
    assert fold.number is not None, "it is a fold of a run"
    cohort = read_cohort(data, mask_suffix=preset.data.mask_suffix)
    folds, origin = settle_folds(fold.run, cohort, preset, split)
    check_folds(fold.run, folds)
    for remark in remarks_on(cohort, folds, preset):
        progress.say(remark)
    training, held_out = split_cases(folds, fold.number)
    preparation = preparation_for(cohort, preset.data)
    return TrainingCases(cohort, preparation, folds, origin, training, held_out)


def remarks_on(cohort: Cohort, folds: Folds, preset: Preset) -> Iterator[str]:
    """What a user should know about the data set before it is trained on."""
    names = {case.name for case in cohort.cases}
    for problem in cohort.problems:
        if problem.case not in names:
            yield str(problem)
    unused = len(names) - sum(map(len, folds.values()))
    if unused:
        verb = "is" if unused == 1 else "are"
        yield (
            f"{count(unused, 'case')} of {cohort.root} {verb} in no fold of this run (unlabelled, "
            f"or new) and {verb} left out"
        )
    for problem in note_renamed_labels(cohort, preset.data.labels):
        yield str(problem)


def prepare_cases(store: CaseStore, cases: TrainingCases, progress: Progress) -> None:
    """Preprocess the cases. A case that cannot be used is named and left out."""
    names = [*cases.training, *cases.held_out]
    for problem in store.prepare(names, progress=progress):
        progress.say(f"warning: {problem}" if problem.is_warning else f"left out: {problem}")
    check_some_usable(store, cases.training, "to train on")
    check_some_usable(store, cases.held_out, "in the held-out fold")


def check_some_usable(store: CaseStore, names: Sequence[str], purpose: str) -> None:
    usable = [name for name in names if name in store.entries]
    if names and not usable:
        raise RunError(f"no usable case is left {purpose}")
