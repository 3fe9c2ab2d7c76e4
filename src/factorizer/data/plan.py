"""A preset for a new data set, chosen from its cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10, prod
from pathlib import Path
from statistics import median
from typing import Any

from factorizer.config import Preset
from factorizer.data.cases import Cohort, DataError, Problem
from factorizer.data.check import Report, read_and_check, targets_of
from factorizer.data.intensities import judge_channel
from factorizer.progress import SILENT, Progress
from factorizer.words import count

COARSEST = 4  # fewest voxels of the bridge along its shortest axis
LARGEST_PATCH = {2: 512**2, 3: 64**3}  # voxels that a laptop can train on
MOST_LEVELS = 5
USUAL_FOLDS = 5
SYSTEM = "conv-factorizer"  # learns fastest (docs/results/design)
WIDTH = {2: 16, 3: 32}  # channels at full resolution
RARE = 0.01  # share of the image below which random patches often miss a region


@dataclass(frozen=True)
class Plan:
    """A preset for a data set, and the reasons for it, one line each."""

    preset: Preset
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class PlannedData:
    """A data set, the report on its cases, and the plan made from it."""

    cohort: Cohort
    report: Report
    plan: Plan


def plan_from_cases(
    folder: Path, *, mask_suffix: str | None = None, progress: Progress = SILENT
) -> PlannedData:
    """Read a data set and plan a preset for it. A `DataError` is raised if no case can be used."""
    checked = read_and_check(folder, mask_suffix=mask_suffix, progress=progress)
    cohort, report = checked.cohort, checked.report
    if not report.cases:
        raise DataError(*report.errors, no_usable_case(cohort))
    return PlannedData(cohort, report, plan_preset(cohort, report, mask_suffix=mask_suffix))


def no_usable_case(cohort: Cohort) -> Problem:
    message = "there is no usable case to plan from"
    return Problem("", str(cohort.root), message, "fix the errors first")


def plan_preset(cohort: Cohort, report: Report, *, mask_suffix: str | None = None) -> Plan:
    """Choose a preset for a data set from the report on its cases.

    The spacing is the median. The patch is the median image, cut to a size that a laptop can train
    on, with sides that the network's strides divide.
    """
    if not report.cases:
        raise DataError(no_usable_case(cohort))
    spacing = median_spacing(report)
    dims = len(spacing)
    regions = targets_of(cohort).regions
    patch, model = plan_network(report, most_voxels=LARGEST_PATCH[dims], width=WIDTH[dims])
    intensities, reasons = plan_intensities(cohort, report)
    data: dict[str, Any] = {
        "channels": list(cohort.channels),
        "labels": dict(cohort.labels),
        "regions": {name: list(labels) for name, labels in regions.items()},
        "spacing_mm": [round(side, 4) for side in spacing] if dims == 3 else None,
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
    """The number of folds, if there are fewer patients than the usual number of folds."""
    patients = len({case.owner for case in cohort.labelled})
    return {"folds": patients} if 2 <= patients < USUAL_FOLDS else {}


def plan_network(
    report: Report, *, most_voxels: int, width: int
) -> tuple[list[int], dict[str, Any]]:
    """A patch of at most `most_voxels`, and the model's fields for it.

    The model has `width` channels at full resolution.
    """
    spacing = median_spacing(report)
    target = fit_patch(median_shape(report, spacing), most_voxels)
    strides = plan_strides(target, spacing)
    patch = []
    for axis, size in enumerate(target):
        stride = prod(step[axis] for step in strides)
        patch.append(max(stride, ceil(size / stride) * stride))
    model = {
        "name": SYSTEM,
        "widths": [width * 2**level for level in range(len(strides) + 1)],
        "strides": 2 if all(set(step) == {2} for step in strides) else strides,
        "window": 4 if min(patch) < 128 else 8,
    }
    return patch, model


def median_spacing(report: Report) -> list[float]:
    spacings = [case.spacing_mm for case in report.cases]
    return [median(axis) for axis in zip(*spacings, strict=True)]


def plan_intensities(cohort: Cohort, report: Report) -> tuple[dict[str, Any], tuple[str, ...]]:
    """How intensities are clipped and normalized, and why.

    Only CT is clipped: in MRI, tissue outside of the labels' range matters too. If zero is the air
    around the scan in every channel, it is cropped away and left out of the z-score.
    """
    if len(report.cases[0].shape) == 2:
        plain = {"clip": {}, "crop_to_nonzero": False, "normalization": "zscore"}
        channels = ", ".join(cohort.channels)
        return plain, (f"{channels}: a 2D image, in which black is a colour like any other",)
    clip: dict[str, tuple[float, float]] = {}
    reasons = []
    air_at_zero = True
    for channel in cohort.channels:
        judgement = judge_channel(channel, [case.intensities[channel] for case in report.cases])
        air_at_zero &= judgement.kind == "air at zero"
        reason = f"{channel}: taken for {judgement.reason}"
        ends = labelled_range(report, channel) if judgement.kind == "CT" else None
        if ends is not None:
            clip[channel] = ends
            reason += f"; clipped to {ends[0]:g} to {ends[1]:g}, the range of labelled voxels"
        reasons.append(reason)
    normalization = "zscore-nonzero" if air_at_zero else "zscore"
    fields = {"clip": clip, "crop_to_nonzero": air_at_zero, "normalization": normalization}
    return fields, tuple(reasons)


def median_shape(report: Report, spacing: Sequence[float]) -> list[int]:
    """The median image, in voxels of the target spacing."""
    shape = []
    for axis, side in enumerate(spacing):
        extents = [case.shape[axis] * case.spacing_mm[axis] for case in report.cases]
        shape.append(max(1, round(median(extents) / side)))
    return shape


def fit_patch(shape: Sequence[int], most_voxels: int) -> list[int]:
    """The shape with its longest sides cut to one length, so that it has at most `most_voxels`."""
    longest = max(shape)
    while prod(min(size, longest) for size in shape) > most_voxels:
        longest -= 1
    return [min(size, longest) for size in shape]


def plan_strides(patch: Sequence[int], spacing: Sequence[float]) -> list[tuple[int, ...]]:
    """The strides of each downsampling, one per axis.

    An axis is halved as long as `COARSEST` voxels are left. The axis of thick slices waits until
    the voxels are as large along the other axes.
    """
    sizes = [float(size) for size in patch]
    sides = list(spacing)
    strides: list[tuple[int, ...]] = []
    while len(strides) < MOST_LEVELS - 1:
        stride = next_stride(sizes, sides)
        if max(stride) == 1:
            break
        strides.append(stride)
        sizes = [size / factor for size, factor in zip(sizes, stride, strict=True)]
        sides = [side * factor for side, factor in zip(sides, stride, strict=True)]
    return strides or [(2,) * len(patch)]


def next_stride(sizes: Sequence[float], sides: Sequence[float]) -> tuple[int, ...]:
    """The stride along each axis for a map of these sizes, with voxels of these sides."""
    axes = range(len(sizes))
    divisible = [axis for axis in axes if sizes[axis] >= 2 * COARSEST]
    finest = min((sides[axis] for axis in divisible), default=0)
    halved = [axis for axis in divisible if sides[axis] < 2 * finest]
    return tuple(2 if axis in halved else 1 for axis in axes)


def labelled_range(report: Report, channel: str) -> tuple[float, float] | None:
    """The range of intensities of labelled voxels, as medians over cases.

    It is None if there are no labelled voxels, or if they have one value only.
    """
    found = [case.foreground_ranges[channel] for case in report.cases if case.foreground_ranges]
    if not found:
        return None
    low, high = (median(ends) for ends in zip(*found, strict=True))
    return round_range(low, high) if low < high else None


def round_range(low: float, high: float) -> tuple[float, float]:
    """Round the ends to at most a thousandth of the width, and to at least one decimal."""
    decimals = max(1, 3 - floor(log10(high - low)))
    return round(low, decimals), round(high, decimals)


def is_rare(report: Report, regions: Mapping[str, Sequence[str]]) -> bool:
    """Whether random patches will often miss a region, because it is rare in the images."""
    labelled = [case for case in report.cases if case.label_voxels is not None]
    if not labelled:
        return False

    def median_share(names: Sequence[str]) -> float:
        shares = []
        for case in labelled:
            voxels = case.label_voxels or {}
            shares.append(sum(voxels[name] for name in names) / prod(case.shape))
        return median(shares)

    return min(map(median_share, regions.values())) < RARE
