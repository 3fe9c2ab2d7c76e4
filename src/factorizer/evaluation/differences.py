"""What differs between the runs that are compared, as far as they wrote it down.

A run's config.yaml says its settings, run.json where and how it was trained, cases.json what its
data were (a checksum of each case's files and preprocessing), and folds.json which cases were held
out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factorizer.config import build_options
from factorizer.data.folds import read_fold_of
from factorizer.files import FileError, read_json
from factorizer.preset_files import load_preset, scalar

UNKNOWN = "unknown"
SYSTEM = "model."  # before the settings that are the system's own
FROM_DATA = (
    "in_channels",
    "out_channels",
    "spatial_size",
)  # options of a network that follow from the data
RECORDED = ("init", "device", "precision", "processes", "machine")  # of run.json
SECONDS = "seconds of training"
LONGEST = 80  # characters of a value that is shown

Facts = Mapping[str, Any]  # what was set or found -> its value


@dataclass(frozen=True)
class RunDifference:
    """One thing that is not the same in all runs: its value in each, by the system's name."""

    what: str
    values: Mapping[str, Any]

    @property
    def is_the_system(self) -> bool:
        return self.what.startswith(SYSTEM)


def read_facts(run: Path) -> dict[str, Any]:
    """Everything that a run, or one fold of it, says about itself; nothing where there is no
    run."""
    folders = (
        [run]
        if (run / "config.yaml").is_file()
        else [file.parent for file in run.glob("fold*/config.yaml")]
    )
    folders.sort(key=lambda folder: (len(folder.name), folder.name))  # fold 2 before fold 10
    facts = [dict(facts_of_fold(folder)) for folder in folders]
    merged = {
        what: merge([own[what] for own in facts if what in own]) for own in facts for what in own
    }
    if SECONDS in merged:
        merged[SECONDS] = round(sum(own.get(SECONDS, 0) for own in facts), 1)
    return merged


def merge(values: Sequence[Any]) -> Any:
    """The value that all folds have, or each of theirs."""
    distinct = [value for index, value in enumerate(values) if value not in values[:index]]
    return distinct[0] if len(distinct) == 1 else " / ".join(map(show, distinct))


def facts_of_fold(folder: Path) -> Iterator[tuple[str, Any]]:
    preset = load_preset(folder / "config.yaml")
    for section in ("training", "data", "inference"):
        yield from flatten(section, getattr(preset, section).model_dump(mode="json"))
    yield f"{SYSTEM}name", preset.model.name
    for option, value in build_options(preset, preset.model.name).items():
        if option not in FROM_DATA:
            yield f"{SYSTEM}{option}", list(value) if isinstance(value, tuple) else value
    if (folder / "cases.json").is_file():
        yield "cases", describe_cases(folder / "cases.json")
    folds = folder.parent / "folds.json"
    if folds.is_file():
        fold_of = read_fold_of(folds)
        yield "folds", f"{len(set(fold_of.values()))} (checksum {checksum(fold_of)})"
        yield "held out", folder.name
    if (folder / "run.json").is_file():
        yield from facts_of_starts(folder / "run.json")


def flatten(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every field of nested sections under its path."""
    if not isinstance(value, dict) or not value:
        yield path, value
        return
    for name, inner in value.items():
        yield from flatten(f"{path}.{name}", inner)


def describe_cases(file: Path) -> str:
    content = read_json(file)
    if not isinstance(content, dict):
        raise FileError(file, "it does not hold the cases of a run")
    return f"{len(content)} (checksum {checksum(content)})"


def facts_of_starts(file: Path) -> Iterator[tuple[str, Any]]:
    """What run.json says of all starts of a run."""
    starts = read_json(file)
    if not isinstance(starts, list) or not all(isinstance(start, dict) for start in starts):
        raise FileError(file, "it is not the record of a run, which is a list of its starts")
    yield from recorded("data folder", [start.get("data") for start in starts])
    for name in RECORDED:
        yield from recorded(name, [start[name] for start in starts if name in start])
    versions = [start.get("versions", {}) for start in starts]
    if not all(isinstance(own, dict) for own in versions):
        raise FileError(file, "its versions are not names with numbers")
    for package in dict.fromkeys(name for own in versions for name in own):
        yield from recorded(
            f"version of {package}", [own[package] for own in versions if package in own]
        )
    yield from recorded(
        "commit of factorizer", [start["git"] for start in starts if start.get("git")]
    )
    yield SECONDS, sum(training_seconds(file, start) for start in starts)


def recorded(what: str, values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    if values:
        yield what, merge(values)


def training_seconds(file: Path, start: Mapping[str, Any]) -> float:
    seconds = start.get("seconds", {})
    value = seconds.get("training", 0) if isinstance(seconds, dict) else None
    if not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise FileError(file, f"its seconds are {show(seconds)}, not numbers by name")
    return float(value)


def checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def find_differences(facts: Mapping[str, Facts]) -> list[RunDifference]:
    """The facts that have at least two values among the runs that state them.

    An option that only some systems have is not a difference.
    """
    found = []
    for what in stated(facts):
        values = {name: own.get(what, UNKNOWN) for name, own in facts.items()}
        distinct = {show(own[what]) for own in facts.values() if what in own}
        if len(distinct) > 1:
            found.append(RunDifference(what, values))
    return found


def stated(facts: Mapping[str, Facts]) -> list[str]:
    """Everything that some run states, in the order of the runs."""
    names: dict[str, None] = {}
    for own in facts.values():
        names |= dict.fromkeys(own)
    return list(names)


def find_unknown(facts: Mapping[str, Facts]) -> list[str]:
    """A line for each run that does not state everything."""
    missing = {
        "cases": "which data (no cases.json)",
        "folds": "which folds (no folds.json)",
        SECONDS: "versions and time (no run.json)",
    }
    lines = []
    for name, own in facts.items():
        unstated = [text for what, text in missing.items() if what not in own]
        if not own:
            lines.append(f"{name}: unknown, because no run (config.yaml) is beside its scores")
        elif unstated:
            lines.append(f"{name}: unknown are {', '.join(unstated)}")
    return lines


def show(value: Any) -> str:
    """A value as a preset writes it, on one line. Long values are cut."""
    text = value if isinstance(value, str) else scalar(value)
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
