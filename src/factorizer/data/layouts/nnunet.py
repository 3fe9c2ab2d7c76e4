"""nnU-Net raw data: dataset.json with `channel_names`, a file per channel (CASE_0000.nii.gz)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factorizer.data.cases import (
    Case,
    Cohort,
    DataError,
    Problem,
    Source,
    keep_values,
    make_cohort,
    missing_channels,
)
from factorizer.data.layouts.description import (
    DESCRIPTION,
    check_labels,
    description_errors,
    make_described_case,
    mapping_of,
    number_of,
    parse_channels,
    read_description,
    text_of,
)
from factorizer.data.walk import list_folder, missing_file

IGNORE = "ignore"  # the label of voxels that nobody judged


@dataclass(frozen=True)
class Files:
    """Where the files of a data set are, and how they are named."""

    folder: Path
    ending: str
    channels: tuple[str, ...]

    def image(self, case: str, index: int) -> Path:
        return self.folder / "imagesTr" / f"{case}_{index:04d}{self.ending}"

    def label(self, case: str) -> Path:
        return self.folder / "labelsTr" / f"{case}{self.ending}"


def read_nnunet(folder: Path) -> Cohort | None:
    """The cohort of imagesTr and labelsTr."""
    description = read_description(folder)
    if not description.get("channel_names"):
        return None
    with description_errors(folder):
        channels = parse_channels(description["channel_names"], "channel_names")
        ending = text_of(description.get("file_ending", ".nii.gz"), "file_ending")
        entries = dict(mapping_of(description.get("labels"), "labels"))
        ignored = number_of(entries.pop(IGNORE), IGNORE) if IGNORE in entries else None
        labels, regions = parse_labels(entries)
    check_labels(folder, labels)
    problems = [] if ignored is None else [note_ignored(folder)]
    background = {} if ignored is None else {ignored: 0}
    files = Files(folder, ending, channels)
    cases: list[Case] = []
    as_found: list[Case] = []
    for name, numbered in find_images(files).items():
        try:
            case = make_case(name, numbered, files, description)
        except DataError as error:
            problems += error.problems
            continue
        as_found.append(case)
        missing = missing_channels(case, channels)
        if missing:
            problems.append(missing_image(name, missing[0], files))
            continue
        cases.append(case)
        if case.label is None:
            problems.append(missing_file(name, files.label(name), "its label"))
    return make_cohort(
        folder,
        layout="nnunet",
        cases=cases,
        channels=channels,
        labels=labels,
        problems=problems,
        label_values=background | keep_values(labels),
        regions=regions,
        ignored=ignored,
        as_found=as_found,
    )


def note_ignored(folder: Path) -> Problem:
    message = f"voxels labelled {IGNORE} are read as background"
    remedy = "leave them out of the data if that is wrong"
    return Problem("", str(folder / DESCRIPTION), message, remedy, "warning")


def find_images(files: Files) -> dict[str, dict[int, Path]]:
    """The images by case and by number of the channel."""
    pattern = re.compile(rf"(.+)_(\d{{4}}){re.escape(files.ending)}")
    images: dict[str, dict[int, Path]] = {}
    for file in list_folder(files.folder / "imagesTr"):
        match = pattern.fullmatch(file.name)
        if match:
            images.setdefault(match[1], {})[int(match[2])] = file
    return images


def make_case(
    name: str, numbered: Mapping[int, Path], files: Files, description: Mapping[str, Any]
) -> Case:
    """A case with the channels that exist. Files with higher numbers are refused."""
    channels = files.channels
    sources = {
        channel: Source(numbered[index])
        for index, channel in enumerate(channels)
        if index in numbered
    }
    extra = [file for index, file in numbered.items() if index >= len(channels)]
    if extra:
        for channel in channels:
            if channel not in sources:
                raise DataError(missing_image(name, channel, files))
        message = f"there are {len(numbered)} channels, but dataset.json names {len(channels)}"
        raise DataError.about(
            extra[0], message, "remove the file, or name the channel in dataset.json", case=name
        )
    label = files.label(name)
    return make_described_case(name, sources, label if label.is_file() else None, description)


def missing_image(case: str, channel: str, files: Files) -> Problem:
    """The problem of a case without the file of a channel."""
    file = files.image(case, files.channels.index(channel))
    return missing_file(case, file, f"channel {channel}")


def parse_labels(entries: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, tuple[str, ...]]]:
    """Labels by name, and regions.

    If an entry has several values, all entries are regions. A label is then named by the entry that
    has its value alone, otherwise label1, label2, ...
    """
    values_of: dict[str, list[int]] = {}
    for name, entry in entries.items():
        listed = entry if isinstance(entry, list) else [entry]
        values = [number_of(value, f"label {name}") for value in listed]
        if values != [0]:
            values_of[name] = values
    if all(len(values) == 1 for values in values_of.values()):
        return {name: values[0] for name, values in values_of.items()}, {}
    alone = {values[0]: name for name, values in values_of.items() if len(values) == 1}
    every = sorted(set[int]().union(*values_of.values()))
    names = {value: alone.get(value, f"label{value}") for value in every}
    labels = {name: value for value, name in names.items()}
    regions = {}
    for name, values in values_of.items():
        regions[name] = tuple(names[value] for value in values)
    return labels, regions
