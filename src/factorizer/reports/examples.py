"""Cases for the qualitative figure: which to show, and their arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from factorizer.config import Data
from factorizer.data.cases import DataError, Problem, select_channels
from factorizer.data.images import read_image
from factorizer.data.layouts import read_cohort
from factorizer.evaluation.evaluate import Pair, list_labels, list_references, read_pair, read_values
from factorizer.reports.qualitative import Example, mean_dice, spread

Track = Callable[[Sequence[Any], str], Iterable[Any]]


class Gallery:
    """A data set and the label maps of some systems for it, each in a folder."""

    def __init__(self, data: Path, folders: Mapping[str, Path], settings: Data) -> None:
        self.settings, self.cohort = settings, read_cohort(data, mask_suffix=settings.mask_suffix)
        self.references = list_references(data, settings)
        self.predictions = {name: {c.name: c for c in list_labels(folder)} for name, folder in folders.items()}

    def choose(self, wanted: Sequence[str] | None, count: int, track: Track) -> list[str]:
        """The cases wanted, or some from the worst to the best, by the mean Dice over the systems."""
        shared = sorted(set(self.references.cases).intersection(*self.predictions.values()))
        missing = [case for case in wanted or () if case not in shared]
        if missing or not shared:
            message = f"not every system has a prediction of {', '.join(missing) or 'any case with a reference'}"
            remedy = f"choose from {', '.join(shared[:10]) or 'none'}"
            raise DataError(Problem("", str(self.cohort.root), message, remedy))
        if wanted:
            return list(wanted)
        labels, regions = self.settings.labels, self.settings.regions
        scores = {
            case: fmean(mean_dice(p.prediction, p.reference, labels, regions) for p in self.pairs(case).values())
            for case in track(shared, "choosing cases")
        }
        return spread(scores, count)

    def pairs(self, case: str) -> dict[str, Pair]:
        """Each system's label map with the reference."""
        ours = read_values(self.settings)
        return {name: read_pair(cases[case], case, self.references, ours) for name, cases in self.predictions.items()}

    def read(self, case: str, channel: str) -> Example:
        wanted = self.settings.channels
        named = dict(zip(wanted, select_channels(self.cohort, wanted), strict=True))
        if channel not in named:
            raise ValueError(f"there is no channel {channel!r}; choose one of {', '.join(named)}")
        volume = read_image(self.cohort.case(case), [named[channel]])
        pairs = self.pairs(case)
        reference = next(iter(pairs.values())).reference
        predictions = {name: pair.prediction for name, pair in pairs.items()}
        return Example(case, volume.array[0], reference, predictions, volume.spacing_mm)
