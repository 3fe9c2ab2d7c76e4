"""A trained model that segments images: preprocessing, windows, and labels on the grid of the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from factorizer.config import Preset
from factorizer.data.cases import Case
from factorizer.data.images import Volume, VoxelGrid, canonical_grid, is_regular, restore_orientation, turn_to_canonical
from factorizer.data.preprocess import Prepared, prepare_case, preprocessing_of
from factorizer.data.regions import regions_to_labels
from factorizer.inference.restore import restore_slabs
from factorizer.inference.sliding import Advance, Sliding, average, mirror

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Segmented:
    """A prediction on the grid of the file: label values, and probabilities (regions, *shape) if they were kept."""

    labels: Array
    probabilities: Array | None = None


class Predictor:
    """One network, or several whose logits are averaged, and the preset they were trained with.

    `mirrored` averages over mirror images too, along the axes that were mirrored in training; `batch_size` is the
    number of windows at a time.
    """

    def __init__(
        self,
        preset: Preset,
        networks: Sequence[nn.Module],
        *,
        device: torch.device | str = "cpu",
        mirrored: bool = False,
        batch_size: int = 1,
    ) -> None:
        self.preset, self.device = preset, torch.device(device)
        inference = preset.inference
        self.sliding = Sliding(
            preset.data.patch_size, inference.overlap, inference.blending, batch_size=batch_size, device=self.device
        )
        self.networks = [network.to(self.device).eval() for network in networks]
        self.network = average(self.networks)
        self.mirrored = mirrored
        if mirrored:
            axes = preset.data.mirrored_axes
            if not axes:
                raise ValueError("this model never saw mirror images in training; predict without them (no --tta)")
            self.network = mirror(self.network, axes)

    def predict(
        self, image: Array, *, spacing_mm: Sequence[float] | None = None, affine: Array | None = None
    ) -> NDArray[np.uint8]:
        """An image (C, *spatial), channels as in the preset -> label values (*spatial).

        Say how large voxels are by `spacing_mm`, or how they lie in the patient by `affine`; 1 mm without.
        """
        dims = len(self.preset.data.patch_size)
        image = np.asarray(image)
        if image.ndim != dims + 1 or len(image) != self.preset.in_channels:
            channels = ", ".join(self.preset.data.channels)
            raise ValueError(
                f"the image has the shape {image.shape}; this model takes {dims}D images of "
                f"{self.preset.in_channels} channels ({channels}), channels first"
            )
        if not np.isfinite(image).all():
            raise ValueError("some voxels of the image are NaN or infinite; mend the image")
        if affine is not None and spacing_mm is not None:
            raise ValueError(
                "spacing_mm and affine are both given; the affine says how large voxels are, leave the other"
            )
        if affine is None:
            spacing = (1.0,) * dims if spacing_mm is None else tuple(float(s) for s in spacing_mm)
            if len(spacing) != dims:
                raise ValueError(f"spacing_mm is {spacing}; give {dims} numbers")
            affine = np.diag([*spacing, 1.0])
        grid = VoxelGrid(tuple(image.shape[1:]), np.asarray(affine, np.float64))
        if grid.affine.shape != (dims + 1, dims + 1) or (dims == 3 and not is_regular(grid.affine)):
            raise ValueError(f"the affine is {grid.affine.tolist()}; give a regular {dims + 1} x {dims + 1} matrix")
        volume = Volume(turn_to_canonical(image.astype(np.float32), grid), grid)
        return self.segment(preprocessing_of(self.preset.data).apply(volume)).labels

    def prepare(self, case: Case, channels: Sequence[str]) -> Prepared:
        """Read and preprocess a case; `channels` are its names of the preset's."""
        return prepare_case(case, preprocessing_of(self.preset.data), channels=channels)

    def windows(self, prepared: Prepared) -> int:
        """How often `advance` is called for an image."""
        return self.sliding.count(prepared.image.shape[1:])

    def segment(
        self, prepared: Prepared, *, keep_probabilities: bool = False, advance: Advance = lambda: None
    ) -> Segmented:
        """Label values on the grid of the file. Probabilities are there slab by slab only, unless they are kept."""
        data, threshold, grid = self.preset.data, self.preset.inference.threshold, prepared.frame.grid
        shape = canonical_grid(grid).shape
        labels = np.zeros(shape, np.uint8)
        kept = np.zeros((self.preset.out_channels, *shape), np.float32) if keep_probabilities else None
        row = 0
        slabs = self.sliding.slabs(self.network, torch.from_numpy(prepared.image), advance)
        for slab in restore_slabs((slab.sigmoid() for slab in slabs), prepared.frame):
            rows = slice(row, row := row + slab.shape[1])
            probabilities = slab.numpy()
            labels[rows] = regions_to_labels(probabilities, data.labels, data.regions, threshold=threshold)
            if kept is not None:
                kept[:, rows] = probabilities
        turned = np.ascontiguousarray(restore_orientation(labels[None], grid)[0])
        return Segmented(turned, None if kept is None else np.ascontiguousarray(restore_orientation(kept, grid)))
