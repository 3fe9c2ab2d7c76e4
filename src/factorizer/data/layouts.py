"""The layouts of data sets on disk, each read into a `Cohort`. Names are looked at here, hardly an image is opened.

| layout | how it is recognized |
|---|---|
| nnunet | `dataset.json` with `channel_names`, `imagesTr/CASE_0000.nii.gz` |
| msd | `dataset.json` with `modality`, images with all channels in one file |
| isles | BIDS: `[rawdata/]sub-*/ses-*/**/*_dwi.nii.gz`, `derivatives/**/*_msk.nii.gz` |
| brats | a folder per case, also one level down (HGG, LGG), with `*_flair.nii.gz` or `*-t2f.nii.gz` |
| pairs | 2D images beside their masks, `NAME.jpg` and `NAME_1stHO.png` |
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from factorizer.data.cases import Case, Cohort, DataError, Problem, Source, drop_duplicates
from factorizer.data.pictures import open_picture

NIFTI = (".nii.gz", ".nii")
IMAGES_2D = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
MASK_SUFFIXES = ("_1stHO", "_mask", "_seg", "_label", "_manual1", "_gt")

# what the same MRI contrast is called in one place and another
SPELLINGS = {
    "FLAIR": ("flair", "t2f"),
    "T1": ("t1", "t1w", "t1n"),
    "T1Gd": ("t1gd", "t1ce", "t1c"),
    "T2": ("t2", "t2w"),
}
CHANNEL_NAMES = {"dwi": "DWI", "adc": "ADC"} | {text: name for name, texts in SPELLINGS.items() for text in texts}
# BraTS before and since 2023: what stands before a file's ending, the endings, and its label values as ours, which are
# those of the Decathlon (in the old style enhancing tumour is 4, in some copies 3)
BRATS_STYLES = {
    "_": (("flair", "t1", "t1ce", "t2"), {0: 0, 1: 2, 2: 1, 3: 3, 4: 3}),
    "-": (("t2f", "t1n", "t1c", "t2w"), {0: 0, 1: 2, 2: 1, 3: 3}),
}
BRATS_LABELS = {"edema": 1, "necrosis": 2, "enhancing": 3}
HIGHEST_LABEL = 255
LAYOUTS = (
    "nnU-Net (dataset.json with channel_names, imagesTr, labelsTr); "
    "Medical Segmentation Decathlon (dataset.json with modality, imagesTr, labelsTr); "
    "ISLES'22 (sub-*/ses-*, derivatives); "
    "BraTS (a folder per case with *_flair.nii.gz or *-t2f.nii.gz); "
    f"2D pairs (NAME.png and NAME{MASK_SUFFIXES[0]}.png)"
)


class UnknownLayout(DataError):  # noqa: N818
    """A folder in none of the layouts."""


def read_cohort(folder: Path, *, mask_suffix: str | None = None) -> Cohort:
    """Recognize the layout of a data set and list its cases; `mask_suffix` says how 2D masks are named."""
    if folder.is_file():
        message, remedy = "it is a file, not a folder", "unpack it, and give the folder of the data set"
        raise DataError(Problem("", str(folder), message, remedy))
    if not folder.is_dir() or not list_folder(folder):
        message = "the folder is empty" if folder.is_dir() else "there is no such folder"
        raise DataError(Problem("", str(folder), message, "give the folder of a data set"))
    description = read_description(folder)
    try:
        if mask_suffix is not None:
            cohort = read_pairs(folder, (mask_suffix,))
        else:
            cohort = (
                read_nnunet(folder, description)
                or read_msd(folder, description)
                or read_isles(folder)
                or read_brats(folder)
                or read_pairs(folder, MASK_SUFFIXES)
            )
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"it does not say what it should ({type(error).__name__}: {error})"
        raise DataError(Problem("", f"{folder}/dataset.json", message, "compare it with a published one")) from None
    if cohort is not None:
        return cohort
    if mask_suffix is not None:
        message = f"no image has a mask named NAME{mask_suffix}"
        raise UnknownLayout(Problem("", str(folder), message, "correct the suffix; it is for 2D images only"))
    message = "no known layout is recognized in this folder"
    raise UnknownLayout(Problem("", str(folder), message, f"arrange it as one of: {LAYOUTS}"))


def read_description(folder: Path) -> dict[str, Any]:
    """The data set's dataset.json, or nothing."""
    file = folder / "dataset.json"
    if not file.is_file():
        return {}
    try:
        description = json.loads(file.read_text())
    except (ValueError, OSError) as error:
        raise DataError(Problem("", str(file), f"it cannot be read ({error})", "mend the file")) from None
    if not isinstance(description, dict):
        raise DataError(Problem("", str(file), "it holds no description", "mend the file"))
    return description


