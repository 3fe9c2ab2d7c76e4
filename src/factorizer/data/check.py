"""Read every image and label of a data set, and report problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from factorizer.config import Preset, Range
from factorizer.data.attempts import attempt
from factorizer.data.cases import Case, Cohort, DataError, Problem
from factorizer.data.images import Array, Volume, read_image, read_label
from factorizer.data.intensities import Intensities, describe_intensities
from factorizer.data.label_values import name_labels
from factorizer.data.layouts import read_cohort
from factorizer.data.matching import note_renamed_labels, select_channels, select_label_values
from factorizer.data.spikes import note_spikes
from factorizer.hardware import available_cores
from factorizer.progress import SILENT, Progress
from factorizer.targets import Targets
from factorizer.words import count

FOREGROUND_PERCENTILES = (0.5, 99.5)


@dataclass(frozen=True)
class CaseSummary:
    """The properties of a case, in canonical orientation."""

    name: str
    shape: tuple[int, ...]
    spacing_mm: tuple[float, ...]
    ranges: Mapping[str, Range]  # of each channel
    foreground_ranges: Mapping[str, Range]  # percentiles of labelled voxels, for each channel
    label_voxels: Mapping[str, int] | None  # of each label; None without a label map
    region_ml: Mapping[str, float] | None  # volume of each region; in 2D thousands of pixels
    intensities: Mapping[str, Intensities]  # of each channel

    @property
    def ml(self) -> float:
        """The volume of all labels together; in 2D thousands of pixels."""
        return sum((self.label_voxels or {}).values()) * prod(self.spacing_mm) / 1000

    @property
    def is_empty(self) -> bool:
        return self.label_voxels is not None and not any(self.label_voxels.values())


@dataclass(frozen=True)
class Report:
    """What a check found: the usable cases, and all problems."""

    layout: str
    channels: tuple[str, ...]
    labels: Mapping[str, int]
    cases: Sequence[CaseSummary] = ()
    problems: Sequence[Problem] = field(default_factory=list)

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if not problem.is_warning]

    @property
    def warnings(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.is_warning]

    @property
    def empty_cases(self) -> list[str]:
        return [case.name for case in self.cases if case.is_empty]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "empty_cases": self.empty_cases}

    def lines(self) -> dict[str, str]:
        """The summary, as titles and texts."""
        lines = {
            "layout": self.layout,
            "cases": self.count_cases(),
            "problems": f"{count(len(self.errors), 'error')}, "
            f"{count(len(self.warnings), 'warning')}",
            "channels": ", ".join(self.channels),
        }
        if self.cases:
            lines |= self.image_lines() | self.label_lines()
        return lines

    def count_cases(self) -> str:
        wrong = {problem.case for problem in self.errors if problem.case}
        unread = len(wrong - {case.name for case in self.cases})
        return (
            f"{len(self.cases)} read, {len(wrong) - unread} of them with errors; {unread} could "
            "not be read"
        )

    def image_lines(self) -> dict[str, str]:
        """Shapes, spacings and intensities over all cases."""
        lines = {
            "shape": spread_per_axis([case.shape for case in self.cases], "{:.0f}"),
            "spacing, mm": spread_per_axis([case.spacing_mm for case in self.cases], "{:.2f}"),
        }
        for channel in self.cases[0].ranges:
            lowest = min(case.ranges[channel][0] for case in self.cases)
            maxima = [case.ranges[channel][1] for case in self.cases]
            lines[f"intensity, {channel}"] = (
                f"{lowest:.4g} to {max(maxima):.4g} (median maximum {median(maxima):.4g})"
            )
        return lines

    def label_lines(self) -> dict[str, str]:
        """Labels and regions over all labelled cases."""
        voxels_of = [case.label_voxels for case in self.cases if case.label_voxels is not None]
        ml_of = [case.region_ml for case in self.cases if case.region_ml is not None]
        if not voxels_of or not ml_of:
            return {"labels": "none"}
        lines = {}
        for label, value in self.labels.items():
            voxels = [case[label] for case in voxels_of]
            present = count(sum(number > 0 for number in voxels), "case")
            unit = "voxel" if set(voxels) == {1} else "voxels"
            lines[f"label {value}, {label}"] = f"in {present}; {spread(voxels, '{:.0f}')} {unit}"
        unit = "ml" if len(self.cases[0].shape) == 3 else "1000 pixels"
        for region in ml_of[0]:
            volumes = [case[region] for case in ml_of]
            lines[f"region {region}"] = f"{spread(volumes, '{:.2f}')} {unit}"
        names = f" ({', '.join(self.empty_cases)})" if self.empty_cases else ""
        lines["empty masks"] = f"{len(self.empty_cases)}{names}"
        return lines


@dataclass(frozen=True)
class CheckedData:
    """A data set whose cases were read: the cohort with names for its labels, and the report.

    `files` were written.
    """

    cohort: Cohort
    report: Report
    files: tuple[Path, ...] = ()


def read_and_check(
    folder: Path,
    *,
    preset: Preset | None = None,
    mask_suffix: str | None = None,
    progress: Progress = SILENT,
) -> CheckedData:
    """Read every image and label of a data set, and report what is wrong.

    Channels, labels and regions are checked against the preset, or otherwise against the data set's
    own. Without `mask_suffix`, masks end as the preset says.
    """
    data = preset.data if preset else None
    usual_suffix = data.mask_suffix if data else None
    cohort = read_cohort(folder, mask_suffix=mask_suffix or usual_suffix)
    cohort = name_labels(cohort, data.labels if data else None)
    report = check_cohort(
        cohort,
        channels=data.channels if data else None,
        targets=data.targets if data else None,
        progress=progress,
    )
    return CheckedData(cohort, report)


def check_cohort(
    cohort: Cohort,
    *,
    channels: Sequence[str] | None = None,
    targets: Targets | None = None,
    progress: Progress = SILENT,
) -> Report:
    """Read all cases of a data set. A case that fails is a problem, and the others continue.

    Channels and targets are those of a preset. Unless given, they are the data set's own.
    """
    cohort = name_labels(cohort, targets.labels if targets else None)
    targets = targets or targets_of(cohort)
    labels = targets.labels
    problems = list(cohort.problems)
    try:
        names = select_channels(cohort, channels) if channels else cohort.channels
        values = select_label_values(cohort, labels)
        problems += note_renamed_labels(cohort, labels)
    except DataError as error:
        return Report(cohort.layout, cohort.channels, labels, (), [*problems, *error.problems])

    def work(case: Case) -> tuple[CaseSummary | None, list[Problem]]:
        result, failures = attempt(case.name, partial(summarize, case, names, values, targets))
        return (None, failures) if result is None else result

    summaries = []
    with ThreadPoolExecutor(available_cores()) as pool:
        results = pool.map(work, cohort.cases)
        for summary, found in progress.follow(results, "reading cases", total=len(cohort.cases)):
            problems += found
            if summary is not None:
                summaries.append(summary)
    return Report(cohort.layout, tuple(names), labels, summaries, problems)


def targets_of(cohort: Cohort) -> Targets:
    """The labels and regions of a data set. Without regions of its own, each label is a region."""
    regions = cohort.regions or {name: (name,) for name in cohort.labels}
    return Targets(cohort.labels, regions)


def summarize(
    case: Case,
    channels: Sequence[str],
    label_values: Mapping[int, int],
    targets: Targets,
) -> tuple[CaseSummary, list[Problem]]:
    """Read a case: its properties, and warnings."""
    volume = read_image(case, channels)
    problems = note_spikes(case.name, channels, volume)
    ranges, intensities = {}, {}
    for channel, array in zip(channels, volume.array, strict=True):
        low, high = float(array.min()), float(array.max())
        ranges[channel] = (low, high)
        intensities[channel] = describe_intensities(array)
        if low == high:
            file = str(case.channels[channel].file)
            message = f"every voxel of channel {channel} is {low:g}"
            problems.append(Problem(case.name, file, message, "look at the image", "warning"))
    label_voxels = region_ml = None
    foreground: dict[str, Range] = {}
    if case.label is not None:
        label = read_label(case, label_values, volume.grid)
        label_voxels = count_voxels(label, targets)
        region_ml = measure_regions(label, targets, volume.spacing_mm)
        foreground = labelled_ranges(channels, volume, label)
    summary = CaseSummary(
        name=case.name,
        shape=tuple(volume.array.shape[1:]),
        spacing_mm=volume.spacing_mm,
        ranges=ranges,
        foreground_ranges=foreground,
        label_voxels=label_voxels,
        region_ml=region_ml,
        intensities=intensities,
    )
    return summary, problems


def count_voxels(label: Array, targets: Targets) -> dict[str, int]:
    """The number of voxels of each label."""
    return {name: int(np.count_nonzero(label == value)) for name, value in targets.labels.items()}


def measure_regions(
    label: Array, targets: Targets, spacing_mm: Sequence[float]
) -> dict[str, float]:
    """The volume of each region in ml; in 2D thousands of pixels."""
    ml = prod(spacing_mm) / 1000
    volumes = {}
    for name, mask in zip(targets.regions, targets.masks(label), strict=True):
        volumes[name] = float(np.count_nonzero(mask) * ml)
    return volumes


def labelled_ranges(channels: Sequence[str], volume: Volume, label: Array) -> dict[str, Range]:
    """The range of labelled voxels in each channel; empty if no voxel is labelled."""
    ranges: dict[str, Range] = {}
    if label.any():
        for channel, array in zip(channels, volume.array, strict=True):
            low, high = np.percentile(array[label > 0], FOREGROUND_PERCENTILES).tolist()
            ranges[channel] = (low, high)
    return ranges


def spread(values: Sequence[float], form: str) -> str:
    """One number if all are equal, otherwise lowest, median and highest."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} / {form.format(median(values))} / {high}"


def spread_per_axis(values: Sequence[Sequence[float]], form: str) -> str:
    texts = [spread(axis, form) for axis in zip(*values, strict=True)]
    return " x ".join(f"({text})" if "/" in text else text for text in texts)
