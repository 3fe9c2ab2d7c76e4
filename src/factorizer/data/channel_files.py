"""The channels of a case from its files: one file per channel, or one file with all channels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from factorizer.data.cases import Case, DataError, Source, sources_in_one_file
from factorizer.data.naming import NUMBERED, split_channel, strip_ending


def make_case(
    name: str,
    files: Sequence[Path | None],
    channels: Sequence[str],
    *,
    label: Path | None = None,
    patient: str = "",
) -> Case:
    """A case of one file with all channels, or of as many files as channels, in their order.

    None is in the place of a channel that the case lacks.
    """
    if len(files) == 1 and files[0] is not None:
        return Case(name, sources_in_one_file(files[0], channels), label, patient)
    check_order(name, files, channels)
    sources = {}
    for channel, file in zip(channels, files, strict=True):
        if file is not None:
            sources[channel] = Source(file)
    return Case(name, sources, label, patient)


def check_order(name: str, files: Sequence[Path | None], channels: Sequence[str]) -> None:
    """Refuse files in the wrong order, as far as their names or numbers tell it, and a file that is
    given twice."""
    remedy = f"give the files in the order {', '.join(channels)}"
    numbers = [number_of(file) if file else None for file in files]
    expected = [f"{index:04d}" for index in range(len(channels))]
    all_numbered = sorted(filter(None, numbers)) == expected
    for index, (file, channel) in enumerate(zip(files, channels, strict=True)):
        if file is None:
            continue
        named = split_channel(strip_ending(file.name), channels)
        if named is not None and named[1] != channel:
            message = f"it is named as {named[1]}, but it is given as {channel}"
            raise DataError.about(file, message, remedy, case=name)
        if all_numbered and numbers[index] != expected[index]:
            message = (
                f"it has the number {numbers[index]}, "
                f"but it is given as {channel}, which is {expected[index]}"
            )
            raise DataError.about(file, message, remedy, case=name)
        if files.count(file) > 1:
            message = f"it is given for {files.count(file)} channels"
            remedy = f"give each of {', '.join(channels)} its own file"
            raise DataError.about(file, message, remedy, case=name)


def number_of(file: Path) -> str | None:
    """0001 for CASE_0001.nii.gz. None if the name does not end in a number."""
    match = NUMBERED.fullmatch(strip_ending(file.name))
    return match[2] if match else None
