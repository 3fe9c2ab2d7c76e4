"""`factorizer compare`: finished runs and tables of scores, compared and reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from factorizer.data.layouts import read_cohort
from factorizer.errors import FactorizerError
from factorizer.evaluation.compare import Comparison, Entry, compare_entries
from factorizer.evaluation.scores import read_scores
from factorizer.files import require_empty_folder, write_atomically
from factorizer.profiling.table import cost_of_network
from factorizer.progress import SILENT, Progress
from factorizer.reports.comparison import comparison_files
from factorizer.runs.facts import read_facts
from factorizer.runs.fold import Fold
from factorizer.runs.run import Run
from factorizer.studies.named import split_name

SCORES = "scores"  # a file of this name is called after its folder


@dataclass(frozen=True)
class Source:
    """A system to compare: its name, its scores, and a fold of its run if the run is known."""

    name: str
    scores_file: Path
    fold: Fold | None


def compare(
    sources: Sequence[str | Path],
    *,
    out: Path | None = None,
    reference: str | None = None,
    data: Path | None = None,
    progress: Progress = SILENT,
) -> Comparison:
    """Compare systems on the cases that all of them have.

    Args:
        sources: Runs, folds or scores.csv files, as PATH or NAME=PATH.
        out: A new or empty folder for the tables and figures.
        reference: The system that is tested against each other one. The first one by default.
        data: The data set of the scores. If given, the cases of a patient are averaged before any
            test.
        progress: Where bars go.

    Example:
        >>> comparison = factorizer.compare(["ours=runs/strokes/fold0", "same=runs/strokes/fold0"])
        >>> len(comparison.cases)
        3
    """
    if out is not None:
        require_empty_folder(out)
    found = [find_source(source) for source in sources]
    entries = []
    for source in progress.track(found, "reading"):
        cost = cost_of_network(source.fold.preset) if source.fold else None
        entries.append(load_entry(source.name, source.scores_file, cost))
    patients = find_patients(data, found, entries) if data is not None else None
    comparison = compare_entries(entries, reference=reference, patients=patients)
    if out is None:
        return comparison
    files = []
    for name, content in comparison_files(comparison).items():
        write_atomically(out / name, content)
        files.append(out / name)
    return replace(comparison, files=files)


def find_source(source: str | Path) -> Source:
    """The system in a run, a fold or a scores.csv. Its name is given, or that of its folder."""
    name, path = split_name(source)
    place = Path(path)
    if place.is_file():
        folder, scores = place.parent, place
    else:
        folder, scores = place, Run(place).scores_file
    if not scores.is_file():
        raise FactorizerError(
            f"{place} has no {scores.name}; give a finished run or fold, or a {scores.name} that "
            "`factorizer evaluate` wrote"
        )
    return Source(name or default_name(place, folder), scores, find_config(folder))


def default_name(place: Path, folder: Path) -> str:
    """The name of a table of scores, otherwise of its folder. A fold is named like its run."""
    if place.is_file() and place.stem != SCORES:
        return place.stem
    fold = Fold(folder.absolute())
    return fold.path.name if fold.number is None else fold.path.parent.name


def find_config(folder: Path) -> Fold | None:
    """The fold in a folder, or the first fold of the run in it."""
    folds = [Fold(folder), *Run(folder).everything()]
    return next((fold for fold in folds if fold.exists), None)


def load_entry(name: str, scores: Path, cost: tuple[float, float] | None = None) -> Entry:
    """A system by its scores. `cost` is millions of parameters and GFLOPs."""
    parameters, gflops = cost or (None, None)
    return Entry(name, read_scores(scores), parameters, gflops, read_facts(scores.parent))


def find_patients(
    data: Path, sources: Sequence[Source], entries: Sequence[Entry]
) -> dict[str, str]:
    """The patient of each case in a data set, which must have all cases of the scores."""
    fold = next((source.fold for source in sources if source.fold), None)
    suffix = fold.preset.data.mask_suffix if fold else None
    cohort = read_cohort(data, mask_suffix=suffix)
    patients = {case.name: case.owner for case in cohort.cases}
    scored: set[str] = set()
    for entry in entries:
        scored.update(score.case for score in entry.scores)
    unknown = sorted(scored - patients.keys())
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise FactorizerError(
            f"{unknown[0]}{more} is not in {data}; give the data set that the scores are about"
        )
    return patients
