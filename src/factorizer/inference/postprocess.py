"""Post-processing of label maps, region by region: drop small lesions, or keep the largest
component only.

It is off unless asked for. What is stored with a run was chosen on the held-out cases of its
cross-validation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf, prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import label as find_components

from factorizer.errors import FactorizerError
from factorizer.files import FileError, read_json, write_atomically
from factorizer.inference.zoo import display_name
from factorizer.targets import Targets

Array = NDArray[Any]
FILE = "postprocessing.json"
AGAIN = "choose it again with `factorizer postprocess`"


@dataclass(frozen=True)
class Cleaning:
    """What is kept of a region: components of at least some volume, and perhaps only the
    largest."""

    min_volume_ml: float = 0.0
    largest: bool = False

    def __str__(self) -> str:
        parts = [f"at least {self.min_volume_ml:g} ml"] if self.min_volume_ml else []
        return (
            ", ".join([*parts, *(["the largest component"] if self.largest else [])])
            or "everything"
        )


Rules = Mapping[str, Cleaning]  # region -> what is kept of it


def clean_mask(mask: Array, rule: Cleaning, spacing_mm: Sequence[float]) -> Array:
    """A mask without the components that a rule drops."""
    if not mask.any() or (not rule.largest and not rule.min_volume_ml):
        return mask
    components, _ = find_components(mask, np.ones((3,) * mask.ndim))
    sizes = np.bincount(components.ravel())
    sizes[0] = 0
    keep = sizes * (prod(spacing_mm) / 1000) >= max(rule.min_volume_ml, 1e-12)
    if rule.largest:
        keep &= np.arange(len(sizes)) == sizes.argmax()
    return keep[components]


def clean_labels(
    label_map: Array,
    rules: Rules,
    *,
    targets: Targets,
    spacing_mm: Sequence[float],
) -> NDArray[np.uint8]:
    """A label map whose regions are cleaned. What a region loses goes to the region around it, if
    there is one."""
    if not rules:
        return label_map
    regions = targets.regions
    masks = dict(zip(regions, targets.masks(label_map), strict=True))
    for region in sorted(regions, key=lambda name: -len(regions[name])):
        masks[region] = clean_mask(masks[region], rules.get(region, Cleaning()), spacing_mm)
        for inner, names in regions.items():
            if set(names) < set(regions[region]):  # what is dropped around it is dropped inside too
                masks[inner] &= masks[region]
    return targets.label_map(np.stack(list(masks.values())))


CANDIDATES = [
    Cleaning(volume, largest)
    for largest in (False, True)
    for volume in (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
]


def try_candidates(prediction: Array, reference: Array, spacing_mm: Sequence[float]) -> list[float]:
    """The Dice of a region's mask after each candidate; the first is that of the mask as it is."""
    from factorizer.evaluation.metrics import (
        dice,
    )  # with parts of SciPy that prediction does without

    return [dice(clean_mask(prediction, rule, spacing_mm), reference) for rule in CANDIDATES]


def choose(scores: Sequence[Sequence[float]]) -> int:
    """The candidate with the highest mean over cases; the gentlest of those that are alike."""
    return int(np.asarray(scores).mean(0).round(6).argmax())


def write_rules(folder: Path, rules: Rules) -> Path:
    write_atomically(
        folder / FILE,
        json.dumps({name: asdict(rule) for name, rule in rules.items()}, indent=2) + "\n",
    )
    return folder / FILE


def read_rules(folder: Path, regions: Sequence[str]) -> dict[str, Cleaning]:
    """The rules stored with a run, in its folder or the one above a fold's."""
    file = next((f / FILE for f in (folder, folder.parent) if (f / FILE).is_file()), None)
    if file is None:
        name = display_name(folder)
        raise FactorizerError(
            f"{name} has no {FILE}; `factorizer postprocess` chooses one on its cross-validation"
        )
    content = read_json(file)
    if not isinstance(content, dict):
        raise FileError(file, "it holds no rules by region", AGAIN)
    unknown = [name for name in content if name not in regions]
    if unknown:
        raise FileError(
            file, f"it is about the region {unknown[0]}; the model has {', '.join(regions)}", AGAIN
        )
    return {name: read_rule(file, name, rule) for name, rule in content.items()}


def read_rule(file: Path, region: str, rule: Any) -> Cleaning:
    """What is kept of a region, as the file says."""
    if not isinstance(rule, dict) or not set(rule) <= {"min_volume_ml", "largest"}:
        raise FileError(file, f"of {region} it says {rule!r}, not min_volume_ml and largest", AGAIN)
    volume, largest = rule.get("min_volume_ml", 0.0), rule.get("largest", False)
    if isinstance(volume, bool) or not isinstance(volume, int | float) or not 0 <= volume < inf:
        raise FileError(
            file, f"min_volume_ml of {region} is {volume!r}, not a number from 0 on", AGAIN
        )
    if not isinstance(largest, bool):
        raise FileError(file, f"largest of {region} is {largest!r}, not true or false", AGAIN)
    return Cleaning(volume, largest)
