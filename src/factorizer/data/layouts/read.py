"""The table of layouts, and how the layout of a data set is recognized."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from factorizer.data.cases import Cohort, DataError
from factorizer.data.layouts.brats import read_brats
from factorizer.data.layouts.description import read_description
from factorizer.data.layouts.folders import read_folders
from factorizer.data.layouts.isles import read_isles
from factorizer.data.layouts.lists import is_list, read_list_cohort
from factorizer.data.layouts.msd import read_msd
from factorizer.data.layouts.nnunet import read_nnunet
from factorizer.data.layouts.pairs import read_pairs
from factorizer.data.walk import list_folder


@dataclass(frozen=True)
class Layout:
    """One row of the table.

    `read` returns the cohort of a folder, or None if the folder has another layout.
    `read_with_suffix` does the same when the user says how masks end. It is None if masks of this
    layout have fixed names.
    """

    description: str
    read: Callable[[Path], Cohort | None]
    read_with_suffix: Callable[[Path, str], Cohort | None] | None = None


# The first layout that fits is taken. Files in folders of images and labels may be named as in
# BraTS, so these folders come before BraTS.
LAYOUTS = (
    Layout("nnU-Net (dataset.json with channel_names, imagesTr, labelsTr)", read_nnunet),
    Layout(
        "Medical Segmentation Decathlon (dataset.json with modality, imagesTr, labelsTr)", read_msd
    ),
    Layout("ISLES'22 (sub-*/ses-*, derivatives)", read_isles),
    Layout("folders images and labels with files of the same names", read_folders, read_folders),
    Layout("BraTS (a folder per case with *_flair.nii.gz or *-t2f.nii.gz)", read_brats),
    Layout("2D pairs (NAME.png and NAME_1stHO.png)", read_pairs, read_pairs),
)
LIST = "a CSV or JSON list with the columns case, label and one per channel"


class UnknownLayout(DataError):  # noqa: N818
    """A folder that has none of the layouts."""


def describe_layouts() -> str:
    """The layouts in one line, for error messages."""
    descriptions = [layout.description for layout in LAYOUTS]
    return f"{'; '.join(descriptions)}; or give {LIST}"


def read_cohort(path: Path, *, mask_suffix: str | None = None) -> Cohort:
    """The cohort of a data set: a folder in one of the layouts, or a CSV or JSON list of cases.

    `mask_suffix` says how the names of 2D masks end, if not in one of the usual ways.
    """
    if is_list(path):
        return read_list_cohort(path)
    check_folder(path)
    read_description(path)  # a damaged dataset.json is an error in every layout
    if mask_suffix is None:
        cohort = recognize(path)
        message = "the folder has no known layout"
        remedy = f"arrange it as one of: {describe_layouts()}"
    else:
        cohort = recognize_with_suffix(path, mask_suffix)
        message = f"no image has a mask named NAME{mask_suffix}"
        remedy = "correct the suffix; it is for 2D images only"
    if cohort is None:
        raise UnknownLayout.about(path, message, remedy)
    return cohort


def check_folder(path: Path) -> None:
    """Refuse a path that is not a folder, or is an empty one."""
    if path.is_file():
        remedy = (
            "unpack it and give the folder of the data set, or give a list of cases (.csv or .json)"
        )
        raise DataError.about(path, "it is a file, not a folder", remedy)
    remedy = "give the folder of a data set"
    if not path.is_dir():
        raise DataError.about(path, "there is no such folder", remedy)
    if not list_folder(path):
        raise DataError.about(path, "the folder is empty", remedy)


def recognize(folder: Path) -> Cohort | None:
    """The cohort in the first layout that fits, or None."""
    for layout in LAYOUTS:
        cohort = layout.read(folder)
        if cohort is not None:
            return cohort
    return None


def recognize_with_suffix(folder: Path, mask_suffix: str) -> Cohort | None:
    """The cohort in the last layout whose masks end in `mask_suffix`, or None.

    The suffix is mainly for pairs, so pairs are tried before folders.
    """
    for layout in reversed(LAYOUTS):
        if layout.read_with_suffix is not None:
            cohort = layout.read_with_suffix(folder, mask_suffix)
            if cohort is not None:
                return cohort
    return None
