"""A folder of images and a folder of labels that are matched by name, without a description.

`labels/p1.nii.gz` (or p1_label, p1_seg, p1_mask) belongs to `images/p1.nii.gz`, a file with all
channels, or to files with a channel each: `images/p1_0000.nii.gz`, `images/p1_dwi.nii.gz`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from factorizer.data.cases import Case, Cohort, DataError, Problem, Source
from factorizer.data.headers import name_channels
from factorizer.data.naming import (
    MASK_SUFFIXES,
    MOST_CHANNELS,
    canonical_channel,
    is_image,
    is_picture,
    patient_of,
    split_channel,
    splits,
    strip_ending,
    strip_mask_suffix,
    unnamed_channels,
)
from factorizer.data.walk import list_folder, list_folders, missing_file

IMAGE_FOLDERS = ("images", "image", "imagestr")
LABEL_FOLDERS = ("labels", "label", "labelstr", "masks", "mask")
SUFFIXES = (*MASK_SUFFIXES, "_labels", "_masks", "_msk", "-label", "-seg", "-mask")
WHOLE = ""  # what stands after a case's name in the name of a file with all channels

Parts = dict[
    str, list[Path]
]  # of a case: what stands after its name -> files, of which there should be one


def read_image_folders(folder: Path, mask_suffix: str | None = None) -> Cohort | None:
    """The cases of two folders, images and labels; `mask_suffix` is what labels are called after
    their images."""
    suffixes = SUFFIXES if mask_suffix is None else (mask_suffix,)
    folders = list_folders(folder)
    images = one_of(folder, folders, IMAGE_FOLDERS)
    labels = one_of(folder, folders, LABEL_FOLDERS)
    if images is None or labels is None:
        return None
    label_files = [file for file in list_folder(labels) if is_image(file) and not file.is_dir()]
    image_files = [file for file in list_folder(images) if is_image(file) and not file.is_dir()]
    if not label_files or not image_files:
        return None
    if mask_suffix is not None and not any(
        strip_ending(file.name).endswith(mask_suffix) for file in label_files
    ):
        return None
    groups = group_images(image_files, label_files, suffixes)
    matched, problems = match_labels(label_files, groups, suffixes)
    endings = common_endings(groups)
    channels = name_endings(folder, endings, groups)
    known = {problem.case for problem in problems}
    cases = []
    for name, parts in groups.items():
        try:
            cases.append(make_case(name, parts, endings, channels, matched.get(name)))
        except DataError as error:
            problems += error.problems
            continue
        if name not in matched and name not in known:
            problems.append(missing_file(name, labels / f"{name}.*", "its label"))
    return Cohort(folder, "folders", tuple(cases), channels, {}, {}, problems=tuple(problems))


def one_of(folder: Path, folders: Sequence[Path], names: Sequence[str]) -> Path | None:
    """The folder with one of some names, in capitals or not."""
    found = [path for path in folders if path.name.lower() in names]
    if len(found) > 1:
        message = f"it holds the folders {' and '.join(path.name for path in found)}"
        raise DataError(
            Problem("", str(folder), message, "keep the right one, or give a list of cases (.csv)")
        )
    return found[0] if found else None


def group_images(
    images: Sequence[Path], labels: Sequence[Path], suffixes: Sequence[str]
) -> dict[str, Parts]:
    """The files of each case. What labels are called tells where the name of a case ends."""
    stems = {strip_ending(file.name) for file in labels}
    names = stems | {strip_mask_suffix(stem, suffixes) for stem in stems}
    whole = {strip_ending(file.name) for file in images} & names
    groups: dict[str, Parts] = {}
    others: list[Path] = []
    for file in images:
        stem = strip_ending(file.name)
        found = next(
            ((case, end) for case, end in splits(stem) if case in names and case not in whole), None
        )
        if stem in whole:
            add_part(groups, stem, WHOLE, file)
        elif found is not None:
            add_part(groups, *found, file)
        else:
            others.append(file)
    endings = {ending for parts in groups.values() for ending in parts} - {WHOLE}
    for file in others:  # without a label
        stem = strip_ending(file.name)
        found = split_channel(stem, sorted(endings))
        case, ending = found if found is not None else (stem, WHOLE)
        add_part(groups, case, ending, file)
    return dict(sorted(groups.items()))


def add_part(groups: dict[str, Parts], case: str, ending: str, file: Path) -> None:
    groups.setdefault(case, {}).setdefault(canonical_channel(ending), []).append(file)


def match_labels(
    labels: Sequence[Path], groups: Mapping[str, Parts], suffixes: Sequence[str]
) -> tuple[dict[str, Path], list[Problem]]:
    """The label of each case, and labels that belong to none or to one that has another."""
    matched: dict[str, list[Path]] = {}
    problems = []
    for file in labels:
        stem = strip_ending(file.name)
        name = stem if stem in groups else strip_mask_suffix(stem, suffixes)
        if name in groups:
            matched.setdefault(name, []).append(file)
        else:
            problems.append(
                Problem(
                    stem, str(file), "the label has no image", "add the image, or remove the label"
                )
            )
    for name, files in matched.items():
        if len(files) > 1:
            message = f"{' and '.join(file.name for file in files)} are labels of the same case"
            problems.append(Problem(name, str(files[0]), message, "keep the right one"))
    return {name: files[0] for name, files in matched.items() if len(files) == 1}, problems


def common_endings(groups: Mapping[str, Parts]) -> list[str]:
    """What at least half of the cases have, in order: an ending for each channel, or a file with
    all."""
    counts = Counter(ending for parts in groups.values() for ending in parts)
    common = [ending for ending, count in counts.items() if 2 * count >= len(groups)]
    common = common or [counts.most_common(1)[0][0]]
    return [WHOLE] if WHOLE in common else sorted(common)


def name_endings(
    folder: Path, endings: Sequence[str], groups: Mapping[str, Parts]
) -> tuple[str, ...]:
    """Channels as their files are called; those that are only numbered have no names."""
    if list(endings) == [WHOLE]:
        return name_channels(next(parts[WHOLE][0] for parts in groups.values() if WHOLE in parts))
    if len(endings) > MOST_CHANNELS:
        message = f"a case has {len(endings)} files; at most {MOST_CHANNELS} channels are read"
        raise DataError(
            Problem(
                "", str(folder), message, "name labels as their images, or give a list of cases"
            )
        )
    if all(re.fullmatch(r"\d{4}", ending) for ending in endings):
        return unnamed_channels(len(endings))
    return tuple(endings)


def make_case(
    name: str, parts: Parts, endings: Sequence[str], channels: Sequence[str], label: Path | None
) -> Case:
    files = [file for part in parts.values() for file in part]
    listed = " and ".join(file.name for file in files)
    missing = [ending for ending in endings if ending not in parts]
    if any(len(part) > 1 for part in parts.values()):
        raise DataError(
            Problem(name, str(files[0]), f"the case has the files {listed}", "keep one per channel")
        )
    if missing and (WHOLE in parts or WHOLE in missing):
        usual = "one file" if WHOLE in missing else f"files that end in {', '.join(endings)}"
        message = f"the case has {listed}, unlike most, which have {usual}"
        raise DataError(Problem(name, str(files[0]), message, "arrange all cases in the same way"))
    if missing:
        channel = channels[list(endings).index(missing[0])]
        wanted = files[0].with_name(f"{name}_{missing[0]}.*")
        raise DataError(missing_file(name, wanted, f"channel {channel}"))
    if list(endings) == [WHOLE]:
        sources = {
            channel: Source(files[0], index, len(channels))
            for index, channel in enumerate(channels)
        }
    else:
        sources = {
            channel: Source(parts[ending][0])
            for channel, ending in zip(channels, endings, strict=True)
        }
    one_eye = re.sub(r"(?<=\d)[LR]$", "", name) if is_picture(files[0]) else ""
    return Case(name, sources, label, patient_of(name) or one_eye)
