"""`factorizer data folds`: divide the cases of a data set into folds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from factorizer.data.cases import Problem
from factorizer.data.check import CheckedData, read_and_check
from factorizer.data.folds import Folds, draw_folds, read_folds, write_folds
from factorizer.data.layouts import read_cohort
from factorizer.errors import FactorizerError
from factorizer.files import refuse_existing, require_ending
from factorizer.progress import SILENT, Progress


@dataclass(frozen=True)
class DealtFolds:
    """Folds of a data set, where they come from, and problems of cases that were read for them."""

    folds: Folds
    origin: str
    problems: tuple[Problem, ...] = ()


def make_folds(
    data: Path,
    *,
    out: Path | None = None,
    num_folds: int = 5,
    seed: int = 0,
    stratify: bool = False,
    split: Path | None = None,
    mask_suffix: str | None = None,
    progress: Progress = SILENT,
) -> DealtFolds:
    """Divide the labelled cases of a data set into folds. A patient is never in two of them.

    Args:
        data: The data set: its folder, or a CSV or JSON list of cases.
        out: A new .json file for the folds.
        num_folds: The number of folds to draw.
        seed: The same seed gives the same folds.
        stratify: Give the folds about the same lesion volumes. All labels are read for this.
        split: Take the folds from this file instead: a CSV with the columns case and fold, a
            folds.json, or nnU-Net's splits_final.json.
        mask_suffix: The end of 2D masks' names, such as _1stHO. Otherwise the usual ones are tried.
        progress: Where bars go.

    Returns:
        The cases of each fold, and the problems of cases that were read.

    Example:
        >>> dealt = factorizer.make_folds(Path("strokes"), num_folds=2)
        >>> [len(names) for names in dealt.folds.values()]
        [3, 3]
    """
    if out is not None:
        require_ending("out", out, ".json")
        refuse_existing(out)
    if split is not None:
        if stratify:
            raise FactorizerError("stratify is for folds that are drawn; leave it out with a split")
        cohort = read_cohort(data, mask_suffix=mask_suffix)
        dealt = DealtFolds(read_folds(split, cohort.labelled), f"split {split.name}")
    else:
        dealt = draw(data, num_folds, seed, stratify, mask_suffix, progress)
    if out is not None:
        write_folds(out, dealt.folds, origin=dealt.origin)
    return dealt


def draw(
    data: Path,
    num_folds: int,
    seed: int,
    stratify: bool,
    mask_suffix: str | None,
    progress: Progress,
) -> DealtFolds:
    """New folds, drawn from a seed."""
    if not stratify:
        cohort = read_cohort(data, mask_suffix=mask_suffix)
        return DealtFolds(
            draw_folds(cohort.labelled, num_folds=num_folds, seed=seed), f"seed {seed}"
        )
    checked = read_and_check(data, mask_suffix=mask_suffix, progress=progress)
    volumes = volumes_of(checked)
    folds = draw_folds(checked.cohort.labelled, num_folds=num_folds, seed=seed, volumes=volumes)
    origin = f"seed {seed}, stratified by volume"
    return DealtFolds(folds, origin, tuple(checked.report.problems))


def volumes_of(checked: CheckedData) -> dict[str, float]:
    """The lesion volume of each case; 0 for a case that could not be read."""
    volumes = {case.name: 0.0 for case in checked.cohort.cases}
    volumes |= {case.name: case.ml for case in checked.report.cases}
    return volumes
