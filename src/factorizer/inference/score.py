"""Predict a case that has a reference, as `factorizer predict` does, and score it as `factorizer
evaluate` does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from factorizer.data.cache import Settings
from factorizer.data.cases import Case
from factorizer.data.images import canonical_grid, read_label, turn_to_canonical
from factorizer.evaluation.scores import Score, score_label_maps
from factorizer.inference.predictor import Predictor

Array = NDArray[Any]


def predict_and_read(
    predictor: Predictor, case: Case, settings: Settings, logits: Iterable[Tensor] | None = None
) -> tuple[Array, Array, tuple[float, ...]]:
    """The label map predicted, the reference, both in canonical orientation, and the size of their
    voxels.

    `logits` are the slabs of this case where the network was applied to it before.
    """
    prepared = predictor.prepare(case, settings.channels)
    grid = prepared.frame.grid
    labels = turn_to_canonical(predictor.segment(prepared, logits=logits).labels[None], grid)[0]
    return labels, read_label(case, settings.label_values, grid), canonical_grid(grid).spacing_mm


def score_case(
    predictor: Predictor, case: Case, settings: Settings, logits: Iterable[Tensor] | None = None
) -> list[Score]:
    """Every metric of a case, from its logits where they are known."""
    data = predictor.preset.data
    labels, reference, spacing = predict_and_read(predictor, case, settings, logits)
    return score_label_maps(case.name, labels, reference, targets=data.targets, spacing_mm=spacing)
