"""`factorizer data check`: the report on a data set, and a figure of its first cases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from factorizer.config import Preset
from factorizer.data.check import CheckedData, read_and_check
from factorizer.files import refuse_existing, require_ending, write_atomically
from factorizer.preset_files import load_preset
from factorizer.progress import SILENT, Progress

MOST_DRAWN = 6  # cases in a figure


def check_data(
    data: Path,
    *,
    preset: str | Path | Preset | None = None,
    mask_suffix: str | None = None,
    figure: Path | None = None,
    progress: Progress = SILENT,
) -> CheckedData:
    """Read every image and label of a data set, and report what is wrong.

    A case that cannot be read is a problem of the report, and the others continue.

    Args:
        data: The data set: its folder, or a CSV or JSON list of cases.
        preset: Check against the channels, labels and regions of this preset: a preset, its name or
            its file. Otherwise the data set's own count.
        mask_suffix: The end of 2D masks' names, such as _1stHO. Otherwise it is the preset's.
        figure: A new .png file for a figure of the first cases.
        progress: Where bars go.

    Returns:
        The cohort, the report with all problems, and the files that were written.

    Example:
        >>> checked = factorizer.check_data(Path("strokes"), preset="isles22")
        >>> len(checked.report.cases), checked.report.errors
        (6, [])
    """
    if figure is not None:
        require_ending("figure", figure, ".png")
        refuse_existing(figure)
    wanted = None if preset is None else load_preset(preset)
    checked = read_and_check(data, preset=wanted, mask_suffix=mask_suffix, progress=progress)
    if figure is None or not checked.report.cases:
        return checked
    draw_cases(checked, figure)
    return replace(checked, files=(figure,))


def draw_cases(checked: CheckedData, figure: Path) -> None:
    """Draw the first cases with their labels."""
    from factorizer.figures.contact_sheet import draw_contact_sheet

    names = [case.name for case in checked.report.cases[:MOST_DRAWN]]
    png = draw_contact_sheet(checked.cohort, names, checked.report.channels)
    write_atomically(figure, png)
