"""The components of layers on the grid of an image: their agreement with regions, their files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from factorizer.data.cases import Case
from factorizer.data.images import VoxelGrid, restore_orientation
from factorizer.data.outputs import encode_nifti, first_file
from factorizer.data.preprocess import Prepared
from factorizer.files import csv_text, write_atomically
from factorizer.inference.predictor import Predictor
from factorizer.inference.restore import restore_slabs
from factorizer.inspection.alignment import Alignment, align
from factorizer.inspection.components import Layer, Viewer

Array = NDArray[Any]
FACTOR_COLUMNS = ("picture", "head", "term", "channel", "value")


@dataclass(frozen=True, eq=False)
class View:
    """The components of a layer (components, *shape of the image in canonical orientation).

    `factors` is F (heads, E, R), or None if the layer does not factorize.
    """

    layer: int
    components: Array
    factors: Array | None


def view_layers(
    predictor: Predictor, prepared: Prepared, layers: Sequence[Layer]
) -> Iterator[View]:
    """One layer after the other, because the components of all layers may not fit into memory."""
    image = torch.from_numpy(prepared.image)
    for layer in layers:
        viewer = Viewer(predictor.networks[0], [layer])
        slabs = predictor.sliding.slabs(viewer, image)
        components = torch.cat(list(restore_slabs(slabs, prepared.frame)), dim=1).numpy()
        factorizes = bool(viewer.factors[layer.number])
        factors = viewer.mean_factors(layer.number).numpy() if factorizes else None
        yield View(layer.number, components, factors)


def align_view(
    case: str, view: View, image: Array, masks: Array, regions: Sequence[str]
) -> list[Alignment]:
    """Every component against every region.

    Only voxels inside the image (C, *spatial) count. The masks are (regions, *spatial).
    """
    inside = np.any(image, axis=0)
    wanted = masks[:, inside]
    rows = []
    for number, component in enumerate(view.components, start=1):
        for region, numbers in zip(regions, align(component[inside], wanted), strict=True):
            rows.append(Alignment(case, view.layer, number, region, *numbers))
    return rows


def write_components(folder: Path, name: str, view: View, case: Case, grid: VoxelGrid) -> Path:
    """Write components as a NIfTI file with a component per volume, or as .npz for a 2D image."""
    turned = restore_orientation(view.components, grid)
    channels_last = np.moveaxis(turned, 0, -1).astype(np.float32)
    if len(grid.shape) == 3:
        file = folder / f"{name}.nii.gz"
        write_atomically(file, encode_nifti(channels_last, first_file(case)))
    else:
        file = folder / f"{name}.npz"
        buffer = io.BytesIO()
        np.savez_compressed(buffer, pictures=channels_last)
        write_atomically(file, buffer.getvalue())
    return file


def write_factors(folder: Path, name: str, factors: Array) -> Path:
    """Write F (heads, E, R) as a table with the number of the component that each column makes."""
    terms = factors.shape[-1]
    lines = []
    for (head, channel, term), value in np.ndenumerate(factors):
        component = head * terms + term + 1
        lines.append((component, head + 1, term + 1, channel + 1, f"{value:.6g}"))
    file = folder / f"{name}-factors.csv"
    write_atomically(file, csv_text(FACTOR_COLUMNS, lines))
    return file
