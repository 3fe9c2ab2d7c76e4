"""`factorizer data plan`: a preset for an unknown data set, from what its cases are like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10, prod
from pathlib import Path
from statistics import median
from typing import Any

from factorizer.config import Preset
from factorizer.data.cases import Cohort, DataError, Problem
from factorizer.data.check import Report
from factorizer.data.intensities import judge_channel
from factorizer.words import count

COARSEST = 4  # voxels of the bridge along the shortest axis, at least
LARGEST_PATCH = {2: 512**2, 3: 64**3}  # voxels, that a laptop trains on
MOST_LEVELS = 5
USUAL_FOLDS = 5
WIDTH = {2: 16, 3: 32}  # channels at full resolution


@dataclass(frozen=True)
class Plan:
    """A preset for a data set, and why it is as it is: one line each."""

    preset: Preset
    reasons: tuple[str, ...]


def plan_preset(cohort: Cohort, report: Report, *, mask_suffix: str | None = None) -> Plan:
    """Spacing: the median. Patch: the median image, cut to what a laptop trains on, with sides that
    divide."""
    if not report.cases:
        raise DataError(
            Problem(
                "", str(cohort.root), "there is no usable case to plan from", "fix the errors first"
            )
        )
    spacing = median_spacing(report)
    dims = len(spacing)
    regions = dict(cohort.regions) or {name: (name,) for name in cohort.labels}
    patch, model = plan_network(report, most_voxels=LARGEST_PATCH[dims], width=WIDTH[dims])
    intensities, reasons = plan_intensities(cohort, report)
    data: dict[str, Any] = {
        "channels": list(cohort.channels),
        "labels": dict(cohort.labels),
        "regions": {name: list(labels) for name, labels in regions.items()},
        "spacing_mm": [round(s, 4) for s in spacing] if dims == 3 else None,
        "patch_size": patch,
        **intensities,
        "mask_suffix": mask_suffix,
        "foreground_fraction": 0.5 if is_rare(report, regions) else 0.0,
    }
    name, cases = Path(cohort.root).resolve().name, count(len(report.cases), "case")
    title = f"{name}: planned from {cases} in {cohort.layout} layout"
    values = {"title": title, "data": data, "model": model, "training": plan_folds(cohort)}
    return Plan(Preset.model_validate(values), reasons)


def plan_folds(cohort: Cohort) -> dict[str, int]:
    """As many folds as in the paper, fewer where there are fewer patients, and two at least."""
    patients = len({case.owner for case in cohort.labelled})
    return {"folds": patients} if 2 <= patients < USUAL_FOLDS else {}


def plan_network(
    report: Report, *, most_voxels: int, width: int
) -> tuple[list[int], dict[str, Any]]:
    """A patch of so many voxels at most, and the model's fields for it, `width` channels at full
    resolution."""
    spacing = median_spacing(report)
    target = fit_patch(median_shape(report, spacing), most_voxels)
    strides = plan_strides(target, spacing)
    total = [prod(axis) for axis in zip(*strides, strict=True)]
    patch = [
        max(stride, ceil(n / stride) * stride) for n, stride in zip(target, total, strict=True)
    ]
    model = {
        "widths": [width * 2**level for level in range(len(strides) + 1)],
        "strides": 2 if all(set(stride) == {2} for stride in strides) else strides,
        "window": 4 if min(patch) < 128 else 8,
    }
    return patch, model


def median_spacing(report: Report) -> list[float]:
    return [median(axis) for axis in zip(*(case.spacing_mm for case in report.cases), strict=True)]


def plan_intensities(cohort: Cohort, report: Report) -> tuple[dict[str, Any], tuple[str, ...]]:
    """How intensities are cut and normalized, and why.

    Only CT is cut: in MRI, tissue outside of the labels' range is needed too. Where zero is the air
    around a scan, it is cropped away and left out of the z-score; one channel in which zero is a
    tissue forbids both.
    """
    if len(report.cases[0].shape) == 2:
        plain = {"clip": {}, "crop_to_nonzero": False, "normalization": "zscore"}
        return plain, (
            f"{', '.join(cohort.channels)}: a picture, in which black is a colour like others",
        )
    clip: dict[str, tuple[float, float]] = {}
    reasons, air_at_zero = [], True
    for channel in cohort.channels:
        judgement = judge_channel(channel, [case.intensities[channel] for case in report.cases])
        air_at_zero &= judgement.kind == "air at zero"
        window = window_of(report, channel) if judgement.kind == "CT" else None
        cut = ""
        if window is not None:
            clip[channel] = window
            cut = f"; cut to {window[0]:g} to {window[1]:g}, where labelled voxels lie"
        reasons.append(f"{channel}: taken for {judgement.reason}{cut}")
    normalization = "zscore-nonzero" if air_at_zero else "zscore"
    return {"clip": clip, "crop_to_nonzero": air_at_zero, "normalization": normalization}, tuple(
        reasons
    )


def median_shape(report: Report, spacing: Sequence[float]) -> list[int]:
    """The median image, in voxels at the target spacing."""
    extents = [
        [n * s for n, s in zip(case.shape, case.spacing_mm, strict=True)] for case in report.cases
    ]
    return [
        max(1, round(median(axis) / s))
        for axis, s in zip(zip(*extents, strict=True), spacing, strict=True)
    ]


def fit_patch(shape: Sequence[int], most_voxels: int) -> list[int]:
    """The shape, its longest sides cut alike until no more than `most_voxels` are left."""
    longest = max(shape)
    while prod(min(n, longest) for n in shape) > most_voxels:
        longest -= 1
    return [min(n, longest) for n in shape]


def plan_strides(patch: Sequence[int], spacing: Sequence[float]) -> list[tuple[int, ...]]:
    """Per downsampling and axis: halve what keeps `COARSEST` voxels, thick slices only once the
    others are as thick."""
    sizes, voxel = list(map(float, patch)), list(spacing)
    strides: list[tuple[int, ...]] = []
    while len(strides) < MOST_LEVELS - 1:
        finest = (
            min(v for v, n in zip(voxel, sizes, strict=True) if n >= 2 * COARSEST)
            if max(sizes) >= 2 * COARSEST
            else 0
        )
        stride = tuple(
            2 if n >= 2 * COARSEST and v < 2 * finest else 1
            for n, v in zip(sizes, voxel, strict=True)
        )
        if max(stride) == 1:
            break
        strides.append(stride)
        sizes = [n / s for n, s in zip(sizes, stride, strict=True)]
        voxel = [v * s for v, s in zip(voxel, stride, strict=True)]
    return strides or [(2,) * len(patch)]


def window_of(report: Report, channel: str) -> tuple[float, float] | None:
    """The intensities of labelled voxels, of a median case; None where there are none, or only
    one."""
    found = [case.foreground_ranges[channel] for case in report.cases if case.foreground_ranges]
    if not found:
        return None
    low, high = (median(ends) for ends in zip(*found, strict=True))
    return round_window(low, high) if low < high else None


def round_window(low: float, high: float) -> tuple[float, float]:
    """To a thousandth of the window's width or finer, and to one decimal at least."""
    decimals = max(1, 3 - floor(log10(high - low)))
    return round(low, decimals), round(high, decimals)


def is_rare(report: Report, regions: Mapping[str, Sequence[str]]) -> bool:
    """Whether a random patch will often miss a region: the rarest is below 1 % of the image."""
    labelled = [
        (case.label_voxels, prod(case.shape))
        for case in report.cases
        if case.label_voxels is not None
    ]

    def share(names: Sequence[str]) -> float:
        return median(sum(voxels[name] for name in names) / size for voxels, size in labelled)

    return bool(labelled) and min(map(share, regions.values())) < 0.01
