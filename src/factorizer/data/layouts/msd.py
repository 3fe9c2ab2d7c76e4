"""Medical Segmentation Decathlon: dataset.json with `modality`, one file per case."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from factorizer.data.cases import Cohort, make_cohort, sources_in_one_file
from factorizer.data.layouts.description import (
    check_labels,
    description_errors,
    list_of,
    make_described_case,
    mapping_of,
    number_of,
    parse_channels,
    read_description,
    text_of,
)
from factorizer.data.naming import strip_ending
from factorizer.data.walk import missing_file


def read_msd(folder: Path) -> Cohort | None:
    """The cohort that `training` in dataset.json lists."""
    description = read_description(folder)
    if not description.get("modality"):
        return None
    with description_errors(folder):
        channels = parse_channels(description["modality"], "modality")
        labels = parse_labels(description.get("labels"))
        files = parse_files(folder, description)
    check_labels(folder, labels)
    cases, problems = [], []
    for image, label in files:
        name = strip_ending(image.name)
        listed = [image] if label is None else [image, label]
        missing = [file for file in listed if not os.path.isfile(file)]
        problems += [missing_file(name, file, "dataset.json lists it") for file in missing]
        if not missing:
            sources = sources_in_one_file(image, channels)
            cases.append(make_described_case(name, sources, label, description))
    return make_cohort(
        folder, layout="msd", cases=cases, channels=channels, labels=labels, problems=problems
    )


def parse_labels(labels: Any) -> dict[str, int]:
    """Values by name, without the background. The file has names by value."""
    values: dict[str, int] = {}
    for value, name in mapping_of(labels, "labels").items():
        number = number_of(value, "a value of labels")
        if number > 0:
            values[text_of(name, f"label {number}")] = number
    return values


def parse_files(folder: Path, description: Mapping[str, Any]) -> list[tuple[Path, Path | None]]:
    """The image and the label, if any, of each case to train on."""
    files: list[tuple[Path, Path | None]] = []
    for entry in list_of(description.get("training"), "training"):
        paths = mapping_of(entry, "an entry of training")
        image = folder / text_of(paths.get("image"), "image of an entry of training")
        label = None
        if paths.get("label"):
            label = folder / text_of(paths["label"], "label of an entry of training")
        files.append((image, label))
    return files
