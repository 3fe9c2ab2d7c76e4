"""What `factorizer predict` is given: files of one case, a list of cases, a data set, or a folder
of images."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from factorizer.data.cases import (
    Case,
    DataError,
    Problem,
    drop_duplicates,
    list_some,
    select_channels,
)
from factorizer.data.headers import count_channels
from factorizer.data.layouts import LAYOUTS, UnknownLayout, name_sessions, read_cohort
from factorizer.data.lists import LIST_ENDINGS, make_case, read_list
from factorizer.data.loose import SUFFIXES
from factorizer.data.naming import (
    CHANNEL_NAMES,
    NUMBERED,
    is_image,
    split_channel,
    strip_ending,
    strip_mask_suffix,
)
from factorizer.data.walk import list_folder


def read_inputs(
    paths: Sequence[Path], channels: Sequence[str], *, mask_suffix: str | None = None
) -> tuple[list[Case], list[Problem]]:
    """The cases with their channels under the model's names, and what is wrong with others.

    Several files are one case, a channel each in the model's order; one file holds all channels of
    a case.
    """
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise DataError(
            Problem("", str(missing[0]), "there is no such file or folder", "correct the input")
        )
    special = [path for path in paths if not path.is_file() and not path.is_dir()]
    if special:
        message = "it is neither a file nor a folder, but a pipe or a device"
        raise DataError(
            Problem("", str(special[0]), message, "save its content to a file, and give that")
        )
    if len(paths) > 1:
        return [read_files(paths, channels)], []
    (path,) = paths
    if path.suffix.lower() in LIST_ENDINGS and path.is_file():
        return read_list(path, channels)
    if path.is_file():
        return [read_files(paths, channels)], []
    return read_folder(path, channels, mask_suffix)


def read_files(files: Sequence[Path], channels: Sequence[str]) -> Case:
    wrong = [file for file in files if not is_image(file)]
    if wrong:
        raise DataError(
            Problem(
                "", str(wrong[0]), "it is no image", "give NIfTI files, or PNG, JPEG or TIFF for 2D"
            )
        )
    if len(files) not in (1, len(channels)):
        message = (
            f"there are {len(files)} files for {len(channels)} channels ({', '.join(channels)})"
        )
        raise DataError(
            Problem(
                "",
                str(files[0]),
                message,
                "give one file per channel in this order, or one with all",
            )
        )
    name = strip_ending(files[0].name)
    if len(files) == 1:
        return make_case(name, files, channels)
    numbered = NUMBERED.fullmatch(name)
    named = split_channel(name, (*channels, *CHANNEL_NAMES))
    short = numbered[1] if numbered else named[0] if named else name
    return make_case(name_in_bids(files[0]) or short, files, channels)


def name_in_bids(file: Path) -> str | None:
    """What the case of a file is called in the BIDS data set around it, if it is in one."""
    places = Path(os.path.abspath(file)).parents  # without .., and links as they are
    session = next(
        (p for p in places if p.name.startswith("ses-") and p.parent.name.startswith("sub-")), None
    )
    return name_sessions(session.parent.parent).get(session) if session else None


def read_folder(
    folder: Path, channels: Sequence[str], mask_suffix: str | None
) -> tuple[list[Case], list[Problem]]:
    """A data set in a known layout, one case of such a data set, or a folder of images."""
    try:
        cohort = read_cohort(folder, mask_suffix=mask_suffix)
    except UnknownLayout:
        around, own = one_of_parent(folder, channels), read_images(list_folder(folder), channels)
        found = own if around is None or (own[0] and not around[0]) else around
        if not found[0] and not found[1]:
            message = "it holds no NIfTI file or picture, and no known layout is recognized in it"
            remedy = (
                "give an image (DICOM must be converted first), a folder of them, a CSV list with "
                f"the columns case, {', '.join(channels)}, or a data set: {LAYOUTS}"
            )
            raise UnknownLayout(Problem("", str(folder), message, remedy)) from None
        return found
    if not cohort.cases and cohort.problems:
        return [], list(cohort.problems)
    named = select_channels(cohort, channels)
    cases = [rename_channels(case, named, channels) for case in cohort.cases]
    labels_only = {
        problem for problem in cohort.problems if problem.case in {case.name for case in cases}
    }
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
    # what is wrong with the folder as a whole may be that it is no case of that data set, but
    # something beside it
    problems = [
        problem
        for problem in cohort.problems
        if problem.case == name and Path(problem.file).name != name
    ]
    return ([], problems) if problems else None


def rename_channels(case: Case, named: Sequence[str], channels: Sequence[str]) -> Case:
    """With the model's names of channels; what a case does not have is missed when it is read."""
    sources = {
        ours: case.channels[theirs]
        for ours, theirs in zip(channels, named, strict=True)
        if theirs in case.channels
    }
    return Case(case.name, sources, case.label, case.patient)


