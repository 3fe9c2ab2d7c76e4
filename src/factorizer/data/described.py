"""Data sets that a dataset.json describes: those of the Medical Segmentation Decathlon and of nnU-Net."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from factorizer.data.cases import Case, Cohort, DataError, Problem, Source, make_cohort
from factorizer.data.naming import MOST_CHANNELS, strip_ending, unique_channels
from factorizer.data.walk import list_folder, missing_file
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
        raise DataError(Problem("", str(file), "it holds no description", "compare it with a published one"))
    return description


@contextmanager
def parsing(folder: Path) -> Iterator[None]:
    """While a description is taken apart, a field that is missing or of another type is an error of its file."""
    try:
        yield
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        message = f"it does not say what it should ({type(error).__name__}: {str(error)[:200]})"
        raise DataError(Problem("", f"{folder}/dataset.json", message, "compare it with a published one")) from None


def text_of(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:80]!r} is no text")
    return value


def parse_channels(names: Mapping[str, Any]) -> tuple[str, ...]:
    """Names by number, in their order."""
    if len(names) > MOST_CHANNELS:
        raise ValueError(f"{len(names)} channels; at most {MOST_CHANNELS} are read")
    return unique_channels(text_of(names[key]) for key in sorted(names, key=int))


def read_msd(folder: Path, description: Mapping[str, Any]) -> Cohort | None:
    """Medical Segmentation Decathlon: all channels of a case in one file."""
    if not description.get("modality"):
        return None
    files: list[tuple[Path, Path | None]] = []
    with parsing(folder):
        channels = parse_channels(description["modality"])
        labels = {str(name): int(value) for value, name in description["labels"].items() if int(value)}
        for entry in description["training"]:
            label = folder / text_of(entry["label"]) if entry.get("label") else None
            files.append((folder / text_of(entry["image"]), label))
    cases, problems = [], []
    for image, label in files:
        name = strip_ending(image.name)
        missing = [file for file in (image, label) if file is not None and not os.path.isfile(file)]
        if missing:
            problems += [missing_file(name, file, "dataset.json lists it") for file in missing]
            continue
        sources = {channel: Source(image, index, len(channels)) for index, channel in enumerate(channels)}
        cases.append(numbered_case(name, sources, label, description))
    return make_cohort(folder, "msd", cases, channels, labels, problems)


def numbered_case(name: str, channels: Mapping[str, Source], label: Path | None, about: Mapping[str, Any]) -> Case:
    """Its number tells the patient of the Decathlon's hippocampi: 2k - 1 and 2k are taken as two sides of a scan, as
    the medians of all 55 such pairs that were seen are within 8 %, while scales differ by orders of magnitude."""
    number = re.fullmatch(r"hippocampus_(\d{3})", name)
    if number is None or str(about.get("description", "")).startswith("Synthetic"):
        return Case(name, channels, label)
    return Case(name, channels, label, f"hippocampus scan {(int(number[1]) + 1) // 2}", patient_is_sure=False)


def read_nnunet(folder: Path, description: Mapping[str, Any]) -> Cohort | None:
    """nnU-Net raw data: one file per channel, numbered; labels by name, or regions as lists of values."""
    if not description.get("channel_names"):
        return None
    with parsing(folder):
        channels = parse_channels(description["channel_names"])
        ending = text_of(description.get("file_ending", ".nii.gz"))
        entries = dict(description["labels"])
        ignored = int(entries.pop("ignore")) if "ignore" in entries else None
        labels, regions = read_nnunet_labels(entries)
    problems = []
    values: dict[int, int] = {}
    if ignored is not None:
        values[ignored] = 0
        message, remedy = "voxels labelled ignore are read as background", "leave them out of the data if that is wrong"
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
            problems.append(Problem(name, str(numbered[extra[0]]), message, "remove the file, or name the channel"))
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


def read_nnunet_labels(entries: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, tuple[str, ...]]]:
    """Labels by name; an entry with several values is a region over labels named by their values."""
    lists = {name: [int(v) for v in (value if isinstance(value, list) else [value])] for name, value in entries.items()}
    lists = {name: values for name, values in lists.items() if values != [0]}
    if all(len(values) == 1 for values in lists.values()):
        return {name: values[0] for name, values in lists.items()}, {}
    single = {values[0]: name for name, values in lists.items() if len(values) == 1}
    every = sorted({value for values in lists.values() for value in values})
    names = {value: single.get(value, f"label{value}") for value in every}
    return {names[v]: v for v in every}, {name: tuple(names[v] for v in values) for name, values in lists.items()}
