"""The seven random changes of a training patch, in the paper's order (appendix A).

What is drawn is split from what is done: `draw_augmentation` takes all random numbers from a generator,
`apply_augmentation` is a plain function of them. MONAI's transforms do the work; its random ones draw other
distributions than the paper's (a standard deviation for a variance, a scale per axis).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import radians

import numpy as np
import torch
from monai.transforms.intensity.array import AdjustContrast, GaussianSmooth
from monai.transforms.spatial.array import Affine as MonaiAffine
from monai.transforms.utils import create_rotate, create_scale
from torch import Tensor

from factorizer.config import Augmentation, Range


@dataclass(frozen=True)
class Changes:
    """What happens to one patch; None where it does not."""

    rotation_degrees: tuple[float, ...] | None = None  # per axis; one angle in 2D
    scale: float | None = None
    flips: tuple[bool, ...] = ()  # per axis
    noise_variance: float | None = None
    noise_seed: int = 0
    smoothing_sigmas: tuple[float | None, ...] = ()  # per channel
    intensity_factor: float | None = None
    intensity_offset: float | None = None
    gamma: float | None = None


def draw_augmentation(settings: Augmentation, *, channels: int, dims: int, generator: np.random.Generator) -> Changes:
    """Draw each change with its probability and from its range."""

    def happens(probability: float) -> bool:
        return bool(generator.random() < probability)

    def uniform(ends: Range) -> float:
        return float(generator.uniform(*ends))

    moved = happens(settings.affine.probability)
    angles = tuple(uniform(settings.affine.rotation_degrees) for _ in range(3 if dims == 3 else 1))
    scale = uniform(settings.affine.scale)
    axes = range(dims) if settings.flip.axes is None else settings.flip.axes
    flips = tuple(happens(settings.flip.probability) and axis in axes for axis in range(dims))
    noise = uniform(settings.gaussian_noise.variance) if happens(settings.gaussian_noise.probability) else None
    seed = int(generator.integers(2**31))
    smoothing = settings.gaussian_smoothing
    sigmas = tuple(uniform(smoothing.sigma_voxels) if happens(smoothing.probability) else None for _ in range(channels))
    factor = uniform(settings.scale_intensity.factor) if happens(settings.scale_intensity.probability) else None
    offset = uniform(settings.shift_intensity.offset) if happens(settings.shift_intensity.probability) else None
    gamma = uniform(settings.adjust_contrast.gamma) if happens(settings.adjust_contrast.probability) else None
    return Changes(
        rotation_degrees=angles if moved else None,
        scale=scale if moved else None,
        flips=flips,
        noise_variance=noise,
        noise_seed=seed,
        smoothing_sigmas=sigmas,
        intensity_factor=factor,
        intensity_offset=offset,
        gamma=gamma,
    )


def apply_augmentation(
    image: Tensor, label: Tensor, changes: Changes, spacing_mm: Sequence[float] | None = None
) -> tuple[Tensor, Tensor]:
    """Change a patch (C, *spatial) and its label map (*spatial); labels move by nearest neighbour.

    With `spacing_mm` of the voxels rotation is in space: it turns bodies and does not shear thick slices.
    """
    if changes.rotation_degrees is not None:
        image = move(image, changes, "bilinear", spacing_mm)
        label = move(label[None].float(), changes, "nearest", spacing_mm)[0].to(label.dtype)
    axes = [axis for axis, flipped in enumerate(changes.flips) if flipped]
    image, label = image.flip([axis + 1 for axis in axes]), label.flip(axes)
    if changes.noise_variance is not None:
        generator = torch.Generator().manual_seed(changes.noise_seed)
        image = image + torch.randn(image.shape, generator=generator) * changes.noise_variance**0.5
    if any(sigma is not None for sigma in changes.smoothing_sigmas):
        smoothed = zip(image, changes.smoothing_sigmas, strict=True)
        image = torch.stack([x if s is None else as_tensor(GaussianSmooth(s)(x[None]))[0] for x, s in smoothed])
    if changes.intensity_factor is not None:
        image = image * changes.intensity_factor
    if changes.intensity_offset is not None:
        image = image + changes.intensity_offset
    if changes.gamma is not None:  # on intensities mapped from the patch's range to 0..1, and back
        image = as_tensor(AdjustContrast(changes.gamma)(image))
    return image.contiguous(), label.contiguous()


def move(x: Tensor, changes: Changes, mode: str, spacing_mm: Sequence[float] | None) -> Tensor:
    """Rotate about the centre and scale (C, *spatial); what comes from outside is zero."""
    assert changes.rotation_degrees is not None
    assert changes.scale is not None
    dims = x.ndim - 1
    angles = [radians(angle) for angle in changes.rotation_degrees]
    voxel = [s / min(spacing_mm) for s in spacing_mm] if spacing_mm else [1.0] * dims
    to_space, to_voxels = (create_scale(dims, s, backend="torch") for s in (voxel, [1 / v for v in voxel]))
    rotation = create_rotate(dims, angles, backend="torch")
    scaling = create_scale(dims, [1 / changes.scale] * dims, backend="torch")  # of the grid that is looked up
    where = to_voxels @ rotation @ scaling @ to_space
    return as_tensor(MonaiAffine(affine=where, mode=mode, padding_mode="zeros", image_only=True)(x))


def as_tensor(x: Tensor) -> Tensor:
    """A plain tensor from MONAI's, which carries metadata along."""
    return x.as_subclass(torch.Tensor)
