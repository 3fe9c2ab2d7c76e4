"""The rules of post-processing: which lesions of each region are kept.

They are stored with a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

from factorizer.files import FileError, read_json, write_atomically

FILE = "postprocessing.json"
REMEDY = "choose the rules again with `factorizer postprocess`"


@dataclass(frozen=True)
class Cleaning:
    """The lesions of a region that are kept: those of at least some volume, or only the largest."""

    min_volume_ml: float = 0.0
    largest: bool = False

    def __str__(self) -> str:
        parts = []
        if self.min_volume_ml:
            parts.append(f"at least {self.min_volume_ml:g} ml")
        if self.largest:
            parts.append("the largest lesion")
        return ", ".join(parts) or "everything"


Rules = Mapping[str, Cleaning]  # by region


def write_rules(file: Path, rules: Rules) -> None:
    content = {region: asdict(rule) for region, rule in rules.items()}
    write_atomically(file, json.dumps(content, indent=2) + "\n")


def read_rules(file: Path, regions: Sequence[str]) -> dict[str, Cleaning]:
    """The rules in a file. They may name these regions only."""
    content = read_json(file)
    if not isinstance(content, dict):
        raise FileError(file, "it holds no rules by region", REMEDY)
    for region in content:
        if region not in regions:
            message = f"it is about the region {region}; the model has {', '.join(regions)}"
            raise FileError(file, message, REMEDY)
    return {region: read_rule(file, region, rule) for region, rule in content.items()}


def read_rule(file: Path, region: str, rule: Any) -> Cleaning:
    """The rule of one region."""
    if not isinstance(rule, dict) or not set(rule) <= {"min_volume_ml", "largest"}:
        message = f"the rule of {region} is {rule!r}; it may have min_volume_ml and largest"
        raise FileError(file, message, REMEDY)
    volume, largest = rule.get("min_volume_ml", 0.0), rule.get("largest", False)
    if isinstance(volume, bool) or not isinstance(volume, int | float) or not 0 <= volume < inf:
        message = f"min_volume_ml of {region} is {volume!r}; it must be a number of at least 0"
        raise FileError(file, message, REMEDY)
    if not isinstance(largest, bool):
        message = f"largest of {region} is {largest!r}; it must be true or false"
        raise FileError(file, message, REMEDY)
    return Cleaning(volume, largest)
