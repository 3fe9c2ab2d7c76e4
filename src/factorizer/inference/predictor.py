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
from factorizer.data.missing import apply_incomplete, note_missing
from factorizer.data.nifti import describe_wrong_spacing, is_regular
from factorizer.data.preprocess import Prepared, prepare_case, preprocessing_of
from factorizer.errors import FactorizerError
from factorizer.inference.restore import restore_slabs
from factorizer.inference.sliding import Sliding, average, mirror
from factorizer.words import count

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
        channels: Sequence[str] | None = None,
    ) -> NDArray[np.uint8]:
        """Segment an image that is an array.

        Give `spacing_mm` or `affine`. A model that does not resample needs neither.

        Args:
            image: (C, *spatial), with the channels of the preset in their order, or those that
                `channels` names.
            spacing_mm: The size of a voxel along each axis.
            affine: How voxels lie in the patient, in mm, as in a NIfTI file.
            channels: The names of the image's channels, in its order. A model that was trained with
                lost channels (data.augmentation.channel_dropout) takes an image without some.

        Returns:
            Label values (*spatial). 0 is background.

        Example:
            >>> scan = nibabel.load("crop.nii.gz")  # doctest: +SKIP
            >>> image = np.asarray(scan.dataobj)[None]  # doctest: +SKIP
            >>> labels = predictor.predict(image, affine=scan.affine)  # doctest: +SKIP
        """
        image = np.asarray(image)
        data = self.preset.data
        given = data.channels if channels is None else self.check_channels(channels)
        self.check_image(image, given)
        present = [channel for channel in data.channels if channel in given]
        if present != list(given):
            image = image[[given.index(channel) for channel in present]]
        grid = VoxelGrid(tuple(image.shape[1:]), self.affine_of(spacing_mm, affine))
        volume = Volume(turn_to_canonical(image.astype(np.float32), grid), grid)
        missing = [channel for channel in data.channels if channel not in present]
        prepared = apply_incomplete(volume, preprocessing_of(data), present, data.channels)
        for problem in (*note_missing("image", missing), *prepared.warnings):
            warnings.warn(str(problem), stacklevel=2)
        return self.segment(prepared).labels

    def check_channels(self, channels: Sequence[str]) -> tuple[str, ...]:
        """The model's spelling of channels. Raise if it cannot take an image that has only them."""
        data = self.preset.data
        known = {channel.lower(): channel for channel in data.channels}
        given = tuple(known.get(channel.lower(), channel) for channel in channels)
        every = ", ".join(data.channels)
        if isinstance(channels, str) or not given or len(set(given)) < len(given):
            raise FactorizerError(f"channels is {channels!r}; name some of {every}, each once")
        unknown = [channel for channel in given if channel not in data.channels]
        if unknown:
            raise FactorizerError(f"channels names {', '.join(unknown)}; the model takes {every}")
        missing = [channel for channel in data.channels if channel not in given]
        if missing and not data.takes_missing_channels:
            raise FactorizerError(
                f"channels lacks {', '.join(missing)}, and this model was always trained with "
                f"{every}; give all of them"
            )
        return given

    def check_image(self, image: Array, channels: Sequence[str]) -> None:
        """Raise if the model cannot take an array with these channels."""
        data = self.preset.data
        dims = len(data.patch_size)
        if image.ndim != dims + 1 or len(image) != len(channels):
            whose = "this model takes" if len(channels) == len(data.channels) else "give"
            hint = "; name channels=[...] if some are missing"
            raise FactorizerError(
                f"the image has the shape {image.shape}; {whose} {dims}D images of "
                f"{count(len(channels), 'channel')} ({', '.join(channels)}), channels first"
                f"{hint if data.takes_missing_channels else ''}"
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
