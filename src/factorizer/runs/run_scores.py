"""The scores that a user means by a path: a scores.csv, a fold or a run."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from statistics import fmean

from factorizer.errors import FactorizerError
from factorizer.evaluation.scores import Score, read_scores
from factorizer.files import FileError
from factorizer.runs.run import Run


def find_scores(source: Path) -> list[Score]:
    """The scores in a file, of a fold, or of a run whose folds may not be pooled yet."""
    if source.is_file():
        return read_scores(source)
    run = Run(source)  # the table of a fold has the same name
    rows = run.scores()
    if not rows:
        raise FactorizerError(
            f"there is no {run.scores_file.name} in {source}; give such a file, or the folder of a "
            "run"
        )
    return rows


def mean_dice(source: Path) -> float:
    """The mean over cases of a case's mean Dice over regions."""
    cases: dict[str, list[float]] = {}
    for row in find_scores(source):
        if row.metric != "dice":
            continue
        if isnan(row.value):
            message = f"the Dice of {row.case}, {row.region} is nan"
            raise FileError(source, message, "give a number from 0 to 1")
        cases.setdefault(row.case, []).append(row.value)
    if not cases:
        raise FileError(source, "it has no row whose metric is dice", "give scores with Dice")
    return fmean(fmean(values) for values in cases.values())
