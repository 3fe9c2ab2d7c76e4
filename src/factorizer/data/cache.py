"""Preprocessed cases on disk, so that each is read and preprocessed once.

An entry is a folder named by a hash of the case's files and of all settings: whatever changes,
another entry is made. It is written elsewhere and then renamed, under a lock, so that two processes
cannot meet in it; its arrays carry checksums, and an entry that does not match them is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from factorizer.config import Data
from factorizer.data.cases import Case, Cohort, DataError, Problem
from factorizer.data.images import check_dimensions
from factorizer.data.matching import select_channels, select_label_values
from factorizer.data.preprocess import Prepared, Preprocessing, prepare_case, preprocessing_of
from factorizer.files import FileError, read_json
from factorizer.hardware import available_cores

Array = NDArray[Any]
WARNINGS = "warnings.json"
VERSION = 2  # of what preprocessing does and of the entries' form


@dataclass(frozen=True)
class Settings:
    """All that preprocessing depends on beside the files."""

    channels: tuple[str, ...]
    label_values: Mapping[int, int]
    preprocessing: Preprocessing

    def prepare(self, case: Case, *, with_label: bool) -> Prepared:
        """Read and preprocess a case."""
        values = self.label_values if with_label else None
        return prepare_case(case, self.preprocessing, channels=self.channels, label_values=values)

    def as_text(self) -> str:
        """A setting that came later counts only where it is used, so that entries of before stay
        good."""
        steps = {
            name: value
            for name, value in vars(self.preprocessing).items()
            if name != "clip" or value is not None
        }
        labels = sorted(self.label_values.items())
        values = {"channels": self.channels, "label_values": labels, **steps, "version": VERSION}
        return json.dumps(values, sort_keys=True)


def settings_for(cohort: Cohort, data: Data) -> Settings:
    """How a preset wants the cases of a data set."""
    if not cohort.cases:
        nothing = Problem("", str(cohort.root), "there is no case", "give the folder of a data set")
        raise DataError(*(cohort.problems or (nothing,)))
    check_dimensions(cohort.cases[0], len(data.patch_size))
    channels, values = (
        select_channels(cohort, data.channels),
        select_label_values(cohort, data.labels),
    )
    return Settings(channels, values, preprocessing_of(data))


class CaseStore:
    """The preprocessed cases of a data set. `prepare` makes or checks entries, `open` gives their
    arrays."""

    def __init__(self, folder: Path, cases: Iterable[Case], settings: Settings) -> None:
        self.folder, self.settings = folder, settings
        self.cases = {case.name: case for case in cases}
        self.entries: dict[str, Path] = {}

    def prepare(
        self,
        names: Sequence[str],
        track: Callable[[Sequence[str]], Iterable[str]] = lambda names: names,
    ) -> list[Problem]:
        """Make sure that these cases are there and whole; the problems of those that cannot be, and
        warnings of others.

        `track` sees the names go by as their cases are done.
        """
        problems: list[Problem] = []

        def work(name: str) -> None:
            try:
                self.entries[name] = self.entry(self.cases[name])
                problems.extend(read_warnings(self.entries[name]))
            except DataError as error:
                problems.extend(error.problems)

        with ThreadPoolExecutor(available_cores()) as pool:
            for _ in zip(pool.map(work, names), track(names), strict=True):
                pass
        return problems

    def open(self, name: str) -> tuple[Array, Array]:
        """Image (C, *spatial) and label map (*spatial) of a prepared case, read from disk as far as
        used."""
        if name not in self.entries:
            self.entries[name] = self.entry(self.cases[name])
        entry = self.entries[name]
        return np.load(entry / "image.npy", mmap_mode="r"), np.load(
            entry / "label.npy", mmap_mode="r"
        )

    def entry(self, case: Case) -> Path:
        """The folder of a case's entry, made if it is not there or not whole."""
        path = self.folder / f"{case.name}-{self.key(case)}"
        locks = self.folder / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        with FileLock(
            locks / path.name
        ):  # one process checks, removes and makes an entry at a time
            if not is_whole(path):
                shutil.rmtree(path, ignore_errors=True)
                self.write(case, path)
        return path

    def key(self, case: Case) -> str:
        """A hash of the contents of the case's files and of the settings."""
        digest = hashlib.blake2b(self.settings.as_text().encode(), digest_size=10)
        sources = [
            case.channels[channel] for channel in self.settings.channels if channel in case.channels
        ]
        files = {source.file for source in sources} | (
            {case.label} if case.label is not None else set()
        )
        hashes = {file: file_hash(case, file) for file in sorted(files)}
        digest.update(str([(source.index, hashes[source.file]) for source in sources]).encode())
        digest.update(hashes[case.label].encode() if case.label is not None else b"")
        return digest.hexdigest()

    def write(self, case: Case, path: Path) -> None:
        prepared = self.settings.prepare(case, with_label=True)
        assert prepared.label is not None, "labels were asked for"
        temporary = (
            self.folder / f".{path.name}-new"
        )  # the lock keeps others away; a kill may have left it
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            np.save(temporary / "image.npy", prepared.image)
            np.save(temporary / "label.npy", prepared.label)
            sums = {name: checksum(temporary / name) for name in ("image.npy", "label.npy")}
            (temporary / "checksums.json").write_text(json.dumps(sums))
            if prepared.warnings:
                warnings = [problem.as_dict() for problem in prepared.warnings]
                (temporary / WARNINGS).write_text(json.dumps(warnings))
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def is_whole(entry: Path) -> bool:
    """Whether an entry's arrays are those that were written."""
    try:
        sums = json.loads((entry / "checksums.json").read_text())
        return all(checksum(entry / name) == sums[name] for name in ("image.npy", "label.npy"))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def read_warnings(entry: Path) -> list[Problem]:
    """What was noted when an entry was made."""
    try:
        return [Problem(**warning) for warning in read_json(entry / WARNINGS)]
    except (
        FileError,
        TypeError,
    ):  # there are none, or they cannot be read: the arrays are whole nevertheless
        return []


def checksum(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def file_hash(case: Case, file: Path) -> str:
    if file.exists() and not file.is_file():  # a pipe would be waited for
        raise DataError(Problem(case.name, str(file), "it is not a regular file", "give a file"))
    try:
        return checksum(file)
    except OSError as error:
        reason = error.strerror or "unknown reason"
        raise DataError(
            Problem(case.name, str(file), f"the file cannot be read ({reason})", "check it")
        ) from None
