"""Records of predictions: a small file per case in the hidden folder .factorizer beside them.

A record says which model, options and inputs made a prediction, and has a checksum of every file.
It is written before the files are moved to their place, so a job that is killed at any moment
leaves no file without a record. Several jobs may share a folder: each writes the records of its own
cases.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from factorizer import __version__
from factorizer.data.cases import Case, DataError, Problem
from factorizer.files import FileError, read_json, write_atomically
from factorizer.inference.predictor import Predictor
from factorizer.nn.blocks import nmf_layers
from factorizer.runs.rules import Rules

RECORDS = ".factorizer"
PART = "part-"  # before the names of folders with files that are not in their place yet
SECTIONS = ("model", "data", "inference")  # of a preset; a prediction depends on them
WITHOUT_EFFECT = ("augmentation", "foreground_fraction", "mask_suffix")  # of the data section
SHOWN_REASONS = 3
SECONDS_A_DAY = 86_400
DISCARD = "remove it with its prediction, to predict it again"
REMOVE = "remove it to predict it again, or give another folder"

Facts = Mapping[str, Any]  # plain values, as JSON has them
Write = Callable[[Path], object]


@dataclass(frozen=True)
class Record:
    """What made the predictions of a case, from which inputs, and the checksum of each file."""

    made_with: Facts
    inputs: Facts
    files: Mapping[str, str] = field(default_factory=dict)
    version: str = __version__

    def is_same_work(self, other: Record) -> bool:
        """Whether both have the same model, options and inputs."""
        if differences(self.made_with, other.made_with):
            return False
        return not changed_inputs(self.inputs, other.inputs)


def describe_predictor(predictor: Predictor, rules: Rules) -> Facts:
    """Everything except the image that decides what is predicted."""
    sections = {name: getattr(predictor.preset, name).model_dump(mode="json") for name in SECTIONS}
    for name in WITHOUT_EFFECT:
        del sections["data"][name]
    return {
        "weights": [digest_weights(network) for network in predictor.networks],
        "layers": [describe_layers(network) for network in predictor.networks],
        "mirrored": predictor.mirrored,
        "rules": {region: asdict(rule) for region, rule in rules.items()},
        **sections,
    }


def digest_weights(network: nn.Module) -> str:
    """A checksum of a network's weights. It does not depend on the file that they come from."""
    digest = new_digest()
    for name, value in network.state_dict().items():
        digest.update(f"{name} {tuple(value.shape)} {value.dtype} ".encode())
        digest.update(value.cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def describe_layers(network: nn.Module) -> list[str]:
    """How NMF layers are set, which a speed changes."""
    return [layer.extra_repr() for layer in nmf_layers(network)]


def describe_inputs(case: Case) -> Facts:
    """The files of a case by content."""
    checksums: dict[Path, str] = {}
    inputs = {}
    for channel, source in case.channels.items():
        if source.file not in checksums:
            checksums[source.file] = checksum(source.file)
        inputs[channel] = {
            "file": str(source.file),
            "index": source.index,
            "checksum": checksums[source.file],
        }
    return inputs


def differences(before: Facts, now: Facts) -> list[str]:
    """How a prediction was made differently before, in words. Empty if it was made the same way."""
    changed = changed_fields(before, now)
    words = []
    if "weights" in changed:
        words.append("with different weights")
    elif "layers" in changed:
        words.append("at another speed")
    if "mirrored" in changed:
        words.append("without mirror images" if now["mirrored"] else "with mirror images")
    if "rules" in changed:
        words.append("with different rules of post-processing")
    for section in sorted(changed & set(SECTIONS)):
        fields = changed_fields(before.get(section), now[section])
        words += [f"with a different {section}.{name}" for name in now[section] if name in fields]
    return words


def changed_fields(before: Any, now: Facts) -> set[str]:
    """The fields that had another value before. A field that did not exist was null."""
    known = before if isinstance(before, dict) else {}
    return {name for name in now if json.dumps(known.get(name)) != json.dumps(now[name])}


def changed_inputs(before: Facts, now: Facts) -> list[str]:
    """How a prediction was made from other images before, in words. Empty if they are the same."""
    added = [channel for channel in now if channel not in before]
    removed = [channel for channel in before if channel not in now]
    others = []
    for channel, entry in now.items():
        known = before.get(channel, entry)
        if any(known.get(key) != entry[key] for key in ("index", "checksum")):
            others.append(channel)
    words = [f"from another image ({', '.join(others)})"] if others else []
    if added:
        words.append(f"without {', '.join(added)}")
    if removed:
        words.append(f"with {', '.join(removed)}, now missing")
    return words


def find_doubt(
    case: str, record: Record | None, now: Record, existing: Sequence[Path]
) -> Problem | None:
    """Why existing files of a case are not what would be predicted now. None if they are."""
    file = str(existing[0])
    if record is None:
        message = f"it is not known what made it, because it has no record in {RECORDS}"
        return Problem(case, file, message, REMOVE)
    words = differences(record.made_with, now.made_with)
    if words:
        return Problem(case, file, f"it was made {list_reasons(words)}", REMOVE)
    words = changed_inputs(record.inputs, now.inputs)
    if words:
        return Problem(case, file, f"it was made {list_reasons(words)}", REMOVE)
    for path in existing:
        if record.files.get(path.name) != checksum(path):
            message = "it was changed after it was predicted"
            return Problem(case, str(path), message, f"keep it elsewhere, or {REMOVE}")
    return None


def list_reasons(words: Sequence[str]) -> str:
    """The first few differences as one text."""
    return " and ".join(words[:SHOWN_REASONS])


def record_file(out: Path, case: Case) -> Path:
    return out / RECORDS / f"{case.name}.json"


def read_record(out: Path, case: Case) -> Record | None:
    """The record of a case. None if it has none."""
    file = record_file(out, case)
    if not file.exists():
        return None
    try:
        content = read_json(file)
    except FileError as error:
        raise FileError(file, error.reason, DISCARD) from None
    if not is_record(content):
        raise FileError(file, "it is not the record of a prediction", DISCARD)
    version = str(content.get("version"))
    return Record(content["made_with"], content["inputs"], content["files"], version)


def is_record(content: Any) -> bool:
    """Whether the content of a file has the form of a record."""
    if not isinstance(content, dict):
        return False
    parts = [content.get(name) for name in ("made_with", "inputs", "files")]
    if not all(isinstance(part, dict) for part in parts):
        return False
    return all(isinstance(entry, dict) for entry in content["inputs"].values())


def put_in_place(out: Path, case: Case, record: Record, writers: Mapping[Path, Write]) -> None:
    """Write the files of a case to a folder beside their places, then the record, then move them.

    `writers` has a function for each file, which writes it to the path that it is given.
    """
    records = out / RECORDS
    records.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=PART, dir=records) as folder:
        parts = {file: Path(folder) / file.name for file in writers}
        for file, write in writers.items():
            write(parts[file])
            if file.exists():
                message = "another process has written it in the meantime"
                remedy = "let one process at a time predict a case"
                raise DataError(Problem(case.name, str(file), message, remedy))
        checksums = {file.name: checksum(part) for file, part in parts.items()}
        content = {"case": case.name, **asdict(record), "files": {**record.files, **checksums}}
        write_atomically(record_file(out, case), json.dumps(content, indent=1) + "\n")
        for file, part in parts.items():
            os.replace(part, file)


def remove_leftovers(out: Path) -> None:
    """Remove files that killed jobs left half written.

    Only those older than a day: the job of a younger one may still be at work.
    """
    for folder in (out / RECORDS).glob(f"{PART}*"):
        if time.time() - folder.lstat().st_mtime > SECONDS_A_DAY:
            shutil.rmtree(folder, ignore_errors=True)


def checksum(file: Path) -> str:
    """A checksum of a file's content."""
    if not file.is_file():  # a pipe would never end
        raise FileError(file, "it is not a regular file", "give a file")
    with file.open("rb") as content:
        return hashlib.file_digest(content, new_digest).hexdigest()


def new_digest() -> Any:
    return hashlib.blake2b(digest_size=16)
