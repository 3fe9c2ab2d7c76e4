"""The layouts of data sets on disk, each read into a `Cohort`. Names are looked at here, hardly an
image is opened.

| layout | how it is recognized |
|---|---|
| nnunet | `dataset.json` with `channel_names`, `imagesTr/CASE_0000.nii.gz` |
| msd | `dataset.json` with `modality`, images with all channels in one file |
| isles | BIDS: `[rawdata/]sub-*/ses-*/**/*_dwi.nii.gz`, `derivatives/**/*_msk.nii.gz` |
| folders | `images/` and `labels/` (`masks/`, `imagesTr`, `labelsTr`), files of the same name |
| brats | a folder per case, or one level down (HGG, LGG), with `*_flair.nii.gz`, `*-t2f.nii.gz` |
| pairs | 2D images beside their masks, `NAME.jpg` and `NAME_1stHO.png` |
| list | no folder, a CSV or JSON file with the fields `case`, `label` and one per channel |
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from factorizer.data.cases import Case, Cohort, DataError, Problem, Source, make_cohort
from factorizer.data.described import read_description, read_msd, read_nnunet
from factorizer.data.headers import picture_channels
from factorizer.data.lists import LIST_ENDINGS, read_list_cohort
from factorizer.data.loose import read_image_folders
from factorizer.data.naming import IMAGES_2D, MASK_SUFFIXES, NIFTI, canonical_channel, strip_ending
from factorizer.data.walk import (
    files_ending,
    list_deep,
    list_folder,
    list_folders,
    missing_file,
    one_file,
)

__all__ = [
    "IMAGES_2D",
    "LAYOUTS",
    "NIFTI",
    "UnknownLayout",
    "list_folder",
    "read_cohort",
    "strip_ending",
]

# BraTS before and since 2023: what stands before a file's ending, the endings, and its label values
# as ours, which are
# those of the Decathlon (in the old style enhancing tumour is 4, in some copies 3)
BRATS_STYLES = {
    "_": (("flair", "t1", "t1ce", "t2"), {0: 0, 1: 2, 2: 1, 3: 3, 4: 3}),
    "-": (("t2f", "t1n", "t1c", "t2w"), {0: 0, 1: 2, 2: 1, 3: 3}),
}
BRATS_LABELS = {"edema": 1, "necrosis": 2, "enhancing": 3}
MOST_FOLDERS = 20_000  # that are looked into for cases of BraTS
LAYOUTS = (
    "nnU-Net (dataset.json with channel_names, imagesTr, labelsTr); Medical Segmentation Decathlon "
    "(dataset.json with modality, imagesTr, labelsTr); ISLES'22 (sub-*/ses-*, derivatives); BraTS "
    "(a folder per case with *_flair.nii.gz or *-t2f.nii.gz); 2D pairs (NAME.png and "
    f"NAME{MASK_SUFFIXES[0]}.png); folders images and labels with files of the same names; or give "
    "a CSV or JSON list with the columns case, label and one per channel"
)


class UnknownLayout(DataError):  # noqa: N818
    """A folder in none of the layouts."""


def read_cohort(folder: Path, *, mask_suffix: str | None = None) -> Cohort:
    """Recognize the layout of a data set and list its cases; `mask_suffix` says how 2D masks are
    named.

    Instead of a folder it may be a CSV or JSON list of cases.
    """
    if folder.is_file() and folder.suffix.lower() in LIST_ENDINGS:
        return read_list_cohort(folder)
    if folder.is_file():
        message = "it is a file, not a folder"
        remedy = (
            "unpack it, and give the folder of the data set, or give a list of cases (.csv or "
            ".json)"
        )
        raise DataError(Problem("", str(folder), message, remedy))
    if not folder.is_dir() or not list_folder(folder):
        message = "the folder is empty" if folder.is_dir() else "there is no such folder"
        raise DataError(Problem("", str(folder), message, "give the folder of a data set"))
    cohort = recognize(folder, mask_suffix)
    if cohort is not None:
        return cohort
    if mask_suffix is not None:
        message = f"no image has a mask named NAME{mask_suffix}"
        raise UnknownLayout(
            Problem("", str(folder), message, "correct the suffix; it is for 2D images only")
        )
    message = "no known layout is recognized in this folder"
    raise UnknownLayout(Problem("", str(folder), message, f"arrange it as one of: {LAYOUTS}"))


def recognize(folder: Path, mask_suffix: str | None) -> Cohort | None:
    """The cohort of the first layout that fits. Folders of images and labels come before BraTS,
    whose names of files they may have."""
    description = read_description(folder)
    if mask_suffix is not None:
        return read_pairs(folder, (mask_suffix,)) or read_image_folders(folder, mask_suffix)
    return (
        read_nnunet(folder, description)
        or read_msd(folder, description)
        or read_isles(folder)
        or read_image_folders(folder)
        or read_brats(folder)
        or read_pairs(folder, MASK_SUFFIXES)
    )


def read_isles(folder: Path) -> Cohort | None:
    """ISLES'22 in BIDS form, with or without the rawdata level. FLAIR is there for presets that ask
    for it."""
    raw = folder / "rawdata" if (folder / "rawdata").is_dir() else folder
    root = (
        folder.absolute().parent if folder.absolute().name == "rawdata" else folder
    )  # that of derivatives
    sessions = name_sessions(raw)
    if not sessions:
        return None
    channels = ("DWI", "ADC")
    cases: list[Case] = []
    problems: list[Problem] = []
    for session, name in sessions.items():
        patient = session.parent.name
        stem = f"{patient}_{session.name}"
        try:
            files = list_deep(session)
            found = {
                c: one_file(name, session, files, f"_{c.lower()}") for c in (*channels, "FLAIR")
            }
            mask = find_mask(name, root, session)
        except DataError as error:
            problems += [replace(problem, case=name) for problem in error.problems]
            continue
        missing = [channel for channel in channels if found[channel] is None]
        if missing:
            problems.append(
                missing_file(
                    name, session / "dwi" / f"{stem}_{missing[0].lower()}.nii.gz", missing[0]
                )
            )
            continue
        sources = {channel: Source(file) for channel, file in found.items() if file is not None}
        cases.append(Case(name, sources, mask, patient))
        if mask is None:
            wanted = root / "derivatives" / patient / session.name / f"{stem}_msk.nii.gz"
            problems.append(missing_file(name, wanted, "its label"))
    return make_cohort(folder, "isles", cases, channels, {"lesion": 1}, problems)


def name_sessions(raw: Path) -> dict[Path, str]:
    """The sessions of a BIDS data set, named by the patient, and by the session where somebody has
    several."""
    patients = [
        path
        for path in list_folders(raw)
        if path.name.startswith("sub-") and os.access(path, os.R_OK)
    ]
    folders = [path for patient in patients for path in list_folders(patient)]
    sessions = [path for path in folders if path.name.startswith("ses-")]
    several = len(sessions) > len({path.parent for path in sessions})
    return {
        path: f"{path.parent.name}_{path.name}" if several else path.parent.name
        for path in sessions
    }


def find_mask(case: str, folder: Path, session: Path) -> Path | None:
    """A session's mask in derivatives/, in a pipeline's folder below that, or beside the images."""
    place = Path(session.parent.name) / session.name
    derivatives = folder / "derivatives"
    pipelines = [path / place for path in list_folder(derivatives)]
    for parent in (derivatives / place, *pipelines, session):
        mask = one_file(case, parent, list_deep(parent), "_msk") if parent.is_dir() else None
        if mask is not None:
            return mask
    return None


def read_brats(folder: Path) -> Cohort | None:
    """BraTS challenge: a folder per case, in the names of before or since 2023."""
    folders = list_folders(folder)
    styles = brats_styles(folders)
    if not any(styles.values()):  # HGG and LGG, or the folder around the data
        folders = [path for parent in folders for path in list_folders(parent)]
        styles = brats_styles(folders)
    style = next(filter(None, styles.values()), None)
    if style is None:
        return None
    endings, label_values = BRATS_STYLES[style]
    channels = tuple(canonical_channel(ending) for ending in endings)
    cases, problems = [], []
    for path in folders:
        if styles[path] != style:
            message = (
                f"the folder holds no files named *{style}{endings[0]}.nii.gz as the others do"
            )
            problems.append(
                Problem(path.name, str(path), message, "add them, or remove the folder")
            )
            continue
        try:
            files = list_folder(path)
            found = {
                c: one_file(path.name, path, files, style + e)
                for c, e in zip(channels, endings, strict=True)
            }
            label = one_file(path.name, path, files, f"{style}seg")
        except DataError as error:
            problems += error.problems
            continue
        missing = [e for c, e in zip(channels, endings, strict=True) if found[c] is None]
        if missing:
            wanted = path / f"{path.name}{style}{missing[0]}.nii.gz"
            problems.append(
                missing_file(path.name, wanted, f"channel {canonical_channel(missing[0])}")
            )
            continue
        sources = {channel: Source(file) for channel, file in found.items() if file is not None}
        patient = re.sub(r"-\d{3}$", "", path.name) if style == "-" else path.name
        cases.append(Case(path.name, sources, label, patient))
        if label is None:
            problems.append(
                missing_file(path.name, path / f"{path.name}{style}seg.nii.gz", "its label")
            )
    return make_cohort(
        folder, "brats", cases, channels, BRATS_LABELS, problems, label_values=label_values
    )


def brats_styles(folders: Sequence[Path]) -> dict[Path, str | None]:
    """Which of the two ways of naming the files in each folder follow; none where they are too many
    for BraTS."""
    return {path: brats_style(path) for path in folders} if len(folders) <= MOST_FOLDERS else {}


def brats_style(folder: Path) -> str | None:
    if not os.access(folder, os.R_OK | os.X_OK):
        return None
    files = list_folder(folder)
    for separator, (endings, _) in BRATS_STYLES.items():
        if any(files_ending(files, separator + ending) for ending in endings):
            return separator
    return None


def read_pairs(folder: Path, suffixes: Sequence[str]) -> Cohort | None:
    """2D images and masks in one folder. Left and right eyes, NAME12L and NAME12R, are one
    patient."""
    files = [
        file
        for file in list_folder(folder)
        if file.suffix.lower() in IMAGES_2D and not file.is_dir()
    ]
    found = [s for s in suffixes if s and any(file.stem.endswith(s) for file in files)]
    if not found:
        return None
    if len(found) > 1:
        message = f"there are files NAME{' and NAME'.join(found)}"
        remedy = "say which are the masks (--mask-suffix, or data.mask_suffix of the preset)"
        raise DataError(Problem("", str(folder), message, remedy))
    (suffix,) = found
    masks = {file.stem.removesuffix(suffix): file for file in files if file.stem.endswith(suffix)}
    others = [file for file in files if not file.stem.endswith(suffix)]
    stems = {file.stem for file in others}
    images = [
        f
        for f in others
        if f.stem in masks or not any(f.stem.startswith(f"{s}_") for s in stems - {f.stem})
    ]
    channels = picture_channels(images[0]) if images else ("grey",)
    cases, problems = [], []
    for file in images:
        sources = {
            channel: Source(file, index, len(channels)) for index, channel in enumerate(channels)
        }
        patient = re.sub(r"(?<=\d)[LR]$", "", file.stem)
        cases.append(Case(file.stem, sources, masks.get(file.stem), patient))
        if file.stem not in masks:
            problems.append(
                missing_file(file.stem, folder / f"{file.stem}{suffix}.png", "its mask")
            )
    for stem in sorted(masks.keys() - {file.stem for file in images}):
        problems.append(
            Problem(stem, str(masks[stem]), "the mask has no image", f"add the image {stem}.*")
        )
    values = {value: int(value > 0) for value in range(256)}  # any value but 0 is foreground
    return make_cohort(
        folder, "pairs", cases, channels, {"foreground": 1}, problems, label_values=values
    )
