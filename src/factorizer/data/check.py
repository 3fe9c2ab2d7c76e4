"""`factorizer data check`: read every image and label of a data set, and say what is there and what
is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from math import prod
from statistics import median
from typing import Any

import numpy as np

from factorizer.data.cases import Case, Cohort, DataError, Problem
from factorizer.data.images import read_image, read_label
from factorizer.data.intensities import Intensities, describe_intensities
from factorizer.data.label_values import name_labels
from factorizer.data.matching import note_renamed_labels, select_channels, select_label_values
from factorizer.data.spikes import note_spikes
from factorizer.hardware import available_cores
from factorizer.targets import Targets
from factorizer.words import count


@dataclass(frozen=True)
class CaseSummary:
    """What a case is like, in canonical orientation."""

    name: str
    shape: tuple[int, ...]
    spacing_mm: tuple[float, ...]
    ranges: Mapping[str, tuple[float, float]]  # of each channel
    foreground_ranges: Mapping[
        str, tuple[float, float]
    ]  # from the 0.5th to the 99.5th percentile, where a label is
    label_voxels: Mapping[str, int] | None  # of each label; None without a label map
    region_ml: Mapping[str, float] | None  # volume of each region; in 2D thousands of pixels
    intensities: Mapping[str, Intensities]  # of each channel: shares of its voxels

    @property
    def ml(self) -> float:
        """Of all labels together; in 2D thousands of pixels."""
        return sum((self.label_voxels or {}).values()) * prod(self.spacing_mm) / 1000

    @property
    def is_empty(self) -> bool:
        return self.label_voxels is not None and not any(self.label_voxels.values())


@dataclass(frozen=True)
class Report:
    """The cases that can be used and all problems."""

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
        """The summary as title and text."""
        cases, wrong = self.cases, {problem.case for problem in self.errors if problem.case}
        unread = len(wrong - {case.name for case in cases})
        lines = {
            "layout": self.layout,
            "cases": f"{len(cases)} read, {len(wrong) - unread} of them with errors; {unread} "
            "could not be read",
            "problems": f"{count(len(self.errors), 'error')}, "
            f"{count(len(self.warnings), 'warning')}",
            "channels": ", ".join(self.channels),
        }
        if not cases:
            return lines
        lines["shape"] = spread_per_axis([case.shape for case in cases], "{:.0f}")
        lines["spacing, mm"] = spread_per_axis([case.spacing_mm for case in cases], "{:.2f}")
        for channel in cases[0].ranges:
            low, high = zip(*(case.ranges[channel] for case in cases), strict=True)
            lines[f"intensity, {channel}"] = (
                f"{min(low):.4g} to {max(high):.4g} (median maximum {median(high):.4g})"
            )
        labelled = [
            case for case in cases if case.label_voxels is not None and case.region_ml is not None
        ]
        if not labelled:
            return lines | {"labels": "none"}
        for label, value in self.labels.items():
            voxels = [case.label_voxels[label] for case in labelled if case.label_voxels]
            present = count(sum(number > 0 for number in voxels), "case")
            unit = "voxel" if set(voxels) == {1} else "voxels"
            lines[f"label {value}, {label}"] = f"in {present}; {spread(voxels, '{:.0f}')} {unit}"
        unit = "ml" if len(cases[0].shape) == 3 else "1000 pixels"
        for region in labelled[0].region_ml or ():
            volumes = [case.region_ml[region] for case in labelled if case.region_ml]
            lines[f"region {region}"] = f"{spread(volumes, '{:.2f}')} {unit}"
        lines["empty masks"] = f"{len(self.empty_cases)}" + (
            f" ({', '.join(self.empty_cases)})" if self.empty_cases else ""
        )
        return lines


def check_cohort(
    cohort: Cohort,
    *,
    channels: Sequence[str] | None = None,
    targets: Targets | None = None,
    advance: Callable[[], object] = lambda: None,
) -> Report:
    """Read everything, with the channels, labels and regions of a preset, or with the data set's
    own."""
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
        try:
            return summarize(case, names, values, targets)
        except DataError as error:
            return None, list(error.problems)
        finally:
            advance()

    summaries = []
    with ThreadPoolExecutor(available_cores()) as pool:
        for summary, found in pool.map(work, cohort.cases):
            problems += found
            if summary is not None:
                summaries.append(summary)
    return Report(cohort.layout, tuple(names), labels, summaries, problems)


def targets_of(cohort: Cohort) -> Targets:
    """The labels and regions that a data set names itself. Each label is a region unless it says
    otherwise."""
    regions = cohort.regions or {name: (name,) for name in cohort.labels}
    return Targets(cohort.labels, regions)


def summarize(
    case: Case,
    channels: Sequence[str],
    label_values: Mapping[int, int],
    targets: Targets,
) -> tuple[CaseSummary, list[Problem]]:
    volume = read_image(case, channels)
    problems = note_spikes(case.name, channels, volume)
    ranges, intensities = {}, {}
    for channel, array in zip(channels, volume.array, strict=True):
        ranges[channel] = (float(array.min()), float(array.max()))
        intensities[channel] = describe_intensities(array)
        if ranges[channel][0] == ranges[channel][1]:
            file = str(case.channels[channel].file)
            message = f"every voxel of channel {channel} is {ranges[channel][0]:g}"
            problems.append(Problem(case.name, file, message, "look at the image", "warning"))
    ml = prod(volume.spacing_mm) / 1000
    region_ml = label_voxels = None
    foreground: dict[str, tuple[float, float]] = {}
    if case.label is not None:
        label = read_label(case, label_values, volume.grid)
        label_voxels = {
            name: int(np.count_nonzero(label == value)) for name, value in targets.labels.items()
        }
        masks = targets.masks(label)
        region_ml = {
            name: float(np.count_nonzero(mask) * ml)
            for name, mask in zip(targets.regions, masks, strict=True)
        }
        if label.any():
            ends = (np.percentile(x[label > 0], (0.5, 99.5)).tolist() for x in volume.array)
            foreground = {
                channel: (low, high) for channel, (low, high) in zip(channels, ends, strict=True)
            }
    shape = tuple(volume.array.shape[1:])
    summary = CaseSummary(
        case.name,
        shape,
        volume.spacing_mm,
        ranges,
        foreground,
        label_voxels,
        region_ml,
        intensities,
    )
    return summary, problems


def spread(values: Sequence[float], form: str) -> str:
    """One number, or lowest, median and highest."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} / {form.format(median(values))} / {high}"


def spread_per_axis(values: Sequence[Sequence[float]], form: str) -> str:
    return " x ".join(
        f"({text})" if "/" in (text := spread(axis, form)) else text
        for axis in zip(*values, strict=True)
    )
