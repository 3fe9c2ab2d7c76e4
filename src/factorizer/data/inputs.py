"""The cases to predict: files of one case, a list of cases, a data set, or a folder of images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from factorizer.data.cases import Case, Cohort, DataError, Problem
from factorizer.data.channel_files import make_case
from factorizer.data.headers import count_channels
from factorizer.data.layouts import UnknownLayout, describe_layouts, read_cohort
from factorizer.data.layouts.isles import name_sessions
from factorizer.data.layouts.lists import is_list, read_list
from factorizer.data.loose_images import Found, read_images
from factorizer.data.matching import select_channels
from factorizer.data.naming import CHANNEL_NAMES, NUMBERED, is_image, split_channel, strip_ending
from factorizer.data.walk import list_folder


def read_inputs(
    paths: Sequence[Path],
    channels: Sequence[str],
    *,
    mask_suffix: str | None = None,
    allow_missing: bool = False,
) -> Found:
    """The cases, and the problems of those that cannot be used.

    Their channels have the model's names, `channels`. One file is a case with all channels. Several
    files are one case, with one file per channel in the model's order.

    With `allow_missing`, a case may lack some of the channels, but not all. The names of its files,
    or the data set, must tell which ones it has.
    """
    for path in paths:
        check_path(path)
    if len(paths) > 1:
        return [read_files(paths, channels, allow_missing=allow_missing)], []
    (path,) = paths
    if is_list(path):
        return read_list(path, channels, allow_missing=allow_missing)
    if path.is_file():
        return [read_files(paths, channels, allow_missing=allow_missing)], []
    return read_folder(path, channels, mask_suffix, allow_missing=allow_missing)


def check_path(path: Path) -> None:
    """Refuse a path that is neither a file nor a folder."""
    if not path.exists():
        raise DataError.about(path, "there is no such file or folder", "correct the input")
    if not path.is_file() and not path.is_dir():
        message = "it is neither a file nor a folder, but a pipe or a device"
        raise DataError.about(path, message, "save its content to a file, and give that file")


def read_files(files: Sequence[Path], channels: Sequence[str], *, allow_missing: bool) -> Case:
    """The case of one file with all channels, or of one file per channel."""
    for file in files:
        if not is_image(file):
            remedy = "give NIfTI files, or PNG, JPEG or TIFF for 2D"
            raise DataError.about(file, "it is not an image", remedy)
    if allow_missing:
        incomplete = read_named_files(files, channels)
        if incomplete is not None:
            return incomplete
    if len(files) not in (1, len(channels)):
        listed = ", ".join(channels)
        message = f"there are {len(files)} files for {len(channels)} channels ({listed})"
        remedy = "give one file per channel in this order, or one with all"
        if allow_missing:
            remedy += ", or files of one case that are named after their channels"
        raise DataError.about(files[0], message, remedy)
    return make_case(name_case(files, channels), files, channels)


def read_named_files(files: Sequence[Path], channels: Sequence[str]) -> Case | None:
    """The case of fewer files than channels, if they are of one case and named after channels.

    None otherwise, and if a single file holds several channels.
    """
    if len(files) >= len(channels) or (len(files) == 1 and count_channels(files[0]) > 1):
        return None
    names = set()
    file_of: dict[str, Path] = {}
    for file in files:
        found = split_channel(strip_ending(file.name), channels)
        if found is None or found[1] in file_of:
            return None
        names.add(found[0])
        file_of[found[1]] = file
    if len(names) > 1:
        return None
    name = name_in_bids(files[0]) or names.pop()
    return make_case(name, [file_of.get(channel) for channel in channels], channels)


def name_case(files: Sequence[Path], channels: Sequence[str]) -> str:
    """The name of the first file, without the channel if each channel has its own file."""
    stem = strip_ending(files[0].name)
    if len(files) == 1:
        return stem
    in_bids = name_in_bids(files[0])
    if in_bids is not None:
        return in_bids
    numbered = NUMBERED.fullmatch(stem)
    if numbered:
        return numbered[1]
    named = split_channel(stem, (*channels, *CHANNEL_NAMES))
    return named[0] if named else stem


def name_in_bids(file: Path) -> str | None:
    """The name of the file's case in the BIDS data set around it, or None without one."""
    for place in Path(os.path.abspath(file)).parents:  # resolves .. but keeps links
        if place.name.startswith("ses-") and place.parent.name.startswith("sub-"):
            return name_sessions(place.parent.parent).get(place)
    return None


