"""Procedural anatomy: tissue maps of skull-stripped brains, tumours, strokes and hippocampi.

Everything is drawn from a generator on a grid of coordinates in -1..1, left to right, back to
front, bottom to top. What makes the scans hard is what looks like a lesion and is none: vessels and
meninges as bright as enhancing tumour, patches of white matter as bright as oedema, fluid as dark
as necrosis. Single voxels do not tell them apart, shapes do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

Array = NDArray[Any]
Generator = np.random.Generator

OUTSIDE, FLUID, GREY, WHITE, EDEMA, NECROSIS, ENHANCING, VESSEL, SPOT, CYST, STROKE, SHINE = range(
    12
)


def smooth_noise(shape: tuple[int, ...], width: float, generator: Generator) -> Array:
    """A random field of unit variance whose features are about `width` voxels wide."""
    field = gaussian_filter(generator.standard_normal(shape), max(width, 0.5), mode="wrap")
    return field / field.std()


def coordinates(shape: tuple[int, ...]) -> Array:
    """(3, *shape), each from -1 to 1."""
    return np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij"))


def ellipsoid(points: Array, centre: tuple[float, ...], axes: tuple[float, ...]) -> Array:
    """The distance from the centre in units of the semi-axes: below 1 inside."""
    return np.sqrt(sum(((p - c) / a) ** 2 for p, c, a in zip(points, centre, axes, strict=True)))


def make_brain(shape: tuple[int, ...], generator: Generator) -> tuple[Array, Array]:
    """Tissues of a brain without lesions, and the depth below its surface (negative outside)."""
    size = min(shape)
    points = coordinates(shape)
    points = points + 0.05 * np.stack([smooth_noise(shape, size / 6, generator) for _ in range(3)])
    axes = tuple(
        generator.uniform(low, high) for low, high in ((0.68, 0.78), (0.82, 0.92), (0.64, 0.74))
    )
    folds = smooth_noise(shape, size / 28, generator)
    depth = 0.97 - ellipsoid(points, (0, 0, 0), axes) - 0.02 * folds
    tissue = np.full(shape, OUTSIDE, np.uint8)
    tissue[depth > 0] = WHITE
    ribbon = 0.14 + 0.05 * smooth_noise(shape, size / 20, generator)
    tissue[(depth > 0) & (depth < ribbon)] = GREY
    tissue[(depth > 0) & (depth < 0.18) & (folds > 0.85 + 2 * depth)] = FLUID  # sulci
    tissue[(depth > 0) & (depth < 0.3) & (np.abs(points[0]) < 0.02)] = (
        FLUID  # between the hemispheres
    )
    for side in (-1, 1):
        nucleus = ellipsoid(points, (0.27 * side, 0.08, -0.02), (0.11, 0.2, 0.14))
        tissue[(nucleus < 1) & (depth > 0.2)] = GREY
        scale = generator.uniform(0.7, 1.4)  # ventricles are never alike
        ventricle = ellipsoid(
            points, (0.13 * side, -0.05, 0.08), (0.07 * scale, 0.36 * scale, 0.13 * scale)
        )
        tissue[(ventricle < 1) & (depth > 0.15)] = FLUID
    return tissue, depth


def add_lookalikes(tissue: Array, depth: Array, generator: Generator) -> None:
    """Vessels, enhancing meninges, cysts and bright spots of white matter, in place."""
    size = min(tissue.shape)
    first, second = (smooth_noise(tissue.shape, size / 14, generator) for _ in range(2))
    tissue[(np.hypot(first, second) < 0.26) & (depth > 0)] = VESSEL
    patches = smooth_noise(tissue.shape, size / 10, generator)
    tissue[(depth > 0) & (depth < 0.07) & (patches > 0.3)] = VESSEL
    spots = smooth_noise(tissue.shape, size / 28, generator)
    tissue[(tissue == WHITE) & (spots > 1.35)] = SPOT
    tissue[np.isin(tissue, (GREY, WHITE)) & (spots < -2.0)] = CYST


def pick_centre(allowed: Array, generator: Generator) -> tuple[float, ...]:
    """The coordinates of a random voxel of a mask."""
    places = np.argwhere(allowed)
    place = places[generator.integers(len(places))]
    return tuple(2 * p / (n - 1) - 1 for p, n in zip(place, allowed.shape, strict=True))


def add_tumour(tissue: Array, depth: Array, generator: Generator) -> None:
    """A necrotic core, a broken enhancing rim and oedema that follows the white matter, in
    place."""
    shape, size = tissue.shape, min(tissue.shape)
    centre = pick_centre((tissue == WHITE) & (depth > 0.25), generator)
    radius = generator.uniform(0.17, 0.3)
    axes = tuple(radius * generator.uniform(0.8, 1.2) for _ in range(3))
    rough = smooth_noise(shape, size / 14, generator)
    distance = ellipsoid(coordinates(shape), centre, axes) + 0.12 * rough
    reach = generator.uniform(1.5, 1.9) + 0.25 * smooth_noise(shape, size / 10, generator)
    brain = depth > 0
    follows = np.isin(tissue, (WHITE, SPOT, CYST, VESSEL)) | (distance < 1.15)
    tissue[brain & (distance < reach) & follows & (tissue != FLUID)] = EDEMA
    core = brain & (distance < 1)
    rim = core & (
        distance > generator.uniform(0.5, 0.68) + 0.1 * smooth_noise(shape, size / 16, generator)
    )
    tissue[core] = NECROSIS
    gaps = smooth_noise(shape, size / 12, generator) > generator.uniform(1.0, 1.8)
    tissue[rim & ~gaps] = ENHANCING


def add_strokes(tissue: Array, depth: Array, generator: Generator) -> None:
    """One to three infarcts of one hemisphere, from specks to a whole territory, and spots that
    only shine on DWI."""
    shape, size = tissue.shape, min(tissue.shape)
    points = coordinates(shape)
    side = generator.choice((-1, 1))
    hemisphere = (points[0] * side > 0.05) & np.isin(tissue, (GREY, WHITE, SPOT)) & (depth > 0.03)
    for number in range(generator.integers(1, 4)):
        radius = np.exp(generator.uniform(np.log(0.06), np.log(0.3 if number == 0 else 0.12)))
        axes = tuple(radius * generator.uniform(0.7, 1.4) for _ in range(3))
        distance = ellipsoid(points, pick_centre(hemisphere, generator), axes)
        distance = distance + 0.2 * smooth_noise(shape, size / 16, generator)
        tissue[hemisphere & (distance < 1)] = STROKE


def add_shine(tissue: Array, depth: Array, generator: Generator) -> None:
    """What is bright on DWI without being a stroke: near the base and in spots, in place."""
    points = coordinates(tissue.shape)
    field = smooth_noise(tissue.shape, min(tissue.shape) / 16, generator)
    inside = np.isin(tissue, (GREY, WHITE, SPOT, VESSEL))
    tissue[inside & (field > 1.9)] = SHINE
    tissue[inside & (depth < 0.08) & (points[2] < -0.25) & (field > 0.6)] = SHINE


def make_hippocampus(shape: tuple[int, ...], generator: Generator) -> tuple[Array, Array]:
    """Tissues around a hippocampus, and its label map: 1 anterior, 2 posterior."""
    size = min(shape)
    points = coordinates(shape)
    points = points + 0.05 * np.stack([smooth_noise(shape, size / 4, generator) for _ in range(3)])
    x, y, z = points
    tissue = np.full(shape, WHITE, np.uint8)
    cortex = smooth_noise(shape, size / 7, generator)
    tissue[(np.abs(cortex) < 0.35) | (x < -0.75)] = GREY  # gyri all around
    tissue[cortex > 1.9] = FLUID
    bend, tilt = generator.uniform(0.3, 0.5), generator.uniform(-0.15, 0.15)
    middle_x, middle_z = bend * (y - 0.1) ** 2 - 0.12, tilt * y - 0.1 + 0.12 * y**2
    along = (y - generator.uniform(-0.05, 0.05)) / generator.uniform(0.68, 0.78)
    thickness = (0.2 + 0.09 * along) * np.sqrt(
        np.clip(1 - along**2, 0, None)
    )  # thick head, thin tail
    offset = np.hypot((x - middle_x) / 1.25, z - middle_z) + 0.015 * smooth_noise(
        shape, size / 10, generator
    )
    inside = (offset < thickness) & (np.abs(along) < 1)
    tissue[(offset < thickness * 1.45) & ~inside & (x > middle_x) & (z > middle_z)] = (
        FLUID  # temporal horn
    )
    tissue[inside] = GREY
    border = generator.uniform(0.05, 0.2) + 0.1 * (z - middle_z)
    label = np.where(inside, np.where(y > border, 1, 2), 0).astype(np.uint8)
    return tissue, label