def read_images(files: Iterable[Path], channels: Sequence[str]) -> tuple[list[Case], list[Problem]]:
    """A file per case, or files with a channel each: CASE_0000, CASE_0001, ..., or CASE_dwi,
    CASE_adc, ..."""
    images = [file for file in files if is_image(file) and not file.is_dir()]
    numbered, others = group_by_number(images)
    named, singles, problems = group_by_channel(others, channels)
    cases = [make_case(strip_ending(file.name), [file], channels) for file in singles]
    for name, by_number in numbered.items():
        if sorted(by_number) == list(range(len(channels))):
            cases.append(make_case(name, [by_number[i] for i in range(len(channels))], channels))
        else:
            listed = ", ".join(f"{number:04d}" for number in sorted(by_number))
            message = f"{name} has the files {listed}, but the model takes {len(channels)} channels"
            remedy = f"number them 0000 to {len(channels) - 1:04d}: {', '.join(channels)}"
            problems.append(Problem(name, str(next(iter(by_number.values()))), message, remedy))
    for name, by_channel in named.items():
        try:
            cases.append(join_channels(name, by_channel, channels))
        except DataError as error:
            problems.extend(error.problems)
    kept, duplicates = drop_duplicates(cases)
    return kept, [*problems, *duplicates]


def group_by_number(images: Sequence[Path]) -> tuple[dict[str, dict[int, Path]], list[Path]]:
    """Files CASE_0000, CASE_0001, ... by case and number, and other files."""
    matches = {file: NUMBERED.fullmatch(strip_ending(file.name)) for file in images}
    numbers = [int(match[2]) for match in matches.values() if match]
    if 0 not in numbers or max(numbers) >= 10:  # they are parts of names
        return {}, list(images)
    groups: dict[str, dict[int, Path]] = {}
    for file, match in matches.items():
        if match:
            groups.setdefault(match[1], {})[int(match[2])] = file
    return groups, [file for file, match in matches.items() if not match]


def group_by_channel(
    images: Sequence[Path], channels: Sequence[str]
) -> tuple[dict[str, dict[str, list[Path]]], list[Path], list[Problem]]:
    """Files that are named after channels by case and channel, and other files. Of a case that has
    such files, others (a contrast that the model does not take, a mask) are left out with a
    warning."""
    groups: dict[str, dict[str, list[Path]]] = {}
    others: list[Path] = []
    for file in images:
        found = split_channel(strip_ending(file.name), channels)
        if found is None:
            others.append(file)
        else:
            groups.setdefault(found[0], {}).setdefault(found[1], []).append(file)
    extra = [file for file in others if belongs_to(file, groups)]
    singles = [file for file in others if file not in set(extra)]
    problems = []
    if extra:
        message = f"left out: {list_some([file.name for file in extra])}"
        remedy = f"the model takes {', '.join(channels)} of these cases"
        problems.append(Problem("", str(extra[0].parent), message, remedy, "warning"))
    if len(channels) == 1:  # a file is a case, under its whole name
        files = [file for parts in groups.values() for part in parts.values() for file in part]
        return {}, sorted([*singles, *files]), problems
    return groups, singles, problems


def belongs_to(file: Path, groups: Mapping[str, object]) -> bool:
    """Whether a file is named as another contrast or as a mask of one of some cases."""
    stem = strip_ending(file.name)
    contrast = split_channel(stem, tuple(CHANNEL_NAMES))
    return (contrast is not None and contrast[0] in groups) or strip_mask_suffix(
        stem, SUFFIXES
    ) in groups


def join_channels(name: str, parts: Mapping[str, Sequence[Path]], channels: Sequence[str]) -> Case:
    """A case of files that are named after channels; a single one may hold all of them, whatever
    its name."""
    files = [file for part in parts.values() for file in part]
    if len(files) == 1 and count_channels(files[0]) == len(channels):
        return make_case(strip_ending(files[0].name), files, channels)
    for channel in channels:
        found = parts.get(channel, [])
        if len(found) > 1:
            message = (
                f"{' and '.join(file.name for file in found)} are both named as channel {channel}"
            )
            raise DataError(Problem(name, str(found[0]), message, "keep the right one"))
        if not found:
            message = (
                f"{name} has no file for channel {channel} (there is "
                f"{', '.join(file.name for file in files)})"
            )
            wanted = files[0].name.replace(strip_ending(files[0].name), f"{name}_{channel.lower()}")
            raise DataError(
                Problem(name, str(files[0]), message, f"add {wanted}, or remove the case")
            )
    return make_case(name, [parts[channel][0] for channel in channels], channels)
