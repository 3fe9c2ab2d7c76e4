"""A folder of images and a folder of labels, matched by name, without a dataset.json.

The label of case p1 is labels/p1.nii.gz, or a name such as p1_label, p1_seg or p1_mask. Its image
is one file with all channels, images/p1.nii.gz, or one file per channel: images/p1_0000.nii.gz,
images/p1_dwi.nii.gz.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path

from factorizer.data.cases import Case, Cohort, DataError, Problem, Source, sources_in_one_file
from factorizer.data.headers import name_channels
from factorizer.data.naming import (
    LABEL_SUFFIXES,
    MOST_CHANNELS,
    canonical_channel,
    is_image,
    is_picture,
    patient_of,
    patient_of_eye,
    split_channel,
    splits,
    strip_ending,
    strip_mask_suffix,
    unnamed_channels,
)
from factorizer.data.walk import list_folder, list_folders, missing_file

IMAGE_FOLDERS = ("images", "image", "imagestr")
LABEL_FOLDERS = ("labels", "label", "labelstr", "masks", "mask")
WHOLE = ""  # the ending of a file that holds all channels

# The files of a case by their ending, the part of the name after the case. More than one file per
# ending is an error.
Parts = dict[str, list[Path]]


def read_folders(folder: Path, mask_suffix: str | None = None) -> Cohort | None:
    """The cohort of two folders, images and labels. `mask_suffix` says how labels end."""
    folders = list_folders(folder)
    images = find_folder(folder, folders, IMAGE_FOLDERS)
    labels = find_folder(folder, folders, LABEL_FOLDERS)
    if images is None or labels is None:
        return None
    image_files = list_images(images)
    label_files = list_images(labels)
    if not image_files or not label_files:
        return None
    if mask_suffix is not None and not any_ends(label_files, mask_suffix):
        return None
    suffixes = LABEL_SUFFIXES if mask_suffix is None else (mask_suffix,)
    groups = group_images(image_files, label_files, suffixes)
    label_of, problems = match_labels(label_files, groups, suffixes)
    endings = common_endings(groups)
    channels = channels_of(folder, endings, groups)
    has_label_problem = {problem.case for problem in problems}
    cases, as_found = [], []
    for name, parts in groups.items():
        try:
            check_parts(name, parts, endings)
        except DataError as error:
            problems += error.problems
            continue
        as_found.append(make_case_as_found(name, parts, endings, channels))
        missing = missing_part(name, parts, endings, channels)
        if missing is not None:
            problems.append(missing)
            continue
        cases.append(make_case(name, parts, endings, channels, label_of.get(name)))
        if name not in label_of and name not in has_label_problem:
            problems.append(missing_file(name, labels / f"{name}.*", "its label"))
    return Cohort(
        folder,
        "folders",
        tuple(cases),
        channels,
        {},
        {},
        problems=tuple(problems),
        as_found=tuple(as_found),
    )


def find_folder(folder: Path, folders: Sequence[Path], names: Sequence[str]) -> Path | None:
    """The folder that has one of the names, in upper or lower case, or None."""
    found = [path for path in folders if path.name.lower() in names]
    if len(found) > 1:
        message = f"it holds the folders {names_of(found)}"
        remedy = "keep the right one, or give a list of cases (.csv)"
        raise DataError.about(folder, message, remedy)
    return found[0] if found else None


def list_images(folder: Path) -> list[Path]:
    return [file for file in list_folder(folder) if is_image(file) and not file.is_dir()]


def any_ends(files: Sequence[Path], suffix: str) -> bool:
    return any(strip_ending(file.name).endswith(suffix) for file in files)


def group_images(
    images: Sequence[Path], labels: Sequence[Path], suffixes: Sequence[str]
) -> dict[str, Parts]:
    """The images of each case. The names of the labels tell where the name of a case ends."""
    label_stems = {strip_ending(file.name) for file in labels}
    names = label_stems | {strip_mask_suffix(stem, suffixes) for stem in label_stems}
    whole = names & {strip_ending(file.name) for file in images}
    divided = names - whole
    groups: dict[str, Parts] = {}
    without_label: list[Path] = []
    for file in images:
        stem = strip_ending(file.name)
        split = (stem, WHOLE) if stem in whole else split_after(stem, divided)
        if split is None:
            without_label.append(file)
        else:
            add_part(groups, *split, file)
    endings = set[str]().union(*groups.values()) - {WHOLE}
    for file in without_label:
        stem = strip_ending(file.name)
        case, ending = split_channel(stem, sorted(endings)) or (stem, WHOLE)
        add_part(groups, case, ending, file)
    return dict(sorted(groups.items()))


def split_after(stem: str, names: Collection[str]) -> tuple[str, str] | None:
    """The longest of the names that the stem begins with, and the rest of the stem."""
    for case, ending in splits(stem):
        if case in names:
            return case, ending
    return None


def add_part(groups: dict[str, Parts], case: str, ending: str, file: Path) -> None:
    groups.setdefault(case, {}).setdefault(canonical_channel(ending), []).append(file)


def match_labels(
    labels: Sequence[Path], groups: Mapping[str, Parts], suffixes: Sequence[str]
) -> tuple[dict[str, Path], list[Problem]]:
    """The label of each case, and the problems of labels without a case or with a shared one."""
    matched: dict[str, list[Path]] = {}
    problems = []
    for file in labels:
        stem = strip_ending(file.name)
        name = stem if stem in groups else strip_mask_suffix(stem, suffixes)
        if name in groups:
            matched.setdefault(name, []).append(file)
        else:
            remedy = "add the image, or remove the label"
            problems.append(Problem(stem, str(file), "the label has no image", remedy))
    label_of: dict[str, Path] = {}
    for name, files in matched.items():
        if len(files) > 1:
            message = f"{names_of(files)} are labels of the same case"
            problems.append(Problem(name, str(files[0]), message, "keep the right one"))
        else:
            label_of[name] = files[0]
    return label_of, problems


def common_endings(groups: Mapping[str, Parts]) -> list[str]:
    """The endings that at least half of the cases have, sorted. Only WHOLE if it is one of them."""
    counts: Counter[str] = Counter()
    for parts in groups.values():
        counts.update(parts.keys())
    common = [ending for ending, count in counts.items() if 2 * count >= len(groups)]
    if not common:
        common = [counts.most_common(1)[0][0]]
    return [WHOLE] if WHOLE in common else sorted(common)


def channels_of(
    folder: Path, endings: Sequence[str], groups: Mapping[str, Parts]
) -> tuple[str, ...]:
    """The channels' names, which are the endings of files. Channels with numbers have no names."""
    if list(endings) == [WHOLE]:
        first = next(parts[WHOLE][0] for parts in groups.values() if WHOLE in parts)
        return name_channels(first)
    if len(endings) > MOST_CHANNELS:
        message = f"a case has {len(endings)} files; at most {MOST_CHANNELS} channels are read"
        remedy = "give labels the names of their images, or give a list of cases"
        raise DataError.about(folder, message, remedy)
    if all(re.fullmatch(r"\d{4}", ending) for ending in endings):
        return unnamed_channels(len(endings))
    return tuple(endings)


