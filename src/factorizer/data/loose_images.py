"""The cases of a folder of images that has no known layout.

A case is one file with all channels, or one file per channel. These files are numbered (CASE_0000,
CASE_0001) or named after the channels (CASE_dwi, CASE_adc).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from factorizer.data.cases import Case, DataError, Problem, drop_duplicates, list_some
from factorizer.data.channel_files import make_case
from factorizer.data.headers import count_channels
from factorizer.data.naming import (
    CHANNEL_NAMES,
    LABEL_SUFFIXES,
    NUMBERED,
    is_image,
    split_channel,
    strip_ending,
    strip_mask_suffix,
)

MOST_NUMBERED = 10  # higher numbers are part of a case's name, not the number of a channel

Found = tuple[list[Case], list[Problem]]
Numbered = dict[str, dict[int, Path]]  # the files of each case by number
Named = dict[str, dict[str, list[Path]]]  # the files of each case by channel


def read_images(
    files: Iterable[Path], channels: Sequence[str], *, allow_missing: bool = False
) -> Found:
    """The cases of some files, and the problems of those that cannot be used.

    With `allow_missing`, a case may lack channels. Numbers tell which, if another case has all.
    """
    images = [file for file in files if is_image(file) and not file.is_dir()]
    numbered, others = group_by_number(images)
    named, others = group_by_channel(others, channels)
    singles, problems = drop_extra(others, named, channels)
    if len(channels) == 1:  # every file is a case under its whole name
        for by_channel in named.values():
            singles += chain.from_iterable(by_channel.values())
        singles.sort()
        named = {}
    cases = [make_case(strip_ending(file.name), [file], channels) for file in singles]
    numbers_tell = allow_missing and any_complete(numbered, channels)
    for name, by_number in numbered.items():
        try:
            cases.append(join_numbered(name, by_number, channels, allow_missing=numbers_tell))
        except DataError as error:
            problems += error.problems
    for name, by_channel in named.items():
        try:
            cases.append(join_named(name, by_channel, channels, allow_missing=allow_missing))
        except DataError as error:
            problems += error.problems
    kept, duplicates = drop_duplicates(cases)
    return kept, [*problems, *duplicates]


def group_by_number(images: Sequence[Path]) -> tuple[Numbered, list[Path]]:
    """The files with numbers (CASE_0000, CASE_0001, ...), and the other files."""
    groups: Numbered = {}
    others: list[Path] = []
    for file in images:
        match = NUMBERED.fullmatch(strip_ending(file.name))
        if match:
            groups.setdefault(match[1], {})[int(match[2])] = file
        else:
            others.append(file)
    numbers = set[int]().union(*groups.values())
    if 0 not in numbers or max(numbers) >= MOST_NUMBERED:
        return {}, list(images)
    return groups, others


def group_by_channel(images: Sequence[Path], channels: Sequence[str]) -> tuple[Named, list[Path]]:
    """The files that are named after the channels, and the other files."""
    groups: Named = {}
    others: list[Path] = []
    for file in images:
        found = split_channel(strip_ending(file.name), channels)
        if found is None:
            others.append(file)
        else:
            case, channel = found
            groups.setdefault(case, {}).setdefault(channel, []).append(file)
    return groups, others


def drop_extra(
    files: Sequence[Path], named: Named, channels: Sequence[str]
) -> tuple[list[Path], list[Problem]]:
    """The files that are cases of their own, and a warning about the others.

    The others are masks of a case whose channels are named, or contrasts that the model does not
    take.
    """
    extra = [file for file in files if belongs_to_any(file, named)]
    if not extra:
        return list(files), []
    message = f"left out: {list_some([file.name for file in extra])}"
    remedy = f"the model takes {', '.join(channels)} of these cases"
    warning = Problem("", str(extra[0].parent), message, remedy, "warning")
    dropped = set(extra)
    return [file for file in files if file not in dropped], [warning]


def belongs_to_any(file: Path, cases: Container[str]) -> bool:
    """Whether a file is named as a contrast or as a mask of one of the cases."""
    stem = strip_ending(file.name)
    contrast = split_channel(stem, tuple(CHANNEL_NAMES))
    if contrast is not None and contrast[0] in cases:
        return True
    return strip_mask_suffix(stem, LABEL_SUFFIXES) in cases


def any_complete(cases: Numbered, channels: Sequence[str]) -> bool:
    """Whether a case has exactly one number for each channel."""
    return any(sorted(files) == list(range(len(channels))) for files in cases.values())


def join_numbered(
    name: str, files: Mapping[int, Path], channels: Sequence[str], *, allow_missing: bool
) -> Case:
    """The case of files with numbers, one for each channel."""
    numbers = sorted(files)
    expected = range(len(channels))
    fits = set(numbers) <= set(expected) if allow_missing else numbers == list(expected)
    if not fits:
        listed = ", ".join(f"{number:04d}" for number in numbers)
        message = f"{name} has the files {listed}, but the model takes {len(channels)} channels"
        remedy = f"number them 0000 to {len(channels) - 1:04d}: {', '.join(channels)}"
        raise DataError.about(next(iter(files.values())), message, remedy, case=name)
    return make_case(name, [files.get(number) for number in expected], channels)


def join_named(
    name: str,
    parts: Mapping[str, Sequence[Path]],
    channels: Sequence[str],
    *,
    allow_missing: bool,
) -> Case:
    """The case of files that are named after the channels.

    A single file may hold all channels, whatever its name.
    """
    files = list(chain.from_iterable(parts.values()))
    if len(files) == 1 and count_channels(files[0]) == len(channels):
        return make_case(strip_ending(files[0].name), files, channels)
    for channel in channels:
        found = parts.get(channel, [])
        if len(found) > 1:
            names = " and ".join(file.name for file in found)
            message = f"{names} are both named as channel {channel}"
            raise DataError.about(found[0], message, "keep the right one", case=name)
        if not found and not allow_missing:
            names = ", ".join(file.name for file in files)
            message = f"{name} has no file for channel {channel} (it has {names})"
            wanted = files[0].name.replace(strip_ending(files[0].name), f"{name}_{channel.lower()}")
            raise DataError.about(files[0], message, f"add {wanted}, or remove the case", case=name)
    return make_case(name, [parts.get(channel, [None])[0] for channel in channels], channels)
