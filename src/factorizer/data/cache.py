"""Preprocessed cases on disk, so that each case is read and preprocessed once.

An entry is a folder. Its name has a hash of the case's files and of the preparation, so whatever
changes, a new entry is made. An entry is written elsewhere and then renamed, under a lock, so two
processes never share a half-written one. Its arrays have checksums. An entry that does not match
them is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from factorizer.config import Data
from factorizer.data.attempts import attempt
from factorizer.data.cases import Case, Cohort, DataError, Problem
from factorizer.data.images import check_dimensions
from factorizer.data.matching import select_channels, select_label_values
from factorizer.data.preprocess import Prepared, Preprocessing, prepare_case, preprocessing_of
from factorizer.files import FileError, read_json
from factorizer.hardware import available_cores
from factorizer.progress import SILENT, Progress

Array = NDArray[Any]
ARRAYS = ("image.npy", "label.npy")
CHECKSUMS = "checksums.json"
WARNINGS = "warnings.json"
VERSION = 2  # increases when preprocessing or the form of the entries changes


@dataclass(frozen=True)
class Preparation:
    """How cases are read and preprocessed: all that the arrays depend on except the files."""

    channels: tuple[str, ...]
    label_values: Mapping[int, int]
    preprocessing: Preprocessing

    def prepare(self, case: Case, *, with_label: bool) -> Prepared:
        """Read and preprocess a case."""
        values = self.label_values if with_label else None
        return prepare_case(case, self.preprocessing, channels=self.channels, label_values=values)

    def as_text(self) -> str:
        """The preparation as text for a hash.

        Clip came later than the others. It is part of the text only if it is set, so that older
        entries stay valid.
        """
        values: dict[str, Any] = dict(vars(self.preprocessing))
        if values["clip"] is None:
            del values["clip"]
        values["channels"] = self.channels
        values["label_values"] = sorted(self.label_values.items())
        values["version"] = VERSION
        return json.dumps(values, sort_keys=True)


def preparation_for(cohort: Cohort, data: Data) -> Preparation:
    """How a preset prepares the cases of a data set."""
    if not cohort.cases:
        nothing = Problem("", str(cohort.root), "there is no case", "give the folder of a data set")
        raise DataError(*(cohort.problems or (nothing,)))
    check_dimensions(cohort.cases[0], len(data.patch_size))
    channels = select_channels(cohort, data.channels)
    label_values = select_label_values(cohort, data.labels)
    return Preparation(channels, label_values, preprocessing_of(data))


class CaseStore:
    """The preprocessed cases of a data set: `prepare` makes entries, `open` gives their arrays."""

    def __init__(self, folder: Path, cases: Iterable[Case], preparation: Preparation) -> None:
        self.folder = folder
        self.preparation = preparation
        self.cases = {case.name: case for case in cases}
        self.entries: dict[str, Path] = {}

    def prepare(self, names: Sequence[str], *, progress: Progress = SILENT) -> list[Problem]:
        """Make the entries of these cases if they are missing or damaged.

        Returns the problems of cases that failed, and the warnings of others. A folder that cannot
        be written to is an error, because it concerns all cases.
        """
        problems: list[Problem] = []
        with ThreadPoolExecutor(available_cores()) as pool:
            results = pool.map(self.attempt_entry, names)
            done = progress.follow(results, "preparing cases", total=len(names))
            for name, (entry, found) in zip(names, done, strict=True):
                problems += found
                if entry is not None:
                    self.entries[name] = entry
        return problems

    def attempt_entry(self, name: str) -> tuple[Path | None, list[Problem]]:
        """The entry of a case with its warnings, or None and the problems that prevented it."""
        make = partial(self.entry, self.cases[name])
        entry, problems = attempt(name, make, raises=(OSError,))
        if entry is not None:
            problems = read_warnings(entry)
        return entry, problems

    def open(self, name: str) -> tuple[Array, Array]:
        """Image (C, *spatial) and label map (*spatial) of a case.

        Only the voxels that are used are read from disk.
        """
        if name not in self.entries:
            self.entries[name] = self.entry(self.cases[name])
        entry = self.entries[name]
        image = np.load(entry / "image.npy", mmap_mode="r")
        label = np.load(entry / "label.npy", mmap_mode="r")
        return image, label

    def entry(self, case: Case) -> Path:
        """The folder of a case's entry. It is made if it is missing or damaged."""
        path = self.folder / f"{case.name}-{self.key(case)}"
        locks = self.folder / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        with FileLock(locks / path.name):  # only one process at a time checks and makes an entry
            if not is_whole(path):
                shutil.rmtree(path, ignore_errors=True)
                self.write(case, path)
        return path

    def key(self, case: Case) -> str:
        """A hash of the contents of the case's files and of the preparation."""
        digest = hashlib.blake2b(self.preparation.as_text().encode(), digest_size=10)
        known = [channel for channel in self.preparation.channels if channel in case.channels]
        sources = [case.channels[channel] for channel in known]
        files = {source.file for source in sources}
        if case.label is not None:
            files.add(case.label)
        hashes = {file: file_hash(case, file) for file in sorted(files)}
        channels = [(source.index, hashes[source.file]) for source in sources]
        digest.update(str(channels).encode())
        if case.label is not None:
            digest.update(hashes[case.label].encode())
        return digest.hexdigest()

    def write(self, case: Case, path: Path) -> None:
        prepared = self.preparation.prepare(case, with_label=True)
        assert prepared.label is not None, "labels were asked for"
        temporary = self.folder / f".{path.name}-new"  # a process that was killed may have left it
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            np.save(temporary / "image.npy", prepared.image)
            np.save(temporary / "label.npy", prepared.label)
            sums = {name: checksum(temporary / name) for name in ARRAYS}
            (temporary / CHECKSUMS).write_text(json.dumps(sums))
            if prepared.warnings:
                warnings = [problem.as_dict() for problem in prepared.warnings]
                (temporary / WARNINGS).write_text(json.dumps(warnings))
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def is_whole(entry: Path) -> bool:
    """Whether an entry's arrays match their checksums."""
    try:
        sums = json.loads((entry / CHECKSUMS).read_text())
        return all(checksum(entry / name) == sums[name] for name in ARRAYS)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def read_warnings(entry: Path) -> list[Problem]:
    """The warnings that were written with an entry. Unreadable ones are ignored."""
    try:
        return [Problem(**warning) for warning in read_json(entry / WARNINGS)]
    except (FileError, TypeError):
        return []


def checksum(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def file_hash(case: Case, file: Path) -> str:
    if file.exists() and not file.is_file():  # reading a pipe would never end
        raise DataError(Problem(case.name, str(file), "it is not a regular file", "give a file"))
    try:
        return checksum(file)
    except OSError as error:
        message = f"the file cannot be read ({error.strerror or 'unknown reason'})"
        raise DataError(Problem(case.name, str(file), message, "check it")) from None