def read_msd(folder: Path, description: Mapping[str, Any]) -> Cohort | None:
    """Medical Segmentation Decathlon: all channels of a case in one file."""
    modality = description.get("modality")
    if not modality:
        return None
    channels = unique_channels(modality[key] for key in sorted(modality, key=int))
    labels = {str(name): int(value) for value, name in description["labels"].items() if int(value)}
    cases, problems = [], []
    for entry in description["training"]:
        image = folder / entry["image"]
        label = folder / entry["label"] if entry.get("label") else None
        name = strip_ending(image.name)
        missing = [file for file in (image, label) if file is not None and not os.path.isfile(file)]
        if missing:
            problems += [missing_file(name, file, "dataset.json lists it") for file in missing]
            continue
        sources = {channel: Source(image, index, len(channels)) for index, channel in enumerate(channels)}
        cases.append(numbered_case(name, sources, label, description))
    return make_cohort(folder, "msd", cases, channels, labels, problems)


def numbered_case(name: str, channels: Mapping[str, Source], label: Path | None, about: Mapping[str, Any]) -> Case:
    """Its number tells the patient of the Decathlon's hippocampi: 2k - 1 and 2k are taken as two sides of a scan, as
    the medians of all 55 such pairs that were seen are within 8 %, while scales differ by orders of magnitude."""
    number = re.fullmatch(r"hippocampus_(\d{3})", name)
    if number is None or str(about.get("description", "")).startswith("Synthetic"):
        return Case(name, channels, label)
    return Case(name, channels, label, f"hippocampus scan {(int(number[1]) + 1) // 2}", patient_is_sure=False)


def read_nnunet(folder: Path, description: Mapping[str, Any]) -> Cohort | None:
    """nnU-Net raw data: one file per channel, numbered; labels by name, or regions as lists of values."""
    names = description.get("channel_names")
    if not names:
        return None
    channels = unique_channels(names[key] for key in sorted(names, key=int))
    ending = str(description.get("file_ending", ".nii.gz"))
    problems = []
    entries = dict(description["labels"])
    values: dict[int, int] = {}
    ignored = int(entries.pop("ignore")) if "ignore" in entries else None
    if ignored is not None:
        values[ignored] = 0
        message, remedy = "voxels labelled ignore are read as background", "leave them out of the data if that is wrong"
        problems.append(Problem("", str(folder / "dataset.json"), message, remedy, "warning"))
    labels, regions = read_nnunet_labels(entries)
    pattern = re.compile(rf"(.+)_(\d{{4}}){re.escape(ending)}")
    files: dict[str, dict[int, Path]] = {}
    for file in list_folder(folder / "imagesTr"):
        match = pattern.fullmatch(file.name)
        if match:
            files.setdefault(match[1], {})[int(match[2])] = file
    cases = []
    for name, numbered in files.items():
        absent = [index for index in range(len(channels)) if index not in numbered]
        extra = [index for index in numbered if index >= len(channels)]
        if absent:
            wanted = folder / "imagesTr" / f"{name}_{absent[0]:04d}{ending}"
            problems.append(missing_file(name, wanted, f"channel {channels[absent[0]]}"))
            continue
        if extra:
            message = f"there are {len(numbered)} channels, but dataset.json names {len(channels)}"
            problems.append(Problem(name, str(numbered[extra[0]]), message, "remove the file, or name the channel"))
            continue
        label = folder / "labelsTr" / f"{name}{ending}"
        sources = {channel: Source(numbered[index]) for index, channel in enumerate(channels)}
        cases.append(numbered_case(name, sources, label if label.is_file() else None, description))
        if not label.is_file():
            problems.append(missing_file(name, label, "its label"))
    values |= {0: 0, **{value: value for value in labels.values()}}
    meaning: dict[str, Any] = {"label_values": values, "regions": regions, "ignored": ignored}
    return make_cohort(folder, "nnunet", cases, channels, labels, problems, **meaning)


def read_nnunet_labels(entries: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, tuple[str, ...]]]:
    """Labels by name; an entry with several values is a region over labels named by their values."""
    lists = {name: [int(v) for v in (value if isinstance(value, list) else [value])] for name, value in entries.items()}
    lists = {name: values for name, values in lists.items() if values != [0]}
    if all(len(values) == 1 for values in lists.values()):
        return {name: values[0] for name, values in lists.items()}, {}
    single = {values[0]: name for name, values in lists.items() if len(values) == 1}
    every = sorted({value for values in lists.values() for value in values})
    names = {value: single.get(value, f"label{value}") for value in every}
    return {names[v]: v for v in every}, {name: tuple(names[v] for v in values) for name, values in lists.items()}


