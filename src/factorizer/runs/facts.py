"""What a run says about itself: its preset, data, folds, machine, versions and time.

`evaluation/differences.py` compares these facts between runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from factorizer.config import build_options
from factorizer.evaluation.differences import SECONDS, SYSTEM, show
from factorizer.files import FileError
from factorizer.runs.fold import Fold
from factorizer.runs.records import Start
from factorizer.runs.run import Run

Fact = tuple[str, Any]  # what was set or found, and its value
SECTIONS = ("training", "data", "inference")  # of a preset
FROM_DATA = ("in_channels", "out_channels", "spatial_size")  # of a network; they follow the data
RECORDED = ("init", "device", "precision", "processes", "machine")  # of a start


def read_facts(folder: Path) -> dict[str, Any]:
    """Everything that a run, or one fold of it, says about itself. Empty if it is neither."""
    fold = Fold(folder)
    folds = [fold] if fold.exists else Run(folder).everything()
    facts = [dict(facts_of_fold(fold)) for fold in folds]
    values: dict[str, list[Any]] = {}
    for own in facts:
        for what, value in own.items():
            values.setdefault(what, []).append(value)
    merged = {what: merge(found) for what, found in values.items()}
    if SECONDS in merged:
        merged[SECONDS] = round(sum(values[SECONDS]), 1)
    return merged


def merge(values: Sequence[Any]) -> Any:
    """The value that all have in common, or a text that lists the different ones."""
    distinct: list[Any] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
    return distinct[0] if len(distinct) == 1 else " / ".join(map(show, distinct))


def facts_of_fold(fold: Fold) -> Iterator[Fact]:
    """Everything that a fold says about itself."""
    preset = fold.preset
    for section in SECTIONS:
        yield from flatten(section, getattr(preset, section).model_dump(mode="json"))
    yield f"{SYSTEM}name", preset.model.name
    for option, value in build_options(preset, preset.model.name).items():
        if option not in FROM_DATA:
            yield f"{SYSTEM}{option}", list(value) if isinstance(value, tuple) else value
    if fold.cases_file.is_file():
        cases = fold.cases()
        yield "cases", f"{len(cases)} (checksum {checksum(cases)})"
    if fold.run.folds_file.is_file():
        fold_of_case = fold.run.fold_of_case()
        folds = len(set(fold_of_case.values()))
        yield "folds", f"{folds} (checksum {checksum(fold_of_case)})"
        yield "held out", fold.path.name
    if fold.record_file.is_file():
        yield from facts_of_starts(fold.record_file, fold.starts())


def flatten(path: str, value: Any) -> Iterator[Fact]:
    """Every field of nested sections under its path."""
    if not isinstance(value, dict) or not value:
        yield path, value
        return
    for name, inner in value.items():
        yield from flatten(f"{path}.{name}", inner)


def facts_of_starts(file: Path, starts: Sequence[Start]) -> Iterator[Fact]:
    """What the starts of a training have in common, and how long it took. `file` has them."""
    yield from recorded("data folder", [start.get("data") for start in starts])
    for name in RECORDED:
        yield from recorded(name, [start[name] for start in starts if name in start])
    for package, versions in versions_of(file, starts).items():
        yield from recorded(f"version of {package}", versions)
    commits = [start["git"] for start in starts if start.get("git")]
    yield from recorded("commit of factorizer", commits)
    yield SECONDS, sum(training_seconds(file, start) for start in starts)


def recorded(what: str, values: Sequence[Any]) -> Iterator[Fact]:
    """A fact, if some start says it."""
    if values:
        yield what, merge(values)


def versions_of(file: Path, starts: Sequence[Start]) -> dict[str, list[Any]]:
    """The versions of each package, one per start that names it."""
    found: dict[str, list[Any]] = {}
    for start in starts:
        versions = start.get("versions", {})
        if not isinstance(versions, dict):
            raise FileError(file, "its versions are not names with numbers")
        for package, version in versions.items():
            found.setdefault(package, []).append(version)
    return found


def training_seconds(file: Path, start: Start) -> float:
    """How long the training of a start took."""
    seconds = start.get("seconds", {})
    value = seconds.get("training", 0) if isinstance(seconds, dict) else None
    if not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise FileError(file, f"its seconds are {show(seconds)}, not numbers by name")
    return float(value)


def checksum(content: Mapping[str, Any]) -> str:
    """A short checksum of a table."""
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
