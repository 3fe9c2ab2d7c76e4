"""A trained model that segments images: preprocess, predict patch by patch, restore the grid."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
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
from factorizer.inference.sliding import Sliding, average, mirror

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Segmented:
    """A prediction on the grid of the file.

    It has label values (*spatial), and probabilities (regions, *spatial) if they were kept.
    """

    labels: Array
    probabilities: Array | None = None


class Predictor:
    """One network, or an ensemble of several, with the preset that they were trained with.

    Args:
        preset: How images are preprocessed, and what the outputs mean.
        networks: Trained networks. Their logits are averaged.
        device: Where the networks compute.
        mirrored: Average over mirror images too, along the axes that were mirrored in training.
        batch_size: How many patches are predicted at a time.

    Example:
        >>> predictor = factorizer.load("zoo:hippocampus", device="cpu")  # doctest: +SKIP
        >>> labels = predictor.predict(image, spacing_mm=(1.0, 1.0, 1.0))  # doctest: +SKIP
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
        self.preset = preset
        self.device = torch.device(device)
        self.mirrored = mirrored
        self.sliding = Sliding(
            preset.data.patch_size,
            preset.inference.overlap,
            preset.inference.blending,
            batch_size=batch_size,
            device=self.device,
        )
        self.networks = [network.to(self.device).eval() for network in networks]
        self.network = average(self.networks)
        if mirrored:
            axes = preset.data.mirrored_axes
            if not axes:
                raise FactorizerError(
                    "this model never saw mirror images in training; predict without them"
                )
            self.network = mirror(self.network, axes)

    def predict(
        self,
        image: Array,
        *,
        spacing_mm: Sequence[float] | None = None,
        affine: Array | None = None,
    ) -> NDArray[np.uint8]:
        """Segment an image that is an array.

        Give `spacing_mm` or `affine`. A model that does not resample needs neither.

        Args:
            image: (C, *spatial), with the channels of the preset in their order.
            spacing_mm: The size of a voxel along each axis.
            affine: How voxels lie in the patient, in mm, as in a NIfTI file.

        Returns:
            Label values (*spatial). 0 is background.

        Example:
            >>> scan = nibabel.load("crop.nii.gz")  # doctest: +SKIP
            >>> image = np.asarray(scan.dataobj)[None]  # doctest: +SKIP
            >>> labels = predictor.predict(image, affine=scan.affine)  # doctest: +SKIP
        """
        image = np.asarray(image)
        self.check_image(image)
        grid = VoxelGrid(tuple(image.shape[1:]), self.affine_of(spacing_mm, affine))
        volume = Volume(turn_to_canonical(image.astype(np.float32), grid), grid)
        data = self.preset.data
        prepared = preprocessing_of(data).apply(volume, channels=data.channels)
        for problem in prepared.warnings:
            warnings.warn(str(problem), stacklevel=2)
        return self.segment(prepared).labels

    def check_image(self, image: Array) -> None:
        """Raise if the model cannot take an array."""
        data = self.preset.data
        dims = len(data.patch_size)
        if image.ndim != dims + 1 or len(image) != self.preset.in_channels:
            raise FactorizerError(
                f"the image has the shape {image.shape}; this model takes {dims}D images of "
                f"{self.preset.in_channels} channels ({', '.join(data.channels)}), channels first"
            )
        if not np.isfinite(image).all():
            raise FactorizerError("some voxels of the image are NaN or infinite; fix the image")

    def affine_of(
        self, spacing_mm: Sequence[float] | None, affine: Array | None
    ) -> NDArray[np.float64]:
        """The affine that was given, or one with the spacing that was given."""
        data = self.preset.data
        dims = len(data.patch_size)
        if affine is not None and spacing_mm is not None:
            raise FactorizerError(
                "spacing_mm and affine are both given; leave out spacing_mm, which the affine gives"
            )
        if affine is None and spacing_mm is None and data.spacing_mm is not None:
            own = " x ".join(f"{size:g}" for size in data.spacing_mm)
            raise FactorizerError(
                f"this model works at {own} mm, and the size of the image's voxels is not given; "
                "give spacing_mm=(...) or affine=..."
            )
        if affine is None:
            affine = diagonal_affine(spacing_mm, dims)
        matrix = np.asarray(affine, np.float64)
        if matrix.shape != (dims + 1, dims + 1) or (dims == 3 and not is_regular(matrix)):
            raise FactorizerError(
                f"the affine is {matrix.tolist()}; give a regular {dims + 1} x {dims + 1} matrix"
            )
        sizes = np.linalg.norm(matrix[:dims, :dims], axis=0)
        wrong = describe_wrong_spacing(sizes.tolist())
        if wrong:
            raise FactorizerError(f"{wrong}; give sizes in mm")
        return matrix

    def prepare(self, case: Case, channels: Sequence[str]) -> Prepared:
        """Read and preprocess a case. `channels` are its names of the preset's channels."""
        return prepare_case(case, preprocessing_of(self.preset.data), channels=channels)

    def count_patches(self, prepared: Prepared) -> int:
        """How many patches `segment` predicts for an image."""
        return self.sliding.count(prepared.image.shape[1:])

    def segment(
        self,
        prepared: Prepared,
        *,
        keep_probabilities: bool = False,
        advance: Callable[[], object] = lambda: None,
        logits: Iterable[Tensor] | None = None,
    ) -> Segmented:
        """Segment a case that was read and preprocessed.

        Args:
            prepared: The case, as `prepare` returns it.
            keep_probabilities: Return the probabilities of all regions too. Without it they exist
                slab by slab only, which takes less memory.
            advance: Called after each patch.
            logits: The slabs of this image, if the networks were applied to it before.

        Returns:
            Label values on the grid of the file, and probabilities if they are kept.

        Example:
            >>> prepared = predictor.prepare(case, channels)  # doctest: +SKIP
            >>> labels = predictor.segment(prepared).labels  # doctest: +SKIP
        """
        grid = prepared.frame.grid
        shape = canonical_grid(grid).shape
        labels = np.zeros(shape, np.uint8)
        kept = None
        if keep_probabilities:
            kept = np.zeros((self.preset.out_channels, *shape), np.float32)
        if logits is None:
            image = torch.from_numpy(prepared.image)
            logits = self.sliding.slabs(self.network, image, advance)
        targets, threshold = self.preset.data.targets, self.preset.inference.threshold
        first = 0
        for slab in restore_slabs(probabilities_of(prepared.name, logits), prepared.frame):
            rows = slice(first, first + slab.shape[1])
            first = rows.stop
            probabilities = slab.numpy()
            labels[rows] = targets.label_map(probabilities, threshold=threshold)
            if kept is not None:
                kept[:, rows] = probabilities
        on_grid = np.ascontiguousarray(restore_orientation(labels[None], grid)[0])
        if kept is not None:
            kept = np.ascontiguousarray(restore_orientation(kept, grid))
        return Segmented(on_grid, kept)


def diagonal_affine(spacing_mm: Sequence[float] | None, dims: int) -> NDArray[np.float64]:
    """An affine without rotation. Voxels are 1 mm if no spacing is given."""
    spacing = (1.0,) * dims if spacing_mm is None else tuple(map(float, spacing_mm))
    if len(spacing) != dims:
        raise FactorizerError(f"spacing_mm is {spacing}; give {dims} numbers")
    return np.diag([*spacing, 1.0])


def probabilities_of(name: str, logits: Iterable[Tensor]) -> Iterable[Tensor]:
    """Slabs of logits -> slabs of probabilities. NaN is an error, as it would become background."""
    for slab in logits:
        if not slab.isfinite().all():
            message = "the network's output is NaN or infinite"
            remedy = "look at the image's intensities, and at the model's weights"
            raise DataError(Problem(name, "", message, remedy))
        yield slab.sigmoid()