def read_isles(folder: Path) -> Cohort | None:
    """ISLES'22 in BIDS form, with or without the rawdata level. FLAIR is there for presets that ask for it."""
    raw = folder / "rawdata" if (folder / "rawdata").is_dir() else folder
    root = folder.absolute().parent if folder.absolute().name == "rawdata" else folder  # that of derivatives
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
            found = {
                channel: one_file(name, session, f"_{channel.lower()}", deep=True) for channel in (*channels, "FLAIR")
            }
            mask = find_mask(name, root, session)
        except DataError as error:
            problems += error.problems
            continue
        missing = [channel for channel in channels if found[channel] is None]
        if missing:
            problems.append(missing_file(name, session / "dwi" / f"{stem}_{missing[0].lower()}.nii.gz", missing[0]))
            continue
        sources = {channel: Source(file) for channel, file in found.items() if file is not None}
        cases.append(Case(name, sources, mask, patient))
        if mask is None:
            wanted = root / "derivatives" / patient / session.name / f"{stem}_msk.nii.gz"
            problems.append(missing_file(name, wanted, "its label"))
    return make_cohort(folder, "isles", cases, channels, {"lesion": 1}, problems)


def name_sessions(raw: Path) -> dict[Path, str]:
    """The sessions of a BIDS data set, named by the patient, and by the session where somebody has several."""
    sessions = sorted(path for path in raw.glob("sub-*/ses-*") if path.is_dir())
    several = len(sessions) > len({path.parent for path in sessions})
    return {path: f"{path.parent.name}_{path.name}" if several else path.parent.name for path in sessions}


def find_mask(case: str, folder: Path, session: Path) -> Path | None:
    """A session's mask in derivatives/, in a pipeline's folder below that, or beside the images."""
    place = Path(session.parent.name) / session.name
    derivatives = folder / "derivatives"
    for parent in (derivatives / place, *sorted(derivatives.glob(f"*/{place}")), session):
        mask = one_file(case, parent, "_msk", deep=True) if parent.is_dir() else None
        if mask is not None:
            return mask
    return None


def read_brats(folder: Path) -> Cohort | None:
    """BraTS challenge: a folder per case, in the names of before or since 2023."""
    folders = [path for path in list_folder(folder) if path.is_dir()]
    if not any(brats_style(path) for path in folders):  # HGG and LGG, or the folder around the data
        folders = [path for parent in folders for path in list_folder(parent) if path.is_dir()]
    style = next((style for path in folders if (style := brats_style(path))), None)
    if style is None:
        return None
    endings, label_values = BRATS_STYLES[style]
    channels = tuple(canonical_channel(ending) for ending in endings)
    cases, problems = [], []
    for path in folders:
        if brats_style(path) != style:
            message = f"the folder holds no files named *{style}{endings[0]}.nii.gz as the others do"
            problems.append(Problem(path.name, str(path), message, "add them, or remove the folder"))
            continue
        try:
            found = {c: one_file(path.name, path, style + e) for c, e in zip(channels, endings, strict=True)}
            label = one_file(path.name, path, f"{style}seg")
        except DataError as error:
            problems += error.problems
            continue
        missing = [e for c, e in zip(channels, endings, strict=True) if found[c] is None]
        if missing:
            wanted = path / f"{path.name}{style}{missing[0]}.nii.gz"
            problems.append(missing_file(path.name, wanted, f"channel {canonical_channel(missing[0])}"))
            continue
        sources = {channel: Source(file) for channel, file in found.items() if file is not None}
        patient = re.sub(r"-\d{3}$", "", path.name) if style == "-" else path.name
        cases.append(Case(path.name, sources, label, patient))
        if label is None:
            problems.append(missing_file(path.name, path / f"{path.name}{style}seg.nii.gz", "its label"))
    return make_cohort(folder, "brats", cases, channels, BRATS_LABELS, problems, label_values=label_values)


def brats_style(folder: Path) -> str | None:
    """Which of the two ways of naming a case's files follow."""
    if not os.access(folder, os.R_OK | os.X_OK):
        return None
    for separator, (endings, _) in BRATS_STYLES.items():
        if any(files_ending(folder, separator + ending) for ending in endings):
            return separator
    return None


