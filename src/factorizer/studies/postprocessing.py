"""Choose post-processing on the held-out cases of a cross-validation."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factorizer.config import Data
from factorizer.data.cache import settings_for
from factorizer.data.cases import Cohort
from factorizer.data.layouts import read_cohort
from factorizer.errors import RunError
from factorizer.evaluation.metrics import dice
from factorizer.inference.cleaning import clean_labels, clean_mask
from factorizer.inference.load import load
from factorizer.progress import SILENT, Progress
from factorizer.runs.find import find_folds
from factorizer.runs.fold import Fold
from factorizer.runs.rules import Cleaning, Rules
from factorizer.runs.run import Run
from factorizer.training.consistency import check_folds
from factorizer.training.scoring import predict_with_reference

Array = NDArray[Any]


@dataclass(frozen=True)
class Choice:
    """The rule of a region, and its mean Dice over the held-out cases without and with all
    rules."""

    region: str
    rule: Cleaning
    before: float
    after: float
    cases: int


class Packed:
    """A label map, compressed: those of a whole cohort are in memory."""

    def __init__(self, array: Array) -> None:
        self.shape, self.bytes = (
            array.shape,
            zlib.compress(array.astype(np.uint8).tobytes(), level=1),
        )

    @property
    def array(self) -> Array:
        return np.frombuffer(zlib.decompress(self.bytes), np.uint8).reshape(self.shape)


@dataclass(frozen=True, eq=False)
class Held:
    """A held-out case: what was predicted, the reference, and the size of voxels."""

    labels: Packed
    reference: Packed
    spacing_mm: Sequence[float]


@dataclass(frozen=True)
class Postprocessing:
    """The rules that were chosen for a run, and the file that they were written to."""

    file: Path
    choices: Sequence[Choice]


def choose_postprocessing(
    run: Path, data: Path, *, device: str = "auto", progress: Progress = SILENT
) -> Postprocessing:
    """Choose what is kept of each region, on the held-out cases of a cross-validation.

    Every case is predicted by the model that has not seen it. `predict` can apply the rules.
    """
    place = Run(run)
    if place.rules_file.exists():
        raise RunError(f"{place.rules_file} already exists; remove it to choose again")
    models = {fold.number: fold for fold in find_folds(run, "all")}
    preset = next(iter(models.values())).preset
    cohort = read_cohort(data, mask_suffix=preset.data.mask_suffix)
    folds = place.split(cohort.cases)
    check_folds(place, folds)
    check_finished(place, list(folds))
    cases: list[Held] = []
    for number, names in folds.items():
        cases += predict_held_out(models[number], names, cohort, device, progress)
    choices = choose_rules(cases, preset.data)
    file = place.write_rules({choice.region: choice.rule for choice in choices})
    return Postprocessing(file, choices)


def check_finished(run: Run, numbers: Sequence[int]) -> None:
    """Refuse a run of which some fold is missing or not trained to its end."""
    missing = [str(number) for number in numbers if not run.fold(number).exists]
    if missing:
        raise RunError(
            f"{run.path} has no fold {', '.join(missing)}; finish the cross-validation first"
        )
    unfinished = [str(fold.path) for fold in run.folds() if not fold.is_finished]
    if unfinished:
        raise RunError(f"{', '.join(unfinished)} is not finished; train it to its end first")


def predict_held_out(
    fold: Fold, names: Sequence[str], cohort: Cohort, device: str, progress: Progress
) -> list[Held]:
    """The held-out cases of a fold, each with its reference."""
    predictor = load(fold.path, device=device)
    settings = settings_for(cohort, predictor.preset.data)
    known = fold.cases()
    usable = [name for name in names if name in known]
    cases = []
    for name in progress.track(usable, f"predicting fold {fold.number}"):
        pair = predict_with_reference(predictor, cohort.case(name), settings)
        cases.append(Held(Packed(pair.labels), Packed(pair.reference), pair.spacing_mm))
    return cases


def choose_rules(cases: Sequence[Held], data: Data) -> list[Choice]:
    """The best rule of each region by itself, from the largest region to the smallest, unless it
    costs another region something: what goes from a region is gone from those inside it."""
    tried: dict[str, list[list[float]]] = {region: [] for region in data.regions}
    for case in cases:
        ours, theirs = (data.targets.masks(m.array) for m in (case.labels, case.reference))
        for region, mask, truth in zip(data.regions, ours, theirs, strict=True):
            tried[region].append(try_candidates(mask, truth, case.spacing_mm))
    rules: dict[str, Cleaning] = {}
    before = means = mean_dices(cases, rules, data)
    for region in sorted(data.regions, key=lambda name: -len(data.regions[name])):
        more = rules | {region: CANDIDATES[choose(tried[region])]}
        found = mean_dices(cases, more, data)
        if all(found[name] >= means[name] - 1e-9 for name in found):
            rules, means = more, found
    return [
        Choice(r, rules.get(r, Cleaning()), before[r], means[r], len(cases)) for r in data.regions
    ]


def mean_dices(cases: Sequence[Held], rules: Rules, data: Data) -> dict[str, float]:
    """Of every region, after all rules are applied as `predict` applies them."""
    rows = []
    for case in cases:
        cleaned = clean_labels(
            case.labels.array,
            rules,
            targets=data.targets,
            spacing_mm=case.spacing_mm,
        )
        masks = (data.targets.masks(m) for m in (cleaned, case.reference.array))
        rows.append([dice(ours, theirs) for ours, theirs in zip(*masks, strict=True)])
    return dict(zip(data.regions, np.mean(rows, axis=0).tolist(), strict=True))


CANDIDATES = [
    Cleaning(volume, largest)
    for largest in (False, True)
    for volume in (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
]


def try_candidates(prediction: Array, reference: Array, spacing_mm: Sequence[float]) -> list[float]:
    """The Dice of a region's mask after each candidate; the first is that of the mask as it is."""
    from factorizer.evaluation.metrics import (
        dice,
    )  # with parts of SciPy that prediction does without

    return [dice(clean_mask(prediction, rule, spacing_mm), reference) for rule in CANDIDATES]


def choose(scores: Sequence[Sequence[float]]) -> int:
    """The candidate with the highest mean over cases; the gentlest of those that are alike."""
    return int(np.asarray(scores).mean(0).round(6).argmax())
