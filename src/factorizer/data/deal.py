"""`factorizer data folds`: deal the cases of a data set into folds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from factorizer.data.cases import Problem
from factorizer.data.check import CheckedData, check_data
from factorizer.data.folds import Folds, draw_folds, read_folds, write_folds
from factorizer.data.layouts import read_cohort
from factorizer.errors import FactorizerError
from factorizer.progress import SILENT, Progress


@dataclass(frozen=True)
class DealtFolds:
    """Folds of a data set, where they come from, and problems of cases that were read for them."""

    folds: Folds
    origin: str
    problems: tuple[Problem, ...] = ()

    def save(self, file: Path) -> None:
        """Write the folds as JSON."""
        write_folds(file, self.folds, origin=self.origin)


def make_folds(
    folder: Path,
    *,
    num_folds: int = 5,
    seed: int = 0,
    stratify: bool = False,
    split: Path | None = None,
    mask_suffix: str | None = None,
    progress: Progress = SILENT,
) -> DealtFolds:
    """Deal the labelled cases of a data set into folds. A patient is never in two of them.

    Args:
        folder: The data set: its folder, or a CSV or JSON list of cases.
        num_folds: The number of folds to draw.
        seed: The same seed gives the same folds.
        stratify: Give the folds about the same lesion volumes. All labels are read for this.
        split: Take the folds from this file instead: a CSV with the columns case and fold, a
            folds.json, or nnU-Net's splits_final.json.
        mask_suffix: The end of 2D masks' names, such as _1stHO. Otherwise the usual ones are tried.
        progress: Where bars go.

    Example:
        >>> dealt = make_folds(Path("Task04_Hippocampus"), num_folds=5)  # doctest: +SKIP
        >>> dealt.save(Path("folds.json"))  # doctest: +SKIP
    """
    if split is not None:
        if stratify:
            raise FactorizerError("stratify is for folds that are drawn; leave it out with a split")
        cohort = read_cohort(folder, mask_suffix=mask_suffix)
        return DealtFolds(read_folds(split, cohort.labelled), f"split {split.name}")
    if not stratify:
        cohort = read_cohort(folder, mask_suffix=mask_suffix)
        folds = draw_folds(cohort.labelled, num_folds=num_folds, seed=seed)
        return DealtFolds(folds, f"seed {seed}")
    checked = check_data(folder, mask_suffix=mask_suffix, progress=progress)
    volumes = volumes_of(checked)
    folds = draw_folds(checked.cohort.labelled, num_folds=num_folds, seed=seed, volumes=volumes)
    origin = f"seed {seed}, stratified by volume"
    return DealtFolds(folds, origin, tuple(checked.report.problems))


def volumes_of(checked: CheckedData) -> dict[str, float]:
    """The lesion volume of each case; 0 for a case that could not be read."""
    volumes = {case.name: 0.0 for case in checked.cohort.cases}
    volumes |= {case.name: case.ml for case in checked.report.cases}
    return volumes
