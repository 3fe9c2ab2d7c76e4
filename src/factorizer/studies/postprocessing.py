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
from factorizer.data.cache import preparation_for
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
from factorizer.targets import Targets
from factorizer.training.consistency import check_folds
from factorizer.training.scoring import predict_with_reference

Array = NDArray[Any]
VOLUMES_ML = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
CANDIDATES = [
    *[Cleaning(volume) for volume in VOLUMES_ML],
    *[Cleaning(volume, largest=True) for volume in VOLUMES_ML],
]
ROUNDING = 1e-9


@dataclass(frozen=True)
class Choice:
    """The rule of a region, and the region's mean Dice before and after all rules are applied."""

    region: str
    rule: Cleaning
    before: float
    after: float
    cases: int


class Packed:
    """A label map, compressed, because those of a whole cohort are in memory."""

    def __init__(self, array: Array) -> None:
        self.shape = array.shape
        self.bytes = zlib.compress(array.astype(np.uint8).tobytes(), level=1)

    @property
    def array(self) -> Array:
        return np.frombuffer(zlib.decompress(self.bytes), np.uint8).reshape(self.shape)


@dataclass(frozen=True, eq=False)
class Held:
    """A held-out case: its prediction, its reference, and the size of its voxels."""

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
    """Choose which lesions of each region are kept, on the held-out cases of a cross-validation.

    Every case is predicted by the model that has not seen it. The rules are written into the run.
    `predict` can apply them.

    Args:
        run: The folder of a finished cross-validation.
        data: The data set that it was trained on.
        device: auto, cpu, cuda or mps.
        progress: Where lines and bars go.

    Example:
        >>> run = Path("runs/strokes")
        >>> chosen = factorizer.choose_postprocessing(run, Path("strokes"), device="cpu")
        >>> [choice.region for choice in chosen.choices]
        ['lesion']
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
        cases += predict_held_out(models[number], names, cohort, device=device, progress=progress)
    choices = choose_rules(cases, preset.data)
    file = place.write_rules({choice.region: choice.rule for choice in choices})
    return Postprocessing(file, choices)


def check_finished(run: Run, numbers: Sequence[int]) -> None:
    """Refuse a run with a fold that is missing or not trained to its end."""
    missing = [str(number) for number in numbers if not run.fold(number).exists]
    if missing:
        raise RunError(
            f"{run.path} has no fold {', '.join(missing)}; finish the cross-validation first"
        )
    unfinished = [str(fold.path) for fold in run.folds() if not fold.is_finished]
    if unfinished:
        raise RunError(f"{', '.join(unfinished)} is not finished; resume its training first")


def predict_held_out(
    fold: Fold, names: Sequence[str], cohort: Cohort, *, device: str, progress: Progress
) -> list[Held]:
    """The held-out cases of a fold, each with its reference."""
    predictor = load(fold.path, device=device)
    preparation = preparation_for(cohort, predictor.preset.data)
    known = fold.cases()
    usable = [name for name in names if name in known]
    cases = []
    for name in progress.track(usable, f"predicting fold {fold.number}"):
        pair = predict_with_reference(predictor, cohort.case(name), preparation)
        cases.append(Held(Packed(pair.labels), Packed(pair.reference), pair.spacing_mm))
    return cases


def choose_rules(cases: Sequence[Held], data: Data) -> list[Choice]:
    """The best rule of each region, unless it lowers the Dice of another region.

    Larger regions come first: voxels that a region loses are lost to the regions inside it, too.
    """
    candidates = best_candidates(cases, data.targets)
    rules: dict[str, Cleaning] = {}
    before = mean_dices(cases, rules, data.targets)
    after = before
    for region in sorted(data.regions, key=lambda name: -len(data.regions[name])):
        more = rules | {region: candidates[region]}
        found = mean_dices(cases, more, data.targets)
        if all(found[name] >= after[name] - ROUNDING for name in found):
            rules, after = more, found
    choices = []
    for region in data.regions:
        rule = rules.get(region, Cleaning())
        choices.append(Choice(region, rule, before[region], after[region], len(cases)))
    return choices


def best_candidates(cases: Sequence[Held], targets: Targets) -> dict[str, Cleaning]:
    """The rule of each region that is best for its own Dice."""
    tried: dict[str, list[list[float]]] = {region: [] for region in targets.regions}
    for case in cases:
        predicted = targets.masks(case.labels.array)
        true = targets.masks(case.reference.array)
        for region, mask, reference in zip(targets.regions, predicted, true, strict=True):
            tried[region].append(try_candidates(mask, reference, case.spacing_mm))
    return {region: CANDIDATES[choose(scores)] for region, scores in tried.items()}


def mean_dices(cases: Sequence[Held], rules: Rules, targets: Targets) -> dict[str, float]:
    """The mean Dice of every region, after all rules are applied as `predict` applies them."""
    rows = []
    for case in cases:
        labels = case.labels.array
        cleaned = clean_labels(labels, rules, targets=targets, spacing_mm=case.spacing_mm)
        predicted = targets.masks(cleaned)
        true = targets.masks(case.reference.array)
        rows.append(
            [dice(mask, reference) for mask, reference in zip(predicted, true, strict=True)]
        )
    return dict(zip(targets.regions, np.mean(rows, axis=0).tolist(), strict=True))


def try_candidates(prediction: Array, reference: Array, spacing_mm: Sequence[float]) -> list[float]:
    """The Dice of a region's mask after each candidate. The first one keeps the whole mask."""
    scores = []
    for rule in CANDIDATES:
        cleaned = clean_mask(prediction, rule, spacing_mm)
        scores.append(dice(cleaned, reference))
    return scores


def choose(scores: Sequence[Sequence[float]]) -> int:
    """The candidate with the highest mean over cases, and the gentlest of equal ones."""
    return int(np.asarray(scores).mean(0).round(6).argmax())
