"""2D images beside their masks in one folder: NAME.jpg and NAME_1stHO.png."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from factorizer.data.cases import (
    Case,
    Cohort,
    DataError,
    Problem,
    make_cohort,
    sources_in_one_file,
)
from factorizer.data.headers import name_colours
from factorizer.data.naming import MASK_SUFFIXES, is_picture, patient_of_eye
from factorizer.data.walk import list_folder, missing_file

LABEL_VALUES = {0: 0} | dict.fromkeys(range(1, 256), 1)  # any value except 0 is foreground


def read_pairs(folder: Path, mask_suffix: str | None = None) -> Cohort | None:
    """The cohort of 2D images with masks. Left and right eyes are of the same patient."""
    files = [file for file in list_folder(folder) if is_picture(file) and not file.is_dir()]
    suffixes = MASK_SUFFIXES if mask_suffix is None else (mask_suffix,)
    suffix = find_suffix(folder, files, suffixes)
    if suffix is None:
        return None
    mask_files = [file for file in files if file.stem.endswith(suffix)]
    masks = {file.stem.removesuffix(suffix): file for file in mask_files}
    others = [file for file in files if not file.stem.endswith(suffix)]
    images = drop_other_masks(others, masks)
    channels = name_colours(images[0]) if images else ("grey",)
    cases: list[Case] = []
    problems: list[Problem] = []
    for file in images:
        name = file.stem
        sources = sources_in_one_file(file, channels)
        cases.append(Case(name, sources, masks.get(name), patient_of_eye(name)))
        if name not in masks:
            problems.append(missing_file(name, folder / f"{name}{suffix}.png", "its mask"))
    for name in sorted(masks.keys() - {file.stem for file in images}):
        remedy = f"add the image {name}.*"
        problems.append(Problem(name, str(masks[name]), "the mask has no image", remedy))
    return make_cohort(
        folder,
        layout="pairs",
        cases=cases,
        channels=channels,
        labels={"foreground": 1},
        problems=problems,
        label_values=LABEL_VALUES,
    )


def find_suffix(folder: Path, files: Sequence[Path], suffixes: Sequence[str]) -> str | None:
    """The one suffix that masks in the folder have, or None."""
    stems = [file.stem for file in files]
    found = []
    for suffix in suffixes:
        if suffix and any(stem.endswith(suffix) for stem in stems):
            found.append(suffix)
    if len(found) > 1:
        message = f"there are files NAME{' and NAME'.join(found)}"
        remedy = "set mask_suffix to the one of the masks (data.mask_suffix in the preset)"
        raise DataError.about(folder, message, remedy)
    return found[0] if found else None


def drop_other_masks(files: Sequence[Path], masks: Collection[str]) -> list[Path]:
    """The files without masks of a second observer: NAME_2ndHO beside NAME."""
    stems = {file.stem for file in files}
    return [file for file in files if file.stem in masks or not extends_any(file.stem, stems)]


def extends_any(stem: str, others: Collection[str]) -> bool:
    """Whether a name is another one followed by an underscore and more."""
    places = [place for place, letter in enumerate(stem) if letter == "_"]
    return any(stem[:place] in others for place in places)
