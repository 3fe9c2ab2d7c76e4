"""Procedural anatomy: tissue maps of skull-stripped brains, tumours, strokes and hippocampi.

Everything is drawn from a generator on a grid of coordinates from -1 to 1: left to right, back to
front, bottom to top. The scans are hard because healthy structures look like lesions: vessels and
meninges are as bright as enhancing tumour, patches of white matter as bright as oedema, fluid as
dark as necrosis. Single voxels cannot tell them apart, but shapes can.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

Array = NDArray[Any]
Generator = np.random.Generator

OUTSIDE = 0
FLUID = 1
GREY = 2
WHITE = 3
EDEMA = 4
NECROSIS = 5
ENHANCING = 6
VESSEL = 7
SPOT = 8
CYST = 9
STROKE = 10
SHINE = 11


def smooth_noise(shape: tuple[int, ...], width: float, generator: Generator) -> Array:
    """A random field of unit variance with features about `width` voxels wide."""
    field = gaussian_filter(generator.standard_normal(shape), max(width, 0.5), mode="wrap")
    return field / field.std()


def coordinates(shape: tuple[int, ...]) -> Array:
    """The coordinates (3, *shape) of all voxels, each from -1 to 1."""
    axes = [np.linspace(-1, 1, size) for size in shape]
    return np.stack(np.meshgrid(*axes, indexing="ij"))


def bent_coordinates(shape: tuple[int, ...], width: float, generator: Generator) -> Array:
    """Coordinates with smooth random deviations, which bend everything that is drawn on them."""
    deviations = [smooth_noise(shape, width, generator) for _ in range(3)]
    return coordinates(shape) + 0.05 * np.stack(deviations)


def ellipsoid(points: Array, centre: tuple[float, ...], axes: tuple[float, ...]) -> Array:
    """The distance from the centre in units of the semi-axes. It is below 1 inside."""
    terms = zip(points, centre, axes, strict=True)
    return np.sqrt(sum(((point - middle) / axis) ** 2 for point, middle, axis in terms))


def make_brain(shape: tuple[int, ...], generator: Generator) -> tuple[Array, Array]:
    """Tissues of a brain without lesions, and the depth below its surface (negative outside)."""
    size = min(shape)
    points = bent_coordinates(shape, size / 6, generator)
    ranges = ((0.68, 0.78), (0.82, 0.92), (0.64, 0.74))
    axes = tuple(generator.uniform(low, high) for low, high in ranges)
    folds = smooth_noise(shape, size / 28, generator)
    depth = 0.97 - ellipsoid(points, (0, 0, 0), axes) - 0.02 * folds
    tissue = np.full(shape, OUTSIDE, np.uint8)
    tissue[depth > 0] = WHITE
    ribbon = 0.14 + 0.05 * smooth_noise(shape, size / 20, generator)
    tissue[(depth > 0) & (depth < ribbon)] = GREY
    tissue[(depth > 0) & (depth < 0.18) & (folds > 0.85 + 2 * depth)] = FLUID  # sulci
    between_hemispheres = np.abs(points[0]) < 0.02
    tissue[(depth > 0) & (depth < 0.3) & between_hemispheres] = FLUID
    for side in (-1, 1):
        nucleus = ellipsoid(points, (0.27 * side, 0.08, -0.02), (0.11, 0.2, 0.14))
        tissue[(nucleus < 1) & (depth > 0.2)] = GREY
        scale = generator.uniform(0.7, 1.4)  # ventricles differ
        semi_axes = (0.07 * scale, 0.36 * scale, 0.13 * scale)
        ventricle = ellipsoid(points, (0.13 * side, -0.05, 0.08), semi_axes)
        tissue[(ventricle < 1) & (depth > 0.15)] = FLUID
    return tissue, depth


def add_lookalikes(tissue: Array, depth: Array, generator: Generator) -> None:
    """Add vessels, enhancing meninges, cysts and bright spots of white matter, in place."""
    size = min(tissue.shape)
    first = smooth_noise(tissue.shape, size / 14, generator)
    second = smooth_noise(tissue.shape, size / 14, generator)
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
    axes = zip(place, allowed.shape, strict=True)
    return tuple(2 * index / (size - 1) - 1 for index, size in axes)


def add_tumour(tissue: Array, depth: Array, generator: Generator) -> None:
    """Add a necrotic core, a broken enhancing rim, and oedema in the white matter, in place."""
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
    inner = generator.uniform(0.5, 0.68) + 0.1 * smooth_noise(shape, size / 16, generator)
    rim = core & (distance > inner)
    tissue[core] = NECROSIS
    gaps = smooth_noise(shape, size / 12, generator) > generator.uniform(1.0, 1.8)
    tissue[rim & ~gaps] = ENHANCING


def add_strokes(tissue: Array, depth: Array, generator: Generator) -> None:
    """Add one to three infarcts in one hemisphere, from specks to a whole territory, in place."""
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
    """Add bright voxels on DWI that are not a stroke, near the base and in spots, in place."""
    points = coordinates(tissue.shape)
    field = smooth_noise(tissue.shape, min(tissue.shape) / 16, generator)
    inside = np.isin(tissue, (GREY, WHITE, SPOT, VESSEL))
    tissue[inside & (field > 1.9)] = SHINE
    tissue[inside & (depth < 0.08) & (points[2] < -0.25) & (field > 0.6)] = SHINE


def make_hippocampus(shape: tuple[int, ...], generator: Generator) -> tuple[Array, Array]:
    """Tissues around a hippocampus, and its label map: 1 anterior, 2 posterior."""
    size = min(shape)
    x, y, z = bent_coordinates(shape, size / 4, generator)
    tissue = np.full(shape, WHITE, np.uint8)
    cortex = smooth_noise(shape, size / 7, generator)
    tissue[(np.abs(cortex) < 0.35) | (x < -0.75)] = GREY  # gyri all around
    tissue[cortex > 1.9] = FLUID
    bend, tilt = generator.uniform(0.3, 0.5), generator.uniform(-0.15, 0.15)
    middle_x, middle_z = bend * (y - 0.1) ** 2 - 0.12, tilt * y - 0.1 + 0.12 * y**2
    along = (y - generator.uniform(-0.05, 0.05)) / generator.uniform(0.68, 0.78)
    thickness = 0.2 + 0.09 * along  # thick head, thin tail
    thickness *= np.sqrt(np.clip(1 - along**2, 0, None))
    offset = np.hypot((x - middle_x) / 1.25, z - middle_z)
    offset += 0.015 * smooth_noise(shape, size / 10, generator)
    inside = (offset < thickness) & (np.abs(along) < 1)
    temporal_horn = (offset < thickness * 1.45) & ~inside & (x > middle_x) & (z > middle_z)
    tissue[temporal_horn] = FLUID
    tissue[inside] = GREY
    border = generator.uniform(0.05, 0.2) + 0.1 * (z - middle_z)
    label = np.where(inside, np.where(y > border, 1, 2), 0).astype(np.uint8)
    return tissue, label
