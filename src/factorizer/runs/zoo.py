"""The zoo: trained models that ship with the package.

A model of the zoo is a fold that was copied into the package: its preset, its weights in half
precision with their checksum, the scores of its held-out cases, the cases it was trained on, and a
card. Some have faster speeds.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from factorizer.config import Preset
from factorizer.errors import ModelError
from factorizer.files import read_text, write_atomically
from factorizer.preset_files import zoo_folder
from factorizer.runs.fold import Fold
from factorizer.words import suggest

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RegionDice:
    """Mean Dice of held-out cases with its bootstrap interval."""

    region: str
    cases: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class ZooModel:
    """A model as the list of the zoo shows it."""

    name: str
    preset: Preset
    dice: tuple[RegionDice, ...]
    megabytes: float
    card: str


def zoo_names() -> list[str]:
    """The models of the zoo."""
    root = zoo_folder()
    if not root.is_dir():
        return []
    return sorted(folder.name for folder in root.iterdir() if Fold(folder).card_file.is_file())


def zoo_model(name: str) -> Fold:
    """A model of the zoo by name."""
    names = zoo_names()
    if name not in names:
        raise ModelError(f"the zoo has no model {name!r}{suggest(name, names, 'it has')}")
    return Fold(zoo_folder() / name)


def describe_model(name: str) -> ZooModel:
    """A model of the zoo with its scores, size and card."""
    fold = zoo_model(name)
    megabytes = fold.weights_file.stat().st_size / 1e6
    return ZooModel(name, fold.preset, region_dice(fold), megabytes, read_text(fold.card_file))


def region_dice(fold: Fold) -> tuple[RegionDice, ...]:
    """Mean Dice of every region with its interval."""
    from factorizer.evaluation.statistics import bootstrap_mean  # takes time to import

    values: dict[str, list[float]] = {}
    for row in fold.scores():
        if row.metric == "dice":
            values.setdefault(row.region, []).append(row.value)
    found = []
    for region, dices in values.items():
        mean = sum(dices) / len(dices)
        found.append(RegionDice(region, len(dices), mean, *bootstrap_mean(dices)))
    return tuple(found)


def write_model(source: Fold, weights: dict[str, Tensor], folder: Path) -> None:
    """Write a fold's model as a model of the zoo, without its card."""
    import torch
    from safetensors.torch import save

    halves = {}
    for name, value in weights.items():
        half = value.half() if value.is_floating_point() else value
        if not torch.isfinite(half).all():
            raise ModelError(
                f"some weights of {source.name} are beyond half precision; ship another model"
            )
        halves[name] = half.contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    model = Fold(folder)
    copies = {
        source.config_file: model.config_file,
        source.scores_file: model.scores_file,
        source.speeds_file: model.speeds_file,
    }
    for own, copy in copies.items():
        copy.unlink(missing_ok=True)
        if own.is_file():
            shutil.copyfile(own, copy)
    write_atomically(model.weights_file, save(halves))
    line = f"{sha256_of(model.weights_file)}  {model.weights_file.name}\n"  # as sha256sum writes it
    write_atomically(model.checksum_file, line)


def sha256_of(file: Path) -> str:
    """The checksum of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
