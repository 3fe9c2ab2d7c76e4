"""Choose post-processing on the held-out cases of a cross-validation."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factorizer.config import Data
from factorizer.data.cache import settings_for
from factorizer.data.folds import read_own_folds
from factorizer.data.layouts import read_cohort
from factorizer.evaluation.metrics import dice
from factorizer.inference.load import find_models, load
from factorizer.inference.postprocess import (
    CANDIDATES,
    Cleaning,
    Rules,
    choose,
    clean_labels,
    try_candidates,
    write_rules,
)
from factorizer.inference.score import predict_and_read
from factorizer.preset_files import load_preset
from factorizer.training.folder import RunError, check_folds, read_cases

Array = NDArray[Any]
Track = Callable[[Sequence[Any], str], Iterable[Any]]


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


def choose_postprocessing(
    run: Path, data: Path, *, device: str, track: Track
) -> tuple[Path, list[Choice]]:
    """Predict every held-out case by the model that has not seen it, and write what is best for
    each region."""
    models = {int(folder.name[4:]): folder for folder in find_models(run, "all")}
    preset = load_preset(next(iter(models.values())) / "config.yaml")
    cohort = read_cohort(data, mask_suffix=preset.data.mask_suffix)
    folds = read_own_folds(run / "folds.json", cohort.cases)
    check_folds(run, folds)
    missing = [str(fold) for fold in folds if fold not in models]
    if missing:
        raise RunError(f"{run} has no fold {', '.join(missing)}; finish the cross-validation first")
    unfinished = [
        str(folder) for folder in models.values() if not (folder / "scores.csv").is_file()
    ]
    if unfinished:
        raise RunError(f"{', '.join(unfinished)} is not finished; train it to its end first")
    cases: list[Held] = []
    for fold, names in folds.items():
        predictor = load(models[fold], device=device)
        settings = settings_for(cohort, predictor.preset.data)
        known = read_cases(models[fold] / "cases.json")
        for name in track([name for name in names if name in known], f"predicting fold {fold}"):
            labels, reference, spacing = predict_and_read(predictor, cohort.case(name), settings)
            cases.append(Held(Packed(labels), Packed(reference), spacing))
    choices = choose_rules(cases, preset.data)
    return write_rules(run, {c.region: c.rule for c in choices}), choices


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
