"""dataset.json, which describes data sets of nnU-Net and of the Medical Segmentation Decathlon."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from factorizer.data.cases import HIGHEST_LABEL, Case, DataError, Source
from factorizer.data.naming import MOST_CHANNELS, unique_channels
from factorizer.errors import FactorizerError
from factorizer.files import FileError, read_json

DESCRIPTION = "dataset.json"
REMEDY = "compare it with a published one"
MOST_SHOWN = 60  # letters of a wrong value


class DescriptionError(FactorizerError):
    """A field of a dataset.json is missing or has another type."""


@contextmanager
def description_errors(folder: Path) -> Iterator[None]:
    """Every `DescriptionError` inside becomes a `DataError` about the folder's dataset.json."""
    try:
        yield
    except DescriptionError as error:
        raise DataError.about(folder / DESCRIPTION, str(error), REMEDY) from None


def read_description(folder: Path) -> dict[str, Any]:
    """The content of a folder's dataset.json. Empty if the folder has none."""
    file = folder / DESCRIPTION
    if not os.path.lexists(file):
        return {}
    try:
        description = read_json(file)
    except FileError as error:
        raise DataError.about(error.file, error.reason, error.remedy) from None
    if not isinstance(description, dict):
        raise DataError.about(file, "it holds no description", REMEDY)
    return description


def mapping_of(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        got = shorten(value)
        raise DescriptionError(f"{place} is {got}; it should be names with values in braces")
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
    """A whole number, 0 or more. It may be in quotation marks, because keys in JSON must be."""
    digits = str(value) if type(value) in (int, str) else ""
    if not re.fullmatch(r"[0-9]{1,9}", digits):
        got = shorten(value)
        raise DescriptionError(f"{place} is {got}; it should be a whole number, 0 or more")
    return int(digits)


def shorten(value: Any) -> str:
    """The beginning of a value as it is written in JSON."""
    if value is None:
        return "missing"
    text = json.dumps(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def parse_channels(names: Any, place: str) -> tuple[str, ...]:
    """The channels of a mapping from numbers to names, in the order of the numbers."""
    by_number: dict[int, str] = {}
    for key, name in mapping_of(names, place).items():
        number = number_of(key, f"a number of {place}")
        by_number[number] = text_of(name, f"channel {shorten(key)} of {place}")
    if len(by_number) > MOST_CHANNELS:
        raise DescriptionError(
            f"{place} names {len(by_number)} channels; at most {MOST_CHANNELS} are read"
        )
    return unique_channels(by_number[number] for number in sorted(by_number))


def check_labels(folder: Path, labels: Mapping[str, int]) -> None:
    """Refuse a description without labels, or with values that a label map cannot hold."""
    if labels and all(0 < value <= HIGHEST_LABEL for value in labels.values()):
        return
    listed = ", ".join(f"{name} = {value}" for name, value in labels.items())
    message = f"its labels are {listed or 'none'}"
    remedy = f"give labels with values from 1 to {HIGHEST_LABEL}"
    raise DataError.about(folder / DESCRIPTION, message, remedy)


def make_described_case(
    name: str, channels: Mapping[str, Source], label: Path | None, description: Mapping[str, Any]
) -> Case:
    """A case with its patient, as far as it can be guessed.

    The Decathlon's hippocampi 2k - 1 and 2k seem to be the two sides of one scan: in all 55 such
    pairs the median intensities differ by less than 8 %, while the scales of scans differ by orders
    of magnitude.
    """
    hippocampus = re.fullmatch(r"hippocampus_(\d{3})", name)
    is_synthetic = str(description.get("description", "")).startswith("Synthetic")
    if hippocampus is None or is_synthetic:
        return Case(name, channels, label)
    scan = (int(hippocampus[1]) + 1) // 2
    return Case(name, channels, label, f"hippocampus scan {scan}", patient_is_sure=False)
