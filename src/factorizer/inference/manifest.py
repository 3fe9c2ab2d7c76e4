"""What `factorizer predict` made: a small record per case in the hidden folder .factorizer beside
the predictions.

A record says which model, settings and inputs a prediction is from, and has a checksum of every
file. It is written before the files are put in their place: a job that is killed at any moment
leaves no file without a record. Jobs that share a folder do not disturb each other, as each writes
the records of its own cases.
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
from factorizer.inference.postprocess import Rules
from factorizer.inference.predictor import Predictor
from factorizer.nn.blocks import nmf_layers

RECORDS, PART = ".factorizer", "part-"
SECTIONS = ("model", "data", "inference")  # of a preset, that a prediction depends on
WITHOUT_EFFECT = {
    "augmentation",
    "foreground_fraction",
    "mask_suffix",
}  # of the data section, on a prediction
SECONDS_A_DAY = 86_400
DISCARD = "remove it with its prediction, to predict it again"
REMOVE = "remove it to predict it again, or give another --output"

Facts = Mapping[str, Any]  # plain values, as JSON has them


@dataclass(frozen=True)
class Record:
    """What the predictions of a case were made with and from, and the checksums of its files by
    name."""

    made_with: Facts
    inputs: Facts
    files: Mapping[str, str] = field(default_factory=dict)
    version: str = __version__

    def of_same(self, other: Record) -> bool:
        """Whether both are of one model, with the same settings, from the same inputs."""
        return not differences(self.made_with, other.made_with) and not changed_inputs(
            self.inputs, other.inputs
        )


def describe_predictor(predictor: Predictor, rules: Rules) -> Facts:
    """Everything beside the image that decides what is predicted."""
    sections = {name: getattr(predictor.preset, name).model_dump(mode="json") for name in SECTIONS}
    sections["data"] = {
        key: value for key, value in sections["data"].items() if key not in WITHOUT_EFFECT
    }
    return {
        "weights": [digest_weights(network) for network in predictor.networks],
        "layers": [describe_layers(network) for network in predictor.networks],
        "mirrored": predictor.mirrored,
        "rules": {region: asdict(rule) for region, rule in rules.items()},
        **sections,
    }


def digest_weights(network: nn.Module) -> str:
    """A checksum of a network's weights, whatever file they are from."""
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
    checksums = {
        file: checksum(file) for file in {source.file for source in case.channels.values()}
    }
    return {
        channel: {
            "file": str(source.file),
            "index": source.index,
            "checksum": checksums[source.file],
        }
        for channel, source in case.channels.items()
    }


def differences(before: Facts, now: Facts) -> list[str]:
    """In which words one prediction was made otherwise than another; none if they were made the
    same way."""
    changed = {name for name in now if json.dumps(before.get(name)) != json.dumps(now[name])}
    words = ["with other weights"] if "weights" in changed else []
    if "layers" in changed and not words:
        words.append("at another --speed")
    if "mirrored" in changed:
        words.append("without --tta" if now["mirrored"] else "with --tta")
    if "rules" in changed:
        words.append("with another --postprocess")
    for section in sorted(changed & set(SECTIONS)):
        old, new = before.get(section, {}), now[section]
        fields = [
            key
            for key in new
            if not isinstance(old, dict) or json.dumps(old.get(key)) != json.dumps(new[key])
        ]
        words += [f"with another {section}.{key}" for key in fields]
    return words


def changed_inputs(before: Facts, now: Facts) -> list[str]:
    """The channels that were another image before."""
    keys = ("index", "checksum")
    return [
        name
        for name, entry in now.items()
        if [entry[key] for key in keys] != [before.get(name, {}).get(k) for k in keys]
    ]


def doubt(record: Record | None, now: Record, existing: Sequence[Path]) -> Problem | None:
    """Why files that exist are not what would be predicted now, if they are not."""
    file = str(existing[0])
    if record is None:
        return Problem(
            "", file, f"what made it is not known, as it has no record in {RECORDS}", REMOVE
        )
    words = differences(record.made_with, now.made_with)
    if words:
        return Problem("", file, f"it was made {' and '.join(words[:3])}", REMOVE)
    channels = changed_inputs(record.inputs, now.inputs)
    if channels:
        return Problem("", file, f"it was made from another image ({', '.join(channels)})", REMOVE)
    for path in existing:
        if record.files.get(path.name) != checksum(path):
            return Problem(
                "",
                str(path),
                "it was changed after it was predicted",
                f"keep it elsewhere, or {REMOVE}",
            )
    return None


def record_file(out: Path, case: Case) -> Path:
    return out / RECORDS / f"{case.name}.json"


def read_record(out: Path, case: Case) -> Record | None:
    """What is known of a case's predictions; None if there is no record."""
    file = record_file(out, case)
    if not file.exists():
        return None
    try:
        content = read_json(file)
    except FileError as error:
        raise FileError(file, error.reason, DISCARD) from None
    if not is_record(content):
        raise FileError(file, "it is no record of a prediction", DISCARD)
    return Record(
        content["made_with"], content["inputs"], content["files"], str(content.get("version"))
    )


def is_record(content: Any) -> bool:
    parts = (
        [content.get(name) for name in ("made_with", "inputs", "files")]
        if isinstance(content, dict)
        else [None]
    )
    if not all(isinstance(part, dict) for part in parts):
        return False
    return all(isinstance(entry, dict) for entry in content["inputs"].values())


def put_in_place(
    out: Path, case: Case, record: Record, writers: Mapping[Path, Callable[[Path], object]]
) -> None:
    """Write the files of a case beside their places, then the record, then move the files."""
    records = out / RECORDS
    records.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=PART, dir=records) as folder:
        parts = {file: Path(folder) / file.name for file in writers}
        for file, write in writers.items():
            write(parts[file])
            if file.exists():
                message = "another process has written it meanwhile"
                raise DataError(
                    Problem(
                        case.name, str(file), message, "let one process at a time predict a case"
                    )
                )
        checksums = {file.name: checksum(part) for file, part in parts.items()}
        content = {"case": case.name, **asdict(record), "files": {**record.files, **checksums}}
        write_atomically(record_file(out, case), json.dumps(content, indent=1) + "\n")
        for file, part in parts.items():
            os.replace(part, file)


def remove_leftovers(out: Path) -> None:
    """Remove what killed jobs had begun to write, if it is older than a day: a younger one may be
    at work."""
    for folder in (out / RECORDS).glob(f"{PART}*"):
        if time.time() - folder.lstat().st_mtime > SECONDS_A_DAY:
            shutil.rmtree(folder, ignore_errors=True)


def checksum(file: Path) -> str:
    if not file.is_file():  # a pipe would never end
        raise FileError(file, "it is not a regular file", "give a file")
    with file.open("rb") as content:
        return hashlib.file_digest(content, new_digest).hexdigest()


def new_digest() -> Any:
    return hashlib.blake2b(digest_size=16)
