"""Choose post-processing on the held-out cases of a cross-validation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factorizer.data.cache import settings_for
from factorizer.data.folds import read_own_folds
from factorizer.data.layouts import read_cohort
from factorizer.data.regions import labels_to_regions
from factorizer.inference.load import find_models, load
from factorizer.inference.postprocess import CANDIDATES, Cleaning, choose, try_candidates, write_rules
from factorizer.inference.score import predict_and_read
from factorizer.training.folder import RunError

Track = Callable[[Sequence[Any], str], Iterable[Any]]


@dataclass(frozen=True)
class Choice:
    """The rule of a region, and its mean Dice over the held-out cases without and with it."""

    region: str
    rule: Cleaning
    before: float
    after: float
    cases: int


def choose_postprocessing(run: Path, data: Path, *, device: str, track: Track) -> tuple[Path, list[Choice]]:
    """Predict every held-out case by the model that has not seen it, and write what is best for each region."""
    cohort = read_cohort(data)
    folds = read_own_folds(run / "folds.json", cohort.cases)
    models = {int(folder.name[4:]): folder for folder in find_models(run, "all")}
    missing = [str(fold) for fold in folds if fold not in models]
    if missing:
        raise RunError(f"{run} has no fold {', '.join(missing)}; finish the cross-validation first")
    tried: dict[str, list[list[float]]] = {}
    for fold, names in folds.items():
        predictor = load(models[fold], device=device)
        section = predictor.preset.data
        settings = settings_for(cohort, section)
        known = json.loads((models[fold] / "cases.json").read_text())
        for name in track([name for name in names if name in known], f"predicting fold {fold}"):
            labels, reference, spacing = predict_and_read(predictor, cohort.case(name), settings)
            ours, theirs = (labels_to_regions(m, section.labels, section.regions) for m in (labels, reference))
            for region, mask, truth in zip(section.regions, ours, theirs, strict=True):
                tried.setdefault(region, []).append(try_candidates(mask, truth, spacing))
    choices = []
    for region, scores in tried.items():
        best = choose(scores)
        means = [sum(column) / len(scores) for column in zip(*scores, strict=True)]
        choices.append(Choice(region, CANDIDATES[best], means[0], means[best], len(scores)))
    return write_rules(run, {c.region: c.rule for c in choices}), choices