def read_folder(
    folder: Path, channels: Sequence[str], mask_suffix: str | None, *, allow_missing: bool
) -> Found:
    """The cases of a data set in a known layout, of one case of it, or of a folder of images."""
    try:
        cohort = read_cohort(folder, mask_suffix=mask_suffix)
    except UnknownLayout:
        return read_other_folder(folder, channels, allow_missing=allow_missing)
    if allow_missing:
        return read_incomplete(cohort, channels)
    if not cohort.cases and cohort.problems:
        return [], list(cohort.problems)
    theirs = select_channels(cohort, channels)
    cases = [rename_channels(case, theirs, channels) for case in cohort.cases]
    # A problem of a case that was read concerns its label, which prediction does not need.
    names = {case.name for case in cases}
    return cases, [problem for problem in cohort.problems if problem.case not in names]


def read_incomplete(cohort: Cohort, channels: Sequence[str]) -> Found:
    """The cases of a data set that have at least one of the channels, and the problems of the
    others."""
    if cohort.as_found:
        cohort = replace(cohort, cases=cohort.as_found)
    if not cohort.cases and cohort.problems:
        return [], list(cohort.problems)
    theirs = select_channels(cohort, channels, allow_missing=True)
    # A problem of a case that was found concerns its label or the channels that it lacks.
    names = {case.name for case in cohort.cases}
    problems = [problem for problem in cohort.problems if problem.case not in names]
    cases = []
    for found in cohort.cases:
        case = rename_channels(found, theirs, channels)
        if case.channels:
            cases.append(case)
            continue
        message = f"it has none of {', '.join(channels)} (it has {', '.join(found.channels)})"
        problems.append(Problem(case.name, "", message, "add one, or remove the case"))
    return cases, problems


def read_other_folder(folder: Path, channels: Sequence[str], *, allow_missing: bool) -> Found:
    """The case that the folder is in the data set around it, or the cases of its images."""
    as_case = read_in_parent(folder, channels, allow_missing=allow_missing)
    as_images = read_images(list_folder(folder), channels, allow_missing=allow_missing)
    if as_case is None or (as_images[0] and not as_case[0]):
        cases, problems = as_images
    else:
        cases, problems = as_case
    if not cases and not problems:
        message = "it has no NIfTI file, no 2D image and no known layout"
        remedy = (
            "give an image (DICOM must be converted first), a folder of images, a CSV list with "
            f"the columns case, {', '.join(channels)}, or a data set: {describe_layouts()}"
        )
        raise UnknownLayout.about(folder, message, remedy) from None
    return cases, problems


def read_in_parent(folder: Path, channels: Sequence[str], *, allow_missing: bool) -> Found | None:
    """The case that a folder such as sub-strokecase0001 is in the data set around it, or its
    problems.

    None if the folder is not a case of a data set.
    """
    name = folder.absolute().name
    try:
        cohort = read_cohort(folder.absolute().parent)
        if allow_missing and cohort.as_found:
            cohort = replace(cohort, cases=cohort.as_found)
        for case in cohort.cases:
            if case.name == name:
                theirs = select_channels(cohort, channels, allow_missing=allow_missing)
                renamed = rename_channels(case, theirs, channels)
                if renamed.channels:
                    return [renamed], []
    except DataError:
        return None
    # A problem of the folder itself may mean that it is no case, but lies beside the cases.
    problems = []
    for problem in cohort.problems:
        if problem.case == name and Path(problem.file).name != name:
            problems.append(problem)
    return ([], problems) if problems else None


def rename_channels(case: Case, theirs: Sequence[str], channels: Sequence[str]) -> Case:
    """The case with the model's names of channels instead of the data set's.

    A channel that the case does not have is left out. Reading the case reports it.
    """
    sources = {}
    for channel, their_name in zip(channels, theirs, strict=True):
        if their_name in case.channels:
            sources[channel] = case.channels[their_name]
    return Case(case.name, sources, case.label, case.patient)
