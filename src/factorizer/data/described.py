"""Data sets that a dataset.json describes: those of the Medical Segmentation Decathlon and of
nnU-Net."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from factorizer.data.cases import Case, Cohort, DataError, Problem, Source, make_cohort
from factorizer.data.naming import MOST_CHANNELS, strip_ending, unique_channels
from factorizer.data.walk import list_folder, missing_file
from factorizer.errors import FactorizerError
from factorizer.files import FileError, read_json


def read_description(folder: Path) -> dict[str, Any]:
    """The data set's dataset.json, or nothing."""
    file = folder / "dataset.json"
    if not os.path.lexists(file):
        return {}
    try:
        description = read_json(file)
    except FileError as error:
        raise DataError(Problem("", error.file, error.reason, error.remedy)) from None
    if not isinstance(description, dict):
        raise DataError(
            Problem("", str(file), "it holds no description", "compare it with a published one")
        )
    return description


class DescriptionError(FactorizerError):
    """A field of a dataset.json that is missing or of another kind."""


@contextmanager
def parsing(folder: Path) -> Iterator[None]:
    """While a description is taken apart, what is wrong with it is an error of its file."""
    try:
        yield
    except DescriptionError as error:
        file = str(folder / "dataset.json")
        raise DataError(Problem("", file, str(error), "compare it with a published one")) from None


