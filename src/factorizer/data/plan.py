"""`factorizer data plan`: a preset for an unknown data set, from what its cases are like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod
from pathlib import Path
from statistics import median
from typing import Any

from factorizer.config import Preset
from factorizer.data.cases import Cohort, DataError, Problem
from factorizer.data.check import Report

COARSEST = 4  # voxels of the bridge along the shortest axis, at least
LARGEST_PATCH = {2: 512**2, 3: 64**3}  # voxels, that a laptop trains on
MOST_LEVELS = 5
WIDTH = {2: 16, 3: 32}  # channels at full resolution


def plan_preset(cohort: Cohort, report: Report, *, mask_suffix: str | None = None) -> Preset:
    """Spacing: the median. Patch: the median image, cut down to what a laptop trains on, with sides that divide."""
    if not report.cases:
        raise DataError(Problem("", str(cohort.root), "there is no usable case to plan from", "mend the errors first"))
    spacing = [median(axis) for axis in zip(*(case.spacing_mm for case in report.cases), strict=True)]
    target = fit_patch(median_shape(report, spacing), LARGEST_PATCH[len(spacing)])
    strides = plan_strides(target, spacing)
    total = [prod(axis) for axis in zip(*strides, strict=True)]
    patch = [max(stride, ceil(n / stride) * stride) for n, stride in zip(target, total, strict=True)]
    regions = dict(cohort.regions) or {name: (name,) for name in cohort.labels}
    volumes = len(patch) == 3
    clip = {channel: window_of(report, channel) for channel in cohort.channels if is_signed(report, channel)}
    in_air = volumes and not clip  # zero is the air around the scan, neither a colour nor a tissue
    data: dict[str, Any] = {
        "channels": list(cohort.channels),
        "labels": dict(cohort.labels),
        "regions": {name: list(labels) for name, labels in regions.items()},
        "clip": {channel: window for channel, window in clip.items() if window is not None},
        "spacing_mm": [round(s, 4) for s in spacing] if volumes else None,
        "patch_size": patch,
        "crop_to_nonzero": in_air,
        "normalization": "zscore-nonzero" if in_air else "zscore",
        "mask_suffix": mask_suffix,
        "foreground_fraction": 0.5 if is_rare(report, regions) else 0.0,
    }
    widths = [WIDTH[len(patch)] * 2**level for level in range(len(strides) + 1)]
    model = {
        "widths": widths,
        "strides": 2 if all(set(stride) == {2} for stride in strides) else strides,
        "window": 4 if min(patch) < 128 else 8,
    }
    title = f"{Path(cohort.root).resolve().name}: planned from {len(report.cases)} cases in {cohort.layout} layout"
    return Preset.model_validate({"title": title, "data": data, "model": model})


def median_shape(report: Report, spacing: Sequence[float]) -> list[int]:
    """The median image, in voxels at the target spacing."""
    extents = [[n * s for n, s in zip(case.shape, case.spacing_mm, strict=True)] for case in report.cases]
    return [max(1, round(median(axis) / s)) for axis, s in zip(zip(*extents, strict=True), spacing, strict=True)]


def fit_patch(shape: Sequence[int], most_voxels: int) -> list[int]:
    """The shape, its longest sides cut alike until no more than `most_voxels` are left."""
    longest = max(shape)
    while prod(min(n, longest) for n in shape) > most_voxels:
        longest -= 1
    return [min(n, longest) for n in shape]


def plan_strides(patch: Sequence[int], spacing: Sequence[float]) -> list[tuple[int, ...]]:
    """Per downsampling and axis: halve what keeps `COARSEST` voxels, thick slices only once the others are as thick."""
    sizes, voxel = list(map(float, patch)), list(spacing)
    strides: list[tuple[int, ...]] = []
    while len(strides) < MOST_LEVELS - 1:
        finest = (
            min(v for v, n in zip(voxel, sizes, strict=True) if n >= 2 * COARSEST) if max(sizes) >= 2 * COARSEST else 0
        )
        stride = tuple(2 if n >= 2 * COARSEST and v < 2 * finest else 1 for n, v in zip(sizes, voxel, strict=True))
        if max(stride) == 1:
            break
        strides.append(stride)
        sizes = [n / s for n, s in zip(sizes, stride, strict=True)]
        voxel = [v * s for v, s in zip(voxel, stride, strict=True)]
    return strides or [(2,) * len(patch)]


def is_signed(report: Report, channel: str) -> bool:
    """Whether zero is a tissue's value, as in CT: a channel that goes far below it. (A little is interpolation.)"""
    return median(-low / max(high, 1e-9) for low, high in (case.ranges[channel] for case in report.cases)) > 0.1


def window_of(report: Report, channel: str) -> tuple[float, float] | None:
    """The intensities of labelled voxels, of a median case; None where there are none, or only one."""
    found = [case.foreground_ranges[channel] for case in report.cases if case.foreground_ranges]
    if not found:
        return None
    low, high = (round(median(ends), 1) for ends in zip(*found, strict=True))
    return (low, high) if low < high else None


def is_rare(report: Report, regions: Mapping[str, Sequence[str]]) -> bool:
    """Whether a random patch will often miss a region: the rarest is below 1 % of the image."""
    labelled = [(case.label_voxels, prod(case.shape)) for case in report.cases if case.label_voxels is not None]

    def share(names: Sequence[str]) -> float:
        return median(sum(voxels[name] for name in names) / size for voxels, size in labelled)

    return bool(labelled) and min(map(share, regions.values())) < 0.01
