"""A prediction and its reference as label maps on the same grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from factorizer.data.cases import Case, DataError, Problem
from factorizer.data.images import VoxelGrid, open_image, read_label
from factorizer.evaluation.metrics import Mask
from factorizer.evaluation.references import References


@dataclass(frozen=True, eq=False)
class Pair:
    """A prediction and its reference: label maps in canonical orientation, on the same grid."""

    case: str
    prediction: Mask
    reference: Mask
    grid: VoxelGrid
    prediction_file: Path
    reference_file: Path


def read_pair(
    predicted: Case, name: str, references: References, values: Mapping[int, int]
) -> Pair:
    """Read the prediction and the reference of a case. Different grids are an error.

    `values` is the meaning of the values in the prediction. Voxels that nobody judged are
    background in both label maps.
    """
    expected = references.cases[name]
    prediction_file, reference_file = label_file(predicted), label_file(expected)
    grid = open_image(expected.name, reference_file, as_label=True).grid
    reference = read_label(expected, references.values, grid)
    prediction = read_prediction(predicted, grid, values, beside=f"reference {reference_file}")
    if references.ignored is not None:
        is_unjudged = {value: int(value == references.ignored) for value in references.values}
        prediction[read_label(expected, is_unjudged, grid) > 0] = 0
    return Pair(predicted.name, prediction, reference, grid, prediction_file, reference_file)


def read_prediction(
    predicted: Case, grid: VoxelGrid, values: Mapping[int, int], *, beside: str
) -> Mask:
    """Read a predicted label map. It must lie on a grid; `beside` says whose grid that is."""
    file = label_file(predicted)
    difference = open_image(predicted.name, file, as_label=True).grid.differs_from(grid)
    if difference:
        message = f"the prediction is not on the grid of its {beside}: {difference}"
        remedy = "predict on the original images"
        raise DataError(Problem(predicted.name, str(file), message, remedy))
    return read_label(predicted, values, grid)


def label_file(case: Case) -> Path:
    assert case.label is not None, "cases are listed by their labels"
    return case.label
