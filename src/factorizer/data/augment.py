"""The seven random changes of a training patch, in the paper's order (appendix A), and elastic
deformation.

What is drawn is split from what is done: `draw_augmentation` takes all random numbers from a
generator, `apply_augmentation` is a plain function of them. MONAI's transforms do the work; its
random ones draw other distributions than the paper's (a standard deviation for a variance, a scale
per axis).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import radians

import numpy as np
import torch
from monai.transforms.intensity.array import AdjustContrast, GaussianSmooth
from monai.transforms.spatial.array import AffineGrid, Resample
from monai.transforms.utils import create_rotate, create_scale
from scipy.interpolate import BSpline
from torch import Tensor

from factorizer.config import Augmentation, Range


@dataclass(frozen=True)
class Changes:
    """What happens to one patch; None where it does not."""

    rotation_degrees: tuple[float, ...] | None = None  # per axis; one angle in 2D
    scale: float | None = None
    displacement_voxels: float | None = None  # of control points, at most, along each axis
    control_spacing_voxels: float = 1.0
    displacement_axes: tuple[int, ...] | None = None  # all
    displacement_seed: int = 0
    flips: tuple[bool, ...] = ()  # per axis
    noise_variance: float | None = None
    noise_seed: int = 0
    smoothing_sigmas: tuple[float | None, ...] = ()  # per channel
    intensity_factor: float | None = None
    intensity_offset: float | None = None
    gamma: float | None = None


def draw_augmentation(
    settings: Augmentation, *, channels: int, dims: int, generator: np.random.Generator
) -> Changes:
    """Draw each change with its probability and from its range."""

    def happens(probability: float) -> bool:
        return bool(generator.random() < probability)

    def uniform(ends: Range) -> float:
        return float(generator.uniform(*ends))

    affine = settings.affine
    moved = happens(affine.probability)
    angles = tuple(
        uniform(affine.rotation_degrees) * concerns(affine.axes, axis)
        for axis in range(3 if dims == 3 else 1)
    )
    scale = uniform(affine.scale)
    flips = tuple(
        happens(settings.flip.probability) and concerns(settings.flip.axes, axis)
        for axis in range(dims)
    )
    noise = (
        uniform(settings.gaussian_noise.variance)
        if happens(settings.gaussian_noise.probability)
        else None
    )
    seed = int(generator.integers(2**31))
    smoothing = settings.gaussian_smoothing
    sigmas = tuple(
        uniform(smoothing.sigma_voxels) if happens(smoothing.probability) else None
        for _ in range(channels)
    )
    factor = (
        uniform(settings.scale_intensity.factor)
        if happens(settings.scale_intensity.probability)
        else None
    )
    offset = (
        uniform(settings.shift_intensity.offset)
        if happens(settings.shift_intensity.probability)
        else None
    )
    gamma = (
        uniform(settings.adjust_contrast.gamma)
        if happens(settings.adjust_contrast.probability)
        else None
    )
    elastic = settings.elastic  # last, so that the paper's seven are the same with and without it
    displacement = uniform(elastic.displacement_voxels) if happens(elastic.probability) else None
    return Changes(
        rotation_degrees=angles if moved else None,
        scale=scale if moved else None,
        displacement_voxels=displacement,
        control_spacing_voxels=elastic.control_spacing_voxels,
        displacement_axes=elastic.axes,
        displacement_seed=int(generator.integers(2**31)),
        flips=flips,
        noise_variance=noise,
        noise_seed=seed,
        smoothing_sigmas=sigmas,
        intensity_factor=factor,
        intensity_offset=offset,
        gamma=gamma,
    )


def concerns(axes: Sequence[int] | None, axis: int) -> bool:
    return axes is None or axis in axes


def apply_augmentation(
    image: Tensor, label: Tensor, changes: Changes, spacing_mm: Sequence[float] | None = None
) -> tuple[Tensor, Tensor]:
    """Change a patch (C, *spatial) and its label map (*spatial); labels move by nearest neighbour.

    With `spacing_mm` of the voxels rotation and deformation are in space: they do not shear thick
    slices. What comes from outside the patch is zero.
    """
    if changes.rotation_degrees is not None or changes.displacement_voxels is not None:
        places = places_looked_up(label.shape, changes, spacing_mm)
        image = look_up(image, places, "bilinear")
        label = look_up(label[None].float(), places, "nearest")[0].to(label.dtype)
    axes = [axis for axis, flipped in enumerate(changes.flips) if flipped]
    image, label = image.flip([axis + 1 for axis in axes]), label.flip(axes)
    if changes.noise_variance is not None:
        generator = torch.Generator().manual_seed(changes.noise_seed)
        image = image + torch.randn(image.shape, generator=generator) * changes.noise_variance**0.5
    if any(sigma is not None for sigma in changes.smoothing_sigmas):
        smoothed = zip(image, changes.smoothing_sigmas, strict=True)
        image = torch.stack(
            [x if s is None else as_tensor(GaussianSmooth(s)(x[None]))[0] for x, s in smoothed]
        )
    if changes.intensity_factor is not None:
        image = image * changes.intensity_factor
    if changes.intensity_offset is not None:
        image = image + changes.intensity_offset
    if changes.gamma is not None:  # on intensities mapped from the patch's range to 0..1, and back
        image = as_tensor(AdjustContrast(changes.gamma)(image))
    return image.contiguous(), label.contiguous()


def places_looked_up(
    shape: Sequence[int], changes: Changes, spacing_mm: Sequence[float] | None
) -> Tensor:
    """Where each voxel of the changed patch comes from: voxels from the centre (dims + 1, *shape),
    homogeneous."""
    dims = len(shape)
    voxel = [s / min(spacing_mm) for s in spacing_mm] if spacing_mm else [1.0] * dims
    to_space, to_voxels = (
        create_scale(dims, s, backend="torch") for s in (voxel, [1 / v for v in voxel])
    )
    rotation = create_rotate(
        dims, [radians(a) for a in changes.rotation_degrees or [0.0] * dims], backend="torch"
    )
    scaling = create_scale(dims, [1 / (changes.scale or 1.0)] * dims, backend="torch")
    places, _ = AffineGrid(affine=to_voxels @ rotation @ scaling @ to_space, dtype=np.float32)(
        shape
    )
    places = as_tensor(places)
    if changes.displacement_voxels is not None:
        places[:dims] += displacement_field(shape, changes, voxel)
    return places


def displacement_field(shape: Sequence[int], changes: Changes, voxel: Sequence[float]) -> Tensor:
    """A free-form deformation (D. Rueckert et al. 1999): cubic B-splines between displaced control
    points.

    `voxel` is the side of a voxel per axis, over the smallest; the result (dims, *shape) is in
    voxels.
    """
    assert changes.displacement_voxels is not None
    bases = [
        spline_basis(n, changes.control_spacing_voxels / side)
        for n, side in zip(shape, voxel, strict=True)
    ]  # (n, control points) per axis
    generator = torch.Generator().manual_seed(changes.displacement_seed)
    field = (
        torch.rand(len(shape), *(basis.shape[1] for basis in bases), generator=generator) * 2 - 1
    )
    for basis in bases:
        field = torch.tensordot(
            field, basis, dims=([1], [1])
        )  # an axis in front is interpolated and comes last
    moves = [concerns(changes.displacement_axes, axis) / side for axis, side in enumerate(voxel)]
    return field * changes.displacement_voxels * torch.tensor(moves).view(-1, *[1] * len(shape))


def spline_basis(size: int, distance: float) -> Tensor:
    """Weights (size, control points) of control points `distance` voxels apart, one of them in the
    centre."""
    places = (np.arange(size) - (size - 1) / 2) / distance
    reach = int(places[-1]) + 2
    points = np.arange(-reach, reach + 1)
    cubic = BSpline.basis_element([-2, -1, 0, 1, 2], extrapolate=False)  # NaN where it is zero
    return torch.from_numpy(np.nan_to_num(cubic(places[:, None] - points))).float()


def look_up(x: Tensor, places: Tensor, mode: str) -> Tensor:
    return as_tensor(Resample(mode=mode, padding_mode="zeros", dtype=np.float32)(x, places))


def as_tensor(x: Tensor) -> Tensor:
    """A plain tensor from MONAI's, which carries metadata along."""
    return x.as_subclass(torch.Tensor)
