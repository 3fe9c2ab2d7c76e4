"""The zoo: trained models that ship with the package.

A model is a folder of the package's `zoo` with config.yaml, weights.safetensors, their checksum
weights.sha256, card.md, and scores.csv, the scores of the cases that were held out; with
speeds.json where faster settings were tuned.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from factorizer.config import Preset
from factorizer.errors import FactorizerError
from factorizer.files import write_atomically
from factorizer.models.registry import suggestion
from factorizer.preset_files import ZOO, ZOO_FOLDER, load_preset

WEIGHTS, CHECKSUM = "weights.safetensors", "weights.sha256"
FILES = (
    "config.yaml",
    "scores.csv",
    "speeds.json",
)  # that a model has from its run, beside its weights


class ModelError(FactorizerError):
    """A trained model that cannot be found or used."""


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
    """What the list says about a model."""

    name: str
    preset: Preset
    dice: tuple[RegionDice, ...]
    megabytes: float
    card: str


def zoo_names() -> list[str]:
    return (
        sorted(f.name for f in ZOO_FOLDER.iterdir() if (f / "card.md").is_file())
        if ZOO_FOLDER.is_dir()
        else []
    )


def zoo_folder(name: str) -> Path:
    if name not in zoo_names():
        known = ", ".join(zoo_names()) or "no model"
        raise ModelError(
            f"the zoo has no model {name!r}{suggestion(name, zoo_names())}; it has {known}"
        )
    return Path(str(ZOO_FOLDER / name))


def display_name(folder: Path) -> str:
    """A model's folder as messages name it: zoo:NAME, wherever the package is installed, or the
    path."""
    return f"{ZOO}{folder.name}" if folder.parent == Path(str(ZOO_FOLDER)) else str(folder)


def read_config(folder: Path) -> Preset:
    """The preset that a model was trained with."""
    name = display_name(folder)
    return load_preset(name if name.startswith(ZOO) else folder / "config.yaml")


def describe_model(name: str) -> ZooModel:
    folder = zoo_folder(name)
    size = (folder / WEIGHTS).stat().st_size / 1e6
    dice = region_dice(folder / "scores.csv")
    return ZooModel(name, read_config(folder), dice, size, (folder / "card.md").read_text())


def region_dice(scores: Path) -> tuple[RegionDice, ...]:
    """Mean Dice of every region with its interval."""
    from factorizer.evaluation.scores import (
        read_scores,
    )  # with SciPy's statistics, which prediction does without
    from factorizer.evaluation.statistics import bootstrap_mean

    values: dict[str, list[float]] = {}
    for row in read_scores(scores):
        if row.metric == "dice":
            values.setdefault(row.region, []).append(row.value)
    return tuple(
        RegionDice(region, len(of), sum(of) / len(of), *bootstrap_mean(of))
        for region, of in values.items()
    )


def write_model(run: Path, weights: dict[str, Tensor], folder: Path) -> None:
    """A fold's model as a zoo folder without its card, the weights in half precision, with their
    checksum."""
    from safetensors.torch import save

    halves = {
        name: value.half() if value.is_floating_point() else value
        for name, value in weights.items()
    }
    if not all(torch.isfinite(value).all() for value in halves.values()):
        raise ModelError(f"some weights of {run} are beyond half precision")
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
        if (run / name).is_file():
            shutil.copyfile(run / name, folder / name)
    write_atomically(folder / WEIGHTS, save({name: v.contiguous() for name, v in halves.items()}))
    write_atomically(
        folder / CHECKSUM, f"{sha256_of(folder / WEIGHTS)}  {WEIGHTS}\n"
    )  # as sha256sum writes it


def sha256_of(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
