"""BraTS: a folder per case with *_flair.nii.gz or *-t2f.nii.gz, or such folders one level down."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from factorizer.data.cases import (
    Case,
    Cohort,
    DataError,
    Problem,
    Source,
    make_cohort,
    missing_channels,
)
from factorizer.data.naming import canonical_channel
from factorizer.data.walk import files_ending, list_folder, list_folders, missing_file, one_file

LABELS = {"edema": 1, "necrosis": 2, "enhancing": 3}  # as in the Decathlon
MOST_FOLDERS = 20_000  # a folder with more of them is not searched for cases


@dataclass(frozen=True)
class Style:
    """How the files of a case are named, and which of `LABELS` each value on disk is."""

    separator: str
    endings: tuple[str, ...]
    label_values: Mapping[int, int]

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(canonical_channel(ending) for ending in self.endings)

    def file(self, folder: Path, ending: str) -> Path:
        """The usual name of a file in the folder of a case."""
        return folder / f"{folder.name}{self.separator}{ending}.nii.gz"

    def patient(self, case: str) -> str:
        """Since 2023 the name of a case ends in the number of the visit."""
        return re.sub(r"-\d{3}$", "", case) if self.separator == "-" else case


STYLES = (
    # before 2023; enhancing tumour is 4, in some copies 3
    Style("_", ("flair", "t1", "t1ce", "t2"), {0: 0, 1: 2, 2: 1, 3: 3, 4: 3}),
    # since 2023
    Style("-", ("t2f", "t1n", "t1c", "t2w"), {0: 0, 1: 2, 2: 1, 3: 3}),
)


def read_brats(folder: Path) -> Cohort | None:
    """The cohort of a folder with a folder per case, or with groups of them (HGG and LGG)."""
    folders = list_folders(folder)
    styles = find_styles(folders)
    if not any(styles.values()):
        deeper = [path for group in folders for path in list_folders(group)]
        styles = find_styles(deeper)
    style = next(filter(None, styles.values()), None)
    if style is None:
        return None
    cases: list[Case] = []
    as_found: list[Case] = []
    problems: list[Problem] = []
    for path, own_style in styles.items():
        try:
            case = read_case(path, style, own_style)
        except DataError as error:
            problems += error.problems
            continue
        as_found.append(case)
        missing = missing_channels(case, style.channels)
        if missing:
            file = style.file(path, style.endings[style.channels.index(missing[0])])
            problems.append(missing_file(case.name, file, f"channel {missing[0]}"))
            continue
        cases.append(case)
        if case.label is None:
            problems.append(missing_file(case.name, style.file(path, "seg"), "its label"))
    return make_cohort(
        folder,
        layout="brats",
        cases=cases,
        channels=style.channels,
        labels=LABELS,
        problems=problems,
        label_values=style.label_values,
        as_found=as_found,
    )


def find_styles(folders: Sequence[Path]) -> dict[Path, Style | None]:
    """The style of each folder. Empty if there are too many folders for a BraTS data set."""
    if len(folders) > MOST_FOLDERS:
        return {}
    return {folder: find_style(folder) for folder in folders}


def find_style(folder: Path) -> Style | None:
    """The style that the files in a folder follow, or None."""
    if not os.access(folder, os.R_OK | os.X_OK):
        return None
    files = list_folder(folder)
    for style in STYLES:
        if any(files_ending(files, style.separator + ending) for ending in style.endings):
            return style
    return None


def read_case(folder: Path, style: Style, own_style: Style | None) -> Case:
    """The case in a folder, with the channels that exist. Its style must be that of the whole data
    set, so there is at least one."""
    name = folder.name
    if own_style != style:
        wanted = f"*{style.separator}{style.endings[0]}.nii.gz"
        message = f"unlike the other folders, it holds no files named {wanted}"
        raise DataError.about(folder, message, "add them, or remove the folder", case=name)
    files = list_folder(folder)
    found = {
        ending: one_file(name, folder, files, style.separator + ending)
        for ending in (*style.endings, "seg")
    }
    sources: dict[str, Source] = {}
    for ending, channel in zip(style.endings, style.channels, strict=True):
        file = found[ending]
        if file is not None:
            sources[channel] = Source(file)
    return Case(name, sources, found["seg"], style.patient(name))
