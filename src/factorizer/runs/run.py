"""A run: the folder of a training with all its folds.

RUN/folds.json says which cases each fold holds out. RUN/foldK is a fold. RUN/scores.csv has the
scores of all folds once they are finished, and RUN/postprocessing.json the rules chosen on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from factorizer.data.cases import Case
from factorizer.data.folds import Folds, read_fold_of, read_own_folds, write_folds
from factorizer.errors import RunError
from factorizer.evaluation.scores import Score, read_scores, write_scores
from factorizer.files import remove_leftovers
from factorizer.runs import rules
from factorizer.runs.fold import ALL, PREFIX, Fold, FoldNumber, fold_name
from factorizer.runs.rules import Rules


class Run:
    """The folder of a run. Nothing is read before it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folds_file = path / "folds.json"
        self.scores_file = path / "scores.csv"
        self.rules_file = path / rules.FILE
        self.cache = path / "cache"
        self.locks = path / ".locks"

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def fold(self, number: FoldNumber) -> Fold:
        """A fold by number, whether it exists or not."""
        return Fold(self.path / fold_name(number))

    def folds(self) -> list[Fold]:
        """The folds that exist, in the order of their numbers. foldall is not one of them."""
        found: dict[int, Fold] = {}
        for folder in self.path.glob(f"{PREFIX}*"):
            fold = Fold(folder)
            if isinstance(fold.number, int) and fold.exists:
                found[fold.number] = fold
        return [found[number] for number in sorted(found)]

    def everything(self) -> list[Fold]:
        """The folds that exist, and the one trained on all cases if it exists."""
        trained_on_all = self.fold(ALL)
        return [*self.folds(), *([trained_on_all] if trained_on_all.exists else [])]

    def fold_of_case(self) -> dict[str, int]:
        """The fold that holds out each case."""
        return read_fold_of(self.folds_file)

    def split(self, cases: Sequence[Case]) -> Folds:
        """The folds that the run wrote down, without the cases that no longer exist."""
        return read_own_folds(self.folds_file, cases)

    def write_split(self, folds: Folds, origin: str) -> None:
        """Write the folds down, unless the file exists. Another fold may do the same now."""
        with FileLock(self.locks / "run"):
            remove_leftovers(self.folds_file)
            if not self.folds_file.exists():
                write_folds(self.folds_file, folds, origin=origin)

    def scores(self) -> list[Score]:
        """The pooled scores, or otherwise those of the folds that are finished."""
        if self.scores_file.is_file():
            return read_scores(self.scores_file)
        rows: list[Score] = []
        for fold in self.folds():
            if fold.scores_file.is_file():
                rows += fold.scores()
        return rows

    def pool_scores(self, numbers: Sequence[int]) -> Path:
        """Write one table of all folds: each case has the scores of the fold that held it out."""
        rows: list[Score] = []
        for number in numbers:
            rows += self.fold(number).scores()
        rows.sort(key=lambda row: (row.case, row.region, row.metric))
        with FileLock(self.locks / "run"):
            remove_leftovers(self.scores_file)
            write_scores(self.scores_file, rows)
        return self.scores_file

    def write_rules(self, chosen: Rules) -> Path:
        """Write the rules of post-processing."""
        rules.write_rules(self.rules_file, chosen)
        return self.rules_file

    @contextmanager
    def hold(self, number: FoldNumber) -> Iterator[None]:
        """Keep other processes out of a fold while it is trained."""
        self.locks.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.locks / fold_name(number), timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise RunError(
                f"another process trains {self.fold(number).path} now; wait until it ends, or "
                "give another folder"
            ) from None
        try:
            yield
        finally:
            lock.release()
