"""What `factorizer predict` is given: files of one case, a list of cases, a data set, or a folder of images."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from factorizer.data.cases import Case, DataError, Problem, Source, drop_duplicates, select_channels
from factorizer.data.layouts import (
    CHANNEL_NAMES,
    IMAGES_2D,
    LAYOUTS,
    NIFTI,
    UnknownLayout,
    list_folder,
    name_sessions,
    read_cohort,
    strip_ending,
)

NUMBERED = re.compile(r"(.+)_(\d{4})")


def read_inputs(
    paths: Sequence[Path], channels: Sequence[str], *, mask_suffix: str | None = None
) -> tuple[list[Case], list[Problem]]:
    """The cases with their channels under the model's names, and what is wrong with others.

    Several files are one case, a channel each in the model's order; one file holds all channels of a case.
    """
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise DataError(Problem("", str(missing[0]), "there is no such file or folder", "correct the input"))
    if len(paths) > 1:
        return [read_files(paths, channels)], []
    (path,) = paths
    if path.suffix in (".csv", ".json"):
        return read_list(path, channels)
    if path.is_file():
        return [read_files(paths, channels)], []
    return read_folder(path, channels, mask_suffix)


def read_files(files: Sequence[Path], channels: Sequence[str]) -> Case:
    wrong = [file for file in files if not file.name.lower().endswith((*NIFTI, *IMAGES_2D))]
    if wrong:
        raise DataError(Problem("", str(wrong[0]), "it is no image", "give NIfTI files, or PNG, JPEG or TIFF for 2D"))
    if len(files) not in (1, len(channels)):
        message = f"there are {len(files)} files for {len(channels)} channels ({', '.join(channels)})"
        raise DataError(Problem("", str(files[0]), message, "give one file per channel in this order, or one with all"))
    name = strip_ending(files[0].name)
    if len(files) == 1:
        return make_case(name, files, channels)
    ending = re.fullmatch(r"(.+)[_-](\d{4}|[A-Za-z0-9]+)", name)
    known = ending and (ending[2].isdigit() or ending[2].lower() in CHANNEL_NAMES)
    return make_case(name_in_bids(files[0]) or (ending[1] if ending and known else name), files, channels)


def name_in_bids(file: Path) -> str | None:
    """What the case of a file is called in the BIDS data set around it, if it is in one."""
    places = Path(os.path.abspath(file)).parents  # without .., and links as they are
    session = next((p for p in places if p.name.startswith("ses-") and p.parent.name.startswith("sub-")), None)
    return name_sessions(session.parent.parent)[session] if session else None


def check_order(name: str, files: Sequence[Path], channels: Sequence[str]) -> None:
    """Each channel has a file of its own, and files that are named or numbered after channels are in their order."""
    remedy = f"give the files in the order {', '.join(channels)}"
    numbers = [NUMBERED.fullmatch(strip_ending(file.name)) for file in files]
    expected = [f"{number:04d}" for number in range(len(channels))]
    numbered = sorted(match[2] for match in numbers if match) == expected
    for file, channel, match, number in zip(files, channels, numbers, expected, strict=True):
        ending = re.split(r"[_-]", strip_ending(file.name))[-1].lower()
        named = CHANNEL_NAMES.get(ending)
        if named is not None and named != channel and named in channels:
            message = f"it is named as {named}, but stands where {channel} belongs"
            raise DataError(Problem(name, str(file), message, remedy))
        if numbered and match and match[2] != number:
            message = f"it has the number {match[2]}, but stands where {channel}, {number}, belongs"
            raise DataError(Problem(name, str(file), message, remedy))
        if files.count(file) > 1:
            message = f"it stands for {files.count(file)} channels"
            raise DataError(Problem(name, str(file), message, f"give each of {', '.join(channels)} its own file"))


def make_case(name: str, files: Sequence[Path], channels: Sequence[str]) -> Case:
    """One file per channel, or one with all of them."""
    if len(files) == 1:
        return Case(name, {c: Source(files[0], index, len(channels)) for index, c in enumerate(channels)})
    check_order(name, files, channels)
    return Case(name, {c: Source(file) for c, file in zip(channels, files, strict=True)})


def read_list(file: Path, channels: Sequence[str]) -> tuple[list[Case], list[Problem]]:
    """A CSV or JSON list: the column case, and one per channel or `image` for a file with all; paths from the list."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        entries: Any = json.loads(text) if file.suffix == ".json" else list(csv.DictReader(text.splitlines()))
    except (OSError, ValueError) as error:
        raise DataError(Problem("", str(file), f"it cannot be read ({error})", "mend the file")) from None
    remedy = f"give each case the fields case and {', '.join(channels)}, or case and image"
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(Problem("", str(file), "it holds no list of cases", remedy))
    cases, problems = [], []
    for number, entry in enumerate(entries, start=1):
        try:
            cases.append(read_entry(entry, file.parent, channels))
        except KeyError as error:
            name = str(entry.get("case") or f"entry {number}")
            problems.append(Problem(name, str(file), f"{name} has no {error.args[0]}", remedy))
        except DataError as error:
            problems.extend(error.problems)
    kept, duplicates = drop_duplicates(cases)
    return kept, [*problems, *duplicates]


