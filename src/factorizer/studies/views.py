"""`factorizer explain`: the pictures of layers on the grid of the image, and how they agree with
regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from factorizer.data.cases import Case
from factorizer.data.preprocess import Prepared
from factorizer.inference.predictor import Predictor
from factorizer.inference.restore import restore_slabs
from factorizer.inspection.alignment import Alignment, align
from factorizer.inspection.components import Layer, Viewer

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class View:
    """A layer's pictures (pictures, *canonical shape of the image), and F (heads, E, R) where it
    factorizes."""

    layer: int
    pictures: Array
    factors: Array | None


def view_layers(
    predictor: Predictor,
    prepared: Prepared,
    layers: Sequence[Layer],
    advance: Callable[[], object] = lambda: None,
) -> Iterator[View]:
    """One layer after the other, as the pictures of all would not fit into memory."""
    for layer in layers:
        viewer = Viewer(predictor.networks[0], [layer])
        slabs = predictor.sliding.slabs(viewer, torch.from_numpy(prepared.image), advance)
        pictures = torch.cat(list(restore_slabs(slabs, prepared.frame)), dim=1).numpy()
        factors = (
            viewer.mean_factors(layer.number).numpy() if viewer.factors[layer.number] else None
        )
        yield View(layer.number, pictures, factors)


def align_view(
    case: Case, view: View, image: Array, masks: Array, regions: Sequence[str]
) -> list[Alignment]:
    """Every picture against every region, inside the image (C, *spatial); masks are (regions,
    *spatial)."""
    inside = np.any(image, axis=0)
    wanted = masks[:, inside]
    rows = []
    for number, picture in enumerate(view.pictures, start=1):
        for region, numbers in zip(regions, align(picture[inside], wanted), strict=True):
            rows.append(Alignment(case.name, view.layer, number, region, *numbers))
    return rows
