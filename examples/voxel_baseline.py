"""A baseline for the demo: what the intensities of single voxels tell.

For each region a logistic regression on the channels is fitted. Its threshold is the one with the
highest Dice on the cases that it was fitted to.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from factorizer.config import Preset
from factorizer.data.cache import Preparation, preparation_for
from factorizer.data.cases import Case
from factorizer.data.layouts import read_cohort
from factorizer.data.outputs import prediction_file, write_labels
from factorizer.data.preprocess import restore
from factorizer.evaluation.metrics import dice

Array = NDArray[Any]
VOXELS_PER_CASE = 5000


def predict_by_voxel(preset: Preset, data: Path, held_out: Container[str], out: Path) -> None:
    """Fit the baseline to a data set without the held-out cases, and write their label maps."""
    cohort = read_cohort(data)
    unseen = [case for case in cohort.cases if case.name in held_out]
    targets = preset.data.targets
    preparation = preparation_for(cohort, preset.data)
    known = [case for case in cohort.cases if case.name not in held_out]
    voxels, masks = draw_voxels(preset, preparation, known)
    models = [LogisticRegression(max_iter=1000).fit(voxels, mask) for mask in masks]
    thresholds = []
    for model, mask in zip(models, masks, strict=True):
        thresholds.append(best_threshold(model.predict_proba(voxels)[:, 1], mask))
    for case in unseen:
        prepared = preparation.prepare(case, with_label=False)
        image = by_voxel(prepared.image)
        found = []
        for model, threshold in zip(models, thresholds, strict=True):
            found.append(model.predict_proba(image)[:, 1] >= threshold)
        labels = targets.label_map(np.stack(found).reshape(-1, *prepared.image.shape[1:]))
        whole = restore(labels[None], prepared.frame, "nearest")[0]
        write_labels(prediction_file(out, case), whole, case, binary=len(targets.labels) == 1)


def draw_voxels(
    preset: Preset, preparation: Preparation, cases: Sequence[Case]
) -> tuple[Array, Array]:
    """Some voxels of each case (voxels, channels), and the regions that they are in."""
    generator = np.random.default_rng(0)
    voxels, masks = [], []
    for case in cases:
        prepared = preparation.prepare(case, with_label=True)
        assert prepared.label is not None, "it was asked for"
        chosen = generator.choice(prepared.label.size, VOXELS_PER_CASE, replace=False)
        voxels.append(by_voxel(prepared.image)[chosen])
        masks.append(preset.data.targets.masks(prepared.label.ravel()[chosen]))
    return np.concatenate(voxels), np.concatenate(masks, axis=1)


def by_voxel(image: Array) -> Array:
    """An image (channels, *spatial) as a table (voxels, channels)."""
    return image.reshape(len(image), -1).T


def best_threshold(probabilities: Array, mask: Array) -> float:
    thresholds = np.linspace(0.05, 0.95, 19).tolist()
    return max(thresholds, key=lambda threshold: dice(probabilities >= threshold, mask))