def mapping_of(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DescriptionError(
            f"{place} is {shorten(value)}; it should be names with values in braces"
        )
    return value


def list_of(value: Any, place: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise DescriptionError(f"{place} is {shorten(value)}; it should be a list in brackets")
    return value


def text_of(value: Any, place: str) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise DescriptionError(f"{place} is {shorten(value)}; it should be text in quotation marks")
    return value


def number_of(value: Any, place: str) -> int:
    """A whole number from 0 on, also in quotation marks, as keys must be."""
    digits = str(value) if type(value) in (int, str) else ""
    if not re.fullmatch(r"[0-9]{1,9}", digits):
        raise DescriptionError(
            f"{place} is {shorten(value)}; it should be a whole number, 0 or more"
        )
    return int(digits)


def shorten(value: Any) -> str:
    """A value as it stands in JSON, or its beginning; a field that is missing is null."""
    text = json.dumps(value)
    if value is None:
        return "missing"
    return text if len(text) <= 60 else f"{text[:60]}..."


def parse_channels(names: Any, place: str) -> tuple[str, ...]:
    """Names by number, in their order."""
    by_number: dict[int, str] = {}
    for key, name in mapping_of(names, place).items():
        by_number[number_of(key, f"a number of {place}")] = text_of(
            name, f"channel {shorten(key)} of {place}"
        )
    if len(by_number) > MOST_CHANNELS:
        raise DescriptionError(
            f"{place} names {len(by_number)} channels; at most {MOST_CHANNELS} are read"
        )
    return unique_channels(by_number[number] for number in sorted(by_number))


def read_msd(folder: Path, description: Mapping[str, Any]) -> Cohort | None:
    """Medical Segmentation Decathlon: all channels of a case in one file."""
    if not description.get("modality"):
        return None
    files: list[tuple[Path, Path | None]] = []
    with parsing(folder):
        channels = parse_channels(description["modality"], "modality")
        labels = parse_msd_labels(description.get("labels"))
        for entry in list_of(description.get("training"), "training"):
            paths = mapping_of(entry, "an entry of training")
            image = folder / text_of(paths.get("image"), "image of an entry of training")
            has_label = bool(paths.get("label"))
            label = (
                folder / text_of(paths["label"], "label of an entry of training")
                if has_label
                else None
            )
            files.append((image, label))
    cases, problems = [], []
    for image, label in files:
        name = strip_ending(image.name)
        missing = [file for file in (image, label) if file is not None and not os.path.isfile(file)]
        if missing:
            problems += [missing_file(name, file, "dataset.json lists it") for file in missing]
            continue
        sources = {
            channel: Source(image, index, len(channels)) for index, channel in enumerate(channels)
        }
        cases.append(numbered_case(name, sources, label, description))
    return make_cohort(folder, "msd", cases, channels, labels, problems)


def parse_msd_labels(labels: Any) -> dict[str, int]:
    """Names by value, without the background; here values by name."""
    values: dict[str, int] = {}
    for value, name in mapping_of(labels, "labels").items():
        number = number_of(value, "a value of labels")
        if number:
            values[text_of(name, f"label {number}")] = number
    return values


def numbered_case(
    name: str, channels: Mapping[str, Source], label: Path | None, about: Mapping[str, Any]
) -> Case:
    """Its number tells the patient of the Decathlon's hippocampi: 2k - 1 and 2k are taken as two
    sides of a scan, as the medians of all 55 such pairs that were seen are within 8 %, while scales
    differ by orders of magnitude."""
    number = re.fullmatch(r"hippocampus_(\d{3})", name)
    if number is None or str(about.get("description", "")).startswith("Synthetic"):
        return Case(name, channels, label)
    return Case(
        name,
        channels,
        label,
        f"hippocampus scan {(int(number[1]) + 1) // 2}",
        patient_is_sure=False,
    )


def read_nnunet(folder: Path, description: Mapping[str, Any]) -> Cohort | None:
    """nnU-Net raw data: one file per channel, numbered; labels by name, or regions as lists of
    values."""
    if not description.get("channel_names"):
        return None
    with parsing(folder):
        channels = parse_channels(description["channel_names"], "channel_names")
        ending = text_of(description.get("file_ending", ".nii.gz"), "file_ending")
        entries = dict(mapping_of(description.get("labels"), "labels"))
        ignored = number_of(entries.pop("ignore"), "ignore") if "ignore" in entries else None
        labels, regions = read_nnunet_labels(entries)
    problems = []
    values: dict[int, int] = {}
    if ignored is not None:
        values[ignored] = 0
        message, remedy = (
            "voxels labelled ignore are read as background",
            "leave them out of the data if that is wrong",
        )
        problems.append(Problem("", str(folder / "dataset.json"), message, remedy, "warning"))
    cases, wrong = number_cases(folder, channels, ending, description)
    values |= {0: 0, **{value: value for value in labels.values()}}
    meaning: dict[str, Any] = {"label_values": values, "regions": regions, "ignored": ignored}
    return make_cohort(folder, "nnunet", cases, channels, labels, [*problems, *wrong], **meaning)


def number_cases(
    folder: Path, channels: tuple[str, ...], ending: str, description: Mapping[str, Any]
) -> tuple[list[Case], list[Problem]]:
    """The cases of imagesTr with a file for every channel, and what is wrong with others."""
    cases, problems = [], []
    for name, numbered in find_numbered(folder / "imagesTr", ending).items():
        absent = [index for index in range(len(channels)) if index not in numbered]
        extra = [index for index in numbered if index >= len(channels)]
        if absent:
            wanted = folder / "imagesTr" / f"{name}_{absent[0]:04d}{ending}"
            problems.append(missing_file(name, wanted, f"channel {channels[absent[0]]}"))
            continue
        if extra:
            message = f"there are {len(numbered)} channels, but dataset.json names {len(channels)}"
            problems.append(
                Problem(
                    name, str(numbered[extra[0]]), message, "remove the file, or name the channel"
                )
            )
            continue
        label = folder / "labelsTr" / f"{name}{ending}"
        sources = {channel: Source(numbered[index]) for index, channel in enumerate(channels)}
        cases.append(numbered_case(name, sources, label if label.is_file() else None, description))
        if not label.is_file():
            problems.append(missing_file(name, label, "its label"))
    return cases, problems


def find_numbered(folder: Path, ending: str) -> dict[str, dict[int, Path]]:
    """Files CASE_0000, CASE_0001, ... by case and number."""
    pattern = re.compile(rf"(.+)_(\d{{4}}){re.escape(ending)}")
    files: dict[str, dict[int, Path]] = {}
    for file in list_folder(folder):
        match = pattern.fullmatch(file.name)
        if match:
            files.setdefault(match[1], {})[int(match[2])] = file
    return files


def read_nnunet_labels(
    entries: Mapping[str, Any],
) -> tuple[dict[str, int], dict[str, tuple[str, ...]]]:
    """Labels by name; an entry with several values is a region over labels named by their
    values."""
    lists: dict[str, list[int]] = {}
    for name, entry in entries.items():
        values = [
            number_of(value, f"label {name}")
            for value in (entry if isinstance(entry, list) else [entry])
        ]
        if values != [0]:
            lists[name] = values
    if all(len(values) == 1 for values in lists.values()):
        return {name: values[0] for name, values in lists.items()}, {}
    single = {values[0]: name for name, values in lists.items() if len(values) == 1}
    every = sorted({value for values in lists.values() for value in values})
    names = {value: single.get(value, f"label{value}") for value in every}
    return {names[v]: v for v in every}, {
        name: tuple(names[v] for v in values) for name, values in lists.items()
    }