def read_entry(entry: Mapping[str, Any], folder: Path, channels: Sequence[str]) -> Case:
    wanted = ["image"] if entry.get("image") else list(channels)
    absent = [field for field in ("case", *wanted) if not entry.get(field)]
    if absent:
        raise KeyError(absent[0])
    if re.search(r"[/\\]|^\.{0,2}$", str(entry["case"])):
        raise KeyError("name that can be a file's: leave out slashes, and do not call it . or ..")
    return make_case(str(entry["case"]), [folder / str(entry[field]) for field in wanted], channels)


def read_folder(folder: Path, channels: Sequence[str], mask_suffix: str | None) -> tuple[list[Case], list[Problem]]:
    """A data set in a known layout, one case of such a data set, or a folder of images."""
    try:
        cohort = read_cohort(folder, mask_suffix=mask_suffix)
    except UnknownLayout:
        found = one_of_parent(folder, channels) or read_images(list_folder(folder), channels)
        if not found[0] and not found[1]:
            message = "it holds no NIfTI file or picture, and no known layout is recognized in it"
            remedy = (
                "give an image (DICOM must be converted first), a folder of them, a CSV list with the columns case, "
                f"{', '.join(channels)}, or a data set: {LAYOUTS}"
            )
            raise UnknownLayout(Problem("", str(folder), message, remedy)) from None
        return found
    if not cohort.cases and cohort.problems:
        return [], list(cohort.problems)
    named = select_channels(cohort, channels)
    cases = [rename_channels(case, named, channels) for case in cohort.cases]
    labels_only = {problem for problem in cohort.problems if problem.case in {case.name for case in cases}}
    return cases, [problem for problem in cohort.problems if problem not in labels_only]


def one_of_parent(folder: Path, channels: Sequence[str]) -> tuple[list[Case], list[Problem]] | None:
    """The case that a folder is in the data set around it: BraTS2021_00000, sub-strokecase0001."""
    name = folder.absolute().name
    try:
        cohort = read_cohort(folder.absolute().parent)
        case = next((case for case in cohort.cases if case.name == name), None)
        if case is not None:
            return [rename_channels(case, select_channels(cohort, channels), channels)], []
    except DataError:
        return None
    problems = [problem for problem in cohort.problems if problem.case == name]
    return ([], problems) if problems else None


def rename_channels(case: Case, named: Sequence[str], channels: Sequence[str]) -> Case:
    """With the model's names of channels; what a case does not have is missed when it is read."""
    sources = {
        ours: case.channels[theirs] for ours, theirs in zip(channels, named, strict=True) if theirs in case.channels
    }
    return Case(case.name, sources, case.label, case.patient)


def read_images(files: Iterable[Path], channels: Sequence[str]) -> tuple[list[Case], list[Problem]]:
    """A file per case, or files CASE_0000, CASE_0001, ... with a channel each."""
    images = [file for file in files if file.name.lower().endswith((*NIFTI, *IMAGES_2D))]
    stems = {file: NUMBERED.fullmatch(strip_ending(file.name)) for file in images}
    numbers = [int(match[2]) for match in stems.values() if match]
    numbered_files = 0 in numbers and max(numbers) < 10  # else they are parts of names
    groups: dict[str, dict[int, Path]] = {}
    singles: list[Path] = []
    for file, match in stems.items():
        if match and numbered_files:
            groups.setdefault(match[1], {})[int(match[2])] = file
        else:
            singles.append(file)
    cases = [make_case(strip_ending(file.name), [file], channels) for file in singles]
    problems: list[Problem] = []
    for name, numbered in groups.items():
        if sorted(numbered) == list(range(len(channels))):
            cases.append(make_case(name, [numbered[i] for i in range(len(channels))], channels))
        else:
            listed = ", ".join(f"{number:04d}" for number in sorted(numbered))
            message = f"{name} has the files {listed}, but the model takes {len(channels)} channels"
            remedy = f"number them 0000 to {len(channels) - 1:04d}: {', '.join(channels)}"
            problems.append(Problem(name, str(next(iter(numbered.values()))), message, remedy))
    kept, duplicates = drop_duplicates(cases)
    return kept, [*problems, *duplicates]
