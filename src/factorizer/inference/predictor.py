"""A trained model that segments images: preprocessing, windows, and labels on the grid of the
file."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from factorizer.config import Preset
from factorizer.data.cases import Case, DataError, Problem
from factorizer.data.images import (
    Volume,
    VoxelGrid,
    canonical_grid,
    restore_orientation,
    turn_to_canonical,
)
from factorizer.data.nifti import describe_wrong_spacing, is_regular
from factorizer.data.preprocess import Prepared, prepare_case, preprocessing_of
from factorizer.errors import FactorizerError
from factorizer.inference.restore import restore_slabs
from factorizer.inference.sliding import Advance, Sliding, average, mirror

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Segmented:
    """A prediction on the grid of the file: label values, and probabilities (regions, *shape) if
    they were kept."""

    labels: Array
    probabilities: Array | None = None


class Predictor:
    """One network, or several whose logits are averaged, and the preset they were trained with.

    `mirrored` averages over mirror images too, along the axes that were mirrored in training;
    `batch_size` is the number of windows at a time.
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
            preset.data.patch_size,
            inference.overlap,
            inference.blending,
            batch_size=batch_size,
            device=self.device,
        )
        self.networks = [network.to(self.device).eval() for network in networks]
        self.network = average(self.networks)
        self.mirrored = mirrored
        if mirrored:
            axes = preset.data.mirrored_axes
            if not axes:
                raise FactorizerError(
                    "this model never saw mirror images in training; predict without them (no "
                    "--tta)"
                )
            self.network = mirror(self.network, axes)

    def predict(
        self,
        image: Array,
        *,
        spacing_mm: Sequence[float] | None = None,
        affine: Array | None = None,
    ) -> NDArray[np.uint8]:
        """An image (C, *spatial), channels as in the preset -> label values (*spatial).

        Say how large voxels are by `spacing_mm`, or how they lie in the patient by `affine`, in mm;
        only a model without a spacing of its own does without both.
        """
        dims = len(self.preset.data.patch_size)
        image = np.asarray(image)
        if image.ndim != dims + 1 or len(image) != self.preset.in_channels:
            channels = ", ".join(self.preset.data.channels)
            raise FactorizerError(
                f"the image has the shape {image.shape}; this model takes {dims}D images of "
                f"{self.preset.in_channels} channels ({channels}), channels first"
            )
        if not np.isfinite(image).all():
            raise FactorizerError("some voxels of the image are NaN or infinite; fix the image")
        grid = VoxelGrid(tuple(image.shape[1:]), self.affine_of(spacing_mm, affine))
        volume = Volume(turn_to_canonical(image.astype(np.float32), grid), grid)
        prepared = preprocessing_of(self.preset.data).apply(
            volume, channels=self.preset.data.channels
        )
        for problem in prepared.warnings:
            warnings.warn(str(problem), stacklevel=2)
        return self.segment(prepared).labels

    def affine_of(
        self, spacing_mm: Sequence[float] | None, affine: Array | None
    ) -> NDArray[np.float64]:
        """The affine given, or that of the spacing; an error where neither or both are there, or
        they cannot be."""
        dims, own = len(self.preset.data.patch_size), self.preset.data.spacing_mm
        if affine is not None and spacing_mm is not None:
            raise FactorizerError(
                "spacing_mm and affine are both given; the affine says how large voxels are, leave "
                "the other"
            )
        if affine is None and spacing_mm is None and own is not None:
            raise FactorizerError(
                f"this model works at {' x '.join(f'{size:g}' for size in own)} mm, and the size "
                "of the image's voxels is not given; give spacing_mm=(...) or affine=..."
            )
        if affine is None:
            spacing = (1.0,) * dims if spacing_mm is None else tuple(float(s) for s in spacing_mm)
            if len(spacing) != dims:
                raise FactorizerError(f"spacing_mm is {spacing}; give {dims} numbers")
            affine = np.diag([*spacing, 1.0])
        matrix = np.asarray(affine, np.float64)
        if matrix.shape != (dims + 1, dims + 1) or (dims == 3 and not is_regular(matrix)):
            raise FactorizerError(
                f"the affine is {matrix.tolist()}; give a regular {dims + 1} x {dims + 1} matrix"
            )
        wrong = describe_wrong_spacing(np.linalg.norm(matrix[:dims, :dims], axis=0).tolist())
        if wrong:
            raise FactorizerError(f"{wrong}; give sizes in mm")
        return matrix

    def prepare(self, case: Case, channels: Sequence[str]) -> Prepared:
        """Read and preprocess a case; `channels` are its names of the preset's."""
        return prepare_case(case, preprocessing_of(self.preset.data), channels=channels)

    def windows(self, prepared: Prepared) -> int:
        """How often `advance` is called for an image."""
        return self.sliding.count(prepared.image.shape[1:])

    def segment(
        self,
        prepared: Prepared,
        *,
        keep_probabilities: bool = False,
        advance: Advance = lambda: None,
        logits: Iterable[Tensor] | None = None,
    ) -> Segmented:
        """Label values on the grid of the file. Probabilities are there slab by slab only, unless
        they are kept.

        `logits` are the slabs of this image where the networks were applied to it before.
        """
        data, threshold, grid = (
            self.preset.data,
            self.preset.inference.threshold,
            prepared.frame.grid,
        )
        shape = canonical_grid(grid).shape
        labels = np.zeros(shape, np.uint8)
        kept = (
            np.zeros((self.preset.out_channels, *shape), np.float32) if keep_probabilities else None
        )
        row = 0
        slabs = logits or self.sliding.slabs(
            self.network, torch.from_numpy(prepared.image), advance
        )
        finite = (require_finite(prepared.name, slab) for slab in slabs)
        for slab in restore_slabs((slab.sigmoid() for slab in finite), prepared.frame):
            rows = slice(row, row := row + slab.shape[1])
            probabilities = slab.numpy()
            labels[rows] = data.targets.label_map(probabilities, threshold=threshold)
            if kept is not None:
                kept[:, rows] = probabilities
        turned = np.ascontiguousarray(restore_orientation(labels[None], grid)[0])
        return Segmented(
            turned, None if kept is None else np.ascontiguousarray(restore_orientation(kept, grid))
        )


def require_finite(name: str, outputs: Tensor) -> Tensor:
    """A network's outputs, if they are numbers: NaN would silently become background."""
    if outputs.isfinite().all():
        return outputs
    message = "the network's output is NaN or infinite"
    raise DataError(
        Problem(name, "", message, "look at the image's intensities, and at the model's weights")
    )