def read_pairs(folder: Path, suffixes: Sequence[str]) -> Cohort | None:
    """2D images and masks in one folder. Left and right eyes, NAME12L and NAME12R, are one patient."""
    files = [file for file in list_folder(folder) if file.suffix.lower() in IMAGES_2D]
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
    images = [f for f in others if f.stem in masks or not any(f.stem.startswith(f"{s}_") for s in stems - {f.stem})]
    channels = ("red", "green", "blue") if images and has_colour(images[0]) else ("grey",)
    cases, problems = [], []
    for file in images:
        sources = {channel: Source(file, index, len(channels)) for index, channel in enumerate(channels)}
        patient = re.sub(r"(?<=\d)[LR]$", "", file.stem)
        cases.append(Case(file.stem, sources, masks.get(file.stem), patient))
        if file.stem not in masks:
            problems.append(missing_file(file.stem, folder / f"{file.stem}{suffix}.png", "its mask"))
    for stem in sorted(masks.keys() - {file.stem for file in images}):
        problems.append(Problem(stem, str(masks[stem]), "the mask has no image", f"add the image {stem}.*"))
    values = {value: int(value > 0) for value in range(256)}  # any value but 0 is foreground
    return make_cohort(folder, "pairs", cases, channels, {"foreground": 1}, problems, label_values=values)


def has_colour(file: Path) -> bool:
    """Whether a picture has several channels; one that cannot be opened is reported when it is read."""
    try:
        with open_picture(file) as picture:
            return picture.mode not in ("1", "L", "LA", "F") and not picture.mode.startswith("I")
    except Exception:  # of every kind, as PIL's readers trust what they read
        return True


def make_cohort(
    folder: Path,
    layout: str,
    cases: list[Case],
    channels: tuple[str, ...],
    labels: Mapping[str, int],
    problems: list[Problem],
    *,
    label_values: Mapping[int, int] | None = None,
    regions: Mapping[str, tuple[str, ...]] | None = None,
    ignored: int | None = None,
) -> Cohort:
    if not labels or not all(0 < value <= HIGHEST_LABEL for value in labels.values()):
        got = ", ".join(f"{name} = {value}" for name, value in labels.items()) or "none"
        message = f"its labels are {got}"
        raise DataError(
            Problem("", str(folder / "dataset.json"), message, f"give labels with values from 1 to {HIGHEST_LABEL}")
        )
    kept, duplicates = drop_duplicates(cases)
    problems = [*problems, *duplicates]
    if not kept and not problems:
        problems.append(Problem("", str(folder), f"no case is found in this {layout} data set", "add images"))
    values = label_values or {0: 0, **{value: value for value in labels.values()}}
    return Cohort(folder, layout, tuple(kept), channels, labels, values, regions or {}, tuple(problems), ignored)


def canonical_channel(name: str) -> str:
    return CHANNEL_NAMES.get(str(name).strip().lower(), str(name).strip())


def unique_channels(names: Iterable[str]) -> tuple[str, ...]:
    """Canonical names; one that comes again is numbered (CT, CT_1)."""
    unique: list[str] = []
    for name in map(canonical_channel, names):
        again = sum(other == name or other.startswith(f"{name}_") for other in unique)
        unique.append(f"{name}_{again}" if name in unique else name)
    return tuple(unique)


def strip_ending(name: str) -> str:
    """A file's name without .nii.gz or another ending."""
    return next((name.removesuffix(ending) for ending in NIFTI if name.endswith(ending)), Path(name).stem)


def list_folder(folder: Path) -> list[Path]:
    """What is in a folder, without the hidden files that some systems add."""
    try:
        return sorted(file for file in folder.iterdir() if not file.name.startswith("."))
    except FileNotFoundError:
        return []
    except PermissionError:
        raise DataError(Problem("", str(folder), "the folder cannot be read", "give yourself permission")) from None


def files_ending(folder: Path, ending: str, *, deep: bool = False) -> list[Path]:
    """NIfTI files in a folder, or also below it, whose name ends so."""
    endings = tuple(ending + nifti for nifti in NIFTI)
    found = [file for file in list_folder(folder) if file.name.endswith(endings)]
    if deep:
        found += [f for sub in list_folder(folder) if sub.is_dir() for f in files_ending(sub, ending, deep=True)]
    return found


def one_file(case: str, folder: Path, ending: str, *, deep: bool = False) -> Path | None:
    """The only file that ends so, or None; several are an error."""
    found = files_ending(folder, ending, deep=deep)
    if len(found) > 1:
        names = " and ".join(str(file.relative_to(folder)) for file in found[:2])
        raise DataError(Problem(case, str(folder), f"{names} both end in {ending}", "keep the right one"))
    return found[0] if found else None


def missing_file(case: str, file: Path, what: str) -> Problem:
    return Problem(case, str(file), f"the file is missing ({what})", "add it, or remove the case")
