"""The random changes of a training patch: the paper's seven in its order (App. A), and four more.

Drawing is separate from doing. `draw_augmentation` takes all random numbers from a generator, and
`apply_augmentation` is a plain function of them. MONAI's transforms do the work. Its random
transforms are not used, because they draw from other distributions than the paper: a standard
deviation instead of a variance, and one scale per axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import radians

import numpy as np
import torch
import torch.nn.functional as F
from monai.transforms.intensity.array import AdjustContrast, GaussianSmooth
from monai.transforms.spatial.array import AffineGrid, Resample
from monai.transforms.utils import create_rotate, create_scale
from scipy.interpolate import BSpline
from torch import Tensor

from factorizer.config import Augmentation, Range


@dataclass(frozen=True)
class Changes:
    """What happens to one patch. None means that a change does not happen."""

    rotation_degrees: tuple[float, ...] | None = None  # per axis; one angle in 2D
    scale: float | None = None
    displacement_voxels: float | None = None  # largest, of a control point along an axis
    control_spacing_voxels: float = 1.0
    displacement_axes: tuple[int, ...] | None = None  # None means all
    displacement_seed: int = 0
    flips: tuple[bool, ...] = ()  # per axis
    noise_variance: float | None = None
    noise_seed: int = 0
    smoothing_sigmas: tuple[float | None, ...] = ()  # per channel
    intensity_factor: float | None = None
    intensity_offset: float | None = None
    gamma: float | None = None
    low_resolution_scales: tuple[float | None, ...] = ()  # per channel
    inverted_gamma: float | None = None
    lost_channel: int | None = None


def draw_augmentation(
    augmentation: Augmentation, *, channels: int, dims: int, generator: np.random.Generator
) -> Changes:
    """Draw for each change whether it happens, and how strong it is.

    The paper's seven changes are drawn first, so they are the same with and without the others.
    """
    draw = Draw(generator)
    affine, flip = augmentation.affine, augmentation.flip
    moves = draw.happens(affine.probability)
    angles = []
    for axis in range(3 if dims == 3 else 1):
        angles.append(draw.uniform(affine.rotation_degrees) * concerns(affine.axes, axis))
    scale = draw.uniform(affine.scale)
    flips = []
    for axis in range(dims):
        flips.append(draw.happens(flip.probability) and concerns(flip.axes, axis))
    noise = draw.maybe(
        augmentation.gaussian_noise.probability, augmentation.gaussian_noise.variance
    )
    noise_seed = draw.seed()
    smoothing = augmentation.gaussian_smoothing
    sigmas = []
    for _ in range(channels):
        sigmas.append(draw.maybe(smoothing.probability, smoothing.sigma_voxels))
    factor = draw.maybe(
        augmentation.scale_intensity.probability, augmentation.scale_intensity.factor
    )
    offset = draw.maybe(
        augmentation.shift_intensity.probability, augmentation.shift_intensity.offset
    )
    gamma = draw.maybe(augmentation.adjust_contrast.probability, augmentation.adjust_contrast.gamma)
    elastic = augmentation.elastic
    displacement = draw.maybe(elastic.probability, elastic.displacement_voxels)
    displacement_seed = draw.seed()
    scales = []
    for _ in range(channels):
        scales.append(
            draw.maybe(augmentation.low_resolution.probability, augmentation.low_resolution.scale)
        )
    inverted = augmentation.inverted_contrast
    inverted_gamma = draw.maybe(inverted.probability, inverted.gamma)
    loses_channel = draw.happens(augmentation.channel_dropout.probability)
    lost_channel = draw.index(channels)
    return Changes(
        rotation_degrees=tuple(angles) if moves else None,
        scale=scale if moves else None,
        displacement_voxels=displacement,
        control_spacing_voxels=elastic.control_spacing_voxels,
        displacement_axes=elastic.axes,
        displacement_seed=displacement_seed,
        flips=tuple(flips),
        noise_variance=noise,
        noise_seed=noise_seed,
        smoothing_sigmas=tuple(sigmas),
        intensity_factor=factor,
        intensity_offset=offset,
        gamma=gamma,
        low_resolution_scales=tuple(scales),
        inverted_gamma=inverted_gamma,
        lost_channel=lost_channel if loses_channel else None,
    )


@dataclass(frozen=True)
class Draw:
    """Random numbers for changes."""

    generator: np.random.Generator

    def happens(self, probability: float) -> bool:
        return bool(self.generator.random() < probability)

    def uniform(self, ends: Range) -> float:
        return float(self.generator.uniform(*ends))

    def maybe(self, probability: float, ends: Range) -> float | None:
        """A number of the range with this probability, otherwise None."""
        return self.uniform(ends) if self.happens(probability) else None

    def seed(self) -> int:
        return self.index(2**31)

    def index(self, count: int) -> int:
        return int(self.generator.integers(count))


def concerns(axes: Sequence[int] | None, axis: int) -> bool:
    return axes is None or axis in axes


def apply_augmentation(
    image: Tensor, label: Tensor, changes: Changes, spacing_mm: Sequence[float] | None = None
) -> tuple[Tensor, Tensor]:
    """Change a patch (C, *spatial) and its label map (*spatial). Labels move by nearest neighbour.

    `spacing_mm` is the size of a voxel. With it, rotation and deformation happen in space and do
    not shear thick slices. Voxels that come from outside the patch are zero.
    """
    if changes.rotation_degrees is not None or changes.displacement_voxels is not None:
        places = places_looked_up(label.shape, changes, spacing_mm)
        image = look_up(image, places, "bilinear")
        label = look_up(label[None].float(), places, "nearest")[0].to(label.dtype)
    axes = [axis for axis, flipped in enumerate(changes.flips) if flipped]
    image = image.flip([axis + 1 for axis in axes])
    label = label.flip(axes)
    return change_intensities(image, changes).contiguous(), label.contiguous()


def change_intensities(image: Tensor, changes: Changes) -> Tensor:
    """Noise, smoothing, factor, offset, contrast, resolution and a lost channel of a patch
    (C, *spatial)."""
    if changes.noise_variance is not None:
        generator = torch.Generator().manual_seed(changes.noise_seed)
        image = image + torch.randn(image.shape, generator=generator) * changes.noise_variance**0.5
    if any(sigma is not None for sigma in changes.smoothing_sigmas):
        image = smooth_channels(image, changes.smoothing_sigmas)
    if changes.intensity_factor is not None:
        image = image * changes.intensity_factor
    if changes.intensity_offset is not None:
        image = image + changes.intensity_offset
    if changes.gamma is not None:  # it acts on the patch's range mapped to 0..1
        image = as_tensor(AdjustContrast(changes.gamma)(image))
    if any(scale is not None for scale in changes.low_resolution_scales):
        image = coarsen_channels(image, changes.low_resolution_scales)
    if changes.inverted_gamma is not None:
        image = as_tensor(AdjustContrast(changes.inverted_gamma, invert_image=True)(image))
    if changes.lost_channel is not None:
        image = image.clone()
        image[changes.lost_channel] = 0
    return image


def coarsen_channels(image: Tensor, scales: Sequence[float | None]) -> Tensor:
    """(C, *spatial) with each channel made smaller by its scale and larger again.

    None leaves a channel as it is. The smaller image has only the nearest voxels, and linear
    interpolation makes it larger, as when thick slices are resampled.
    """
    size = image.shape[1:]
    mode = {2: "bilinear", 3: "trilinear"}[len(size)]
    coarsened = []
    for channel, scale in zip(image, scales, strict=True):
        if scale is not None:
            smaller = [max(1, round(scale * voxels)) for voxels in size]
            few = F.interpolate(channel[None, None], smaller, mode="nearest-exact")
            channel = F.interpolate(few, size, mode=mode, align_corners=False)[0, 0]
        coarsened.append(channel)
    return torch.stack(coarsened)


def smooth_channels(image: Tensor, sigmas: Sequence[float | None]) -> Tensor:
    """(C, *spatial) with each channel blurred by its sigma; None leaves a channel as it is."""
    smoothed = []
    for channel, sigma in zip(image, sigmas, strict=True):
        if sigma is not None:
            channel = as_tensor(GaussianSmooth(sigma)(channel[None]))[0]
        smoothed.append(channel)
    return torch.stack(smoothed)


def places_looked_up(
    shape: Sequence[int], changes: Changes, spacing_mm: Sequence[float] | None
) -> Tensor:
    """Where each voxel of the changed patch comes from.

    The result (dims + 1, *shape) is in homogeneous coordinates: voxels from the centre.
    """
    dims = len(shape)
    sides = [1.0] * dims  # of a voxel, over the smallest
    if spacing_mm:
        sides = [side / min(spacing_mm) for side in spacing_mm]
    angles = [radians(angle) for angle in changes.rotation_degrees or [0.0] * dims]
    to_space = create_scale(dims, sides, backend="torch")
    scaling = create_scale(dims, [1 / (changes.scale or 1.0)] * dims, backend="torch")
    rotation = create_rotate(dims, angles, backend="torch")
    to_voxels = create_scale(dims, [1 / side for side in sides], backend="torch")
    affine = to_voxels @ rotation @ scaling @ to_space
    places = as_tensor(AffineGrid(affine=affine, dtype=np.float32)(shape)[0])
    if changes.displacement_voxels is not None:
        places[:dims] += displacement_field(shape, changes, sides)
    return places


def displacement_field(shape: Sequence[int], changes: Changes, sides: Sequence[float]) -> Tensor:
    """A free-form deformation (D. Rueckert et al. 1999): cubic B-splines between displaced control
    points.

    `sides` are the sides of a voxel over the smallest. The result (dims, *shape) is in voxels.
    """
    assert changes.displacement_voxels is not None
    bases = []  # per axis (size, control points)
    for size, side in zip(shape, sides, strict=True):
        bases.append(spline_basis(size, changes.control_spacing_voxels / side))
    points = [basis.shape[1] for basis in bases]
    generator = torch.Generator().manual_seed(changes.displacement_seed)
    field = torch.rand(len(shape), *points, generator=generator) * 2 - 1
    for basis in bases:  # interpolates the first spatial axis, which becomes the last
        field = torch.tensordot(field, basis, dims=([1], [1]))
    moves = [concerns(changes.displacement_axes, axis) / side for axis, side in enumerate(sides)]
    return field * changes.displacement_voxels * torch.tensor(moves).view(-1, *[1] * len(shape))


def spline_basis(size: int, distance: float) -> Tensor:
    """Weights (size, control points) of control points `distance` voxels apart.

    One control point is in the centre.
    """
    places = (np.arange(size) - (size - 1) / 2) / distance
    reach = int(places[-1]) + 2
    points = np.arange(-reach, reach + 1)
    cubic = BSpline.basis_element(
        [-2, -1, 0, 1, 2], extrapolate=False
    )  # NaN outside of its support
    return torch.from_numpy(np.nan_to_num(cubic(places[:, None] - points))).float()


def look_up(x: Tensor, places: Tensor, mode: str) -> Tensor:
    return as_tensor(Resample(mode=mode, padding_mode="zeros", dtype=np.float32)(x, places))


def as_tensor(x: Tensor) -> Tensor:
    """A plain tensor instead of MONAI's, which carries metadata."""
    return x.as_subclass(torch.Tensor)