def check_parts(name: str, parts: Parts, endings: Sequence[str]) -> None:
    """Refuse a case with several files for an ending, or with one file where most have several."""
    files = list(chain.from_iterable(parts.values()))
    if any(len(part) > 1 for part in parts.values()):
        message = f"the case has the files {names_of(files)}"
        raise DataError.about(files[0], message, "keep one per channel", case=name)
    missing = [ending for ending in endings if ending not in parts]
    if missing and (WHOLE in parts or WHOLE in missing):
        usual = "one file" if WHOLE in missing else f"files that end in {', '.join(endings)}"
        message = f"the case has {names_of(files)}, unlike most, which have {usual}"
        raise DataError.about(files[0], message, "arrange all cases in the same way", case=name)


def missing_part(
    name: str, parts: Parts, endings: Sequence[str], channels: Sequence[str]
) -> Problem | None:
    """The problem of a case without a file for one of the endings. None if all exist."""
    first = next(iter(parts.values()))[0]
    for ending, channel in zip(endings, channels, strict=False):
        if ending not in parts:
            wanted = first.with_name(f"{name}_{ending}.*")
            return missing_file(name, wanted, f"channel {channel}")
    return None


def make_case(
    name: str, parts: Parts, endings: Sequence[str], channels: Sequence[str], label: Path | None
) -> Case:
    """A case that has one file for each of the endings."""
    files = [parts[ending][0] for ending in endings]
    if list(endings) == [WHOLE]:
        sources = sources_in_one_file(files[0], channels)
    else:
        sources = {channel: Source(file) for channel, file in zip(channels, files, strict=True)}
    patient = patient_of(name)
    if not patient and is_picture(files[0]):
        patient = patient_of_eye(name)
    return Case(name, sources, label, patient)


def make_case_as_found(
    name: str, parts: Parts, endings: Sequence[str], channels: Sequence[str]
) -> Case:
    """A case with all channels that it has: also some that most cases lack, maybe not those that
    most have."""
    if list(endings) == [WHOLE]:
        return make_case(name, parts, endings, channels, None)
    channel_of = dict(zip(endings, channels, strict=True))
    sources = {}
    for ending, files in parts.items():
        if ending != WHOLE:
            sources[channel_of.get(ending, ending)] = Source(files[0])
    return Case(name, sources)


def names_of(paths: Sequence[Path]) -> str:
    return " and ".join(path.name for path in paths)
