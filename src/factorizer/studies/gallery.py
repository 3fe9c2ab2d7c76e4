"""Cases for the qualitative figure: which to show, and their arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from factorizer.config import Data
from factorizer.data.cases import DataError, Problem
from factorizer.data.images import read_image
from factorizer.data.inputs import read_inputs
from factorizer.data.layouts import read_cohort
from factorizer.errors import FactorizerError
from factorizer.evaluation.evaluate import (
    Pair,
    References,
    list_labels,
    list_references,
    read_pair,
    read_prediction,
    read_values,
)
from factorizer.figures.qualitative import Example, mean_dice, spread

Track = Callable[[Sequence[Any], str], Iterable[Any]]


class Gallery:
    """Images, the label maps of some systems for them, each in a folder, and references where there
    are some."""

    def __init__(
        self,
        data: Path,
        folders: Mapping[str, Path],
        settings: Data,
        *,
        references: Path | None = None,
    ) -> None:
        self.data, self.settings = data, settings
        cases, self.problems = read_inputs(
            [data], settings.channels, mask_suffix=settings.mask_suffix
        )
        self.cases = {case.name: case for case in cases}
        self.references = (
            find_references(data, settings)
            if references is None
            else list_references(references, settings)
        )
        self.predictions = {
            name: {c.name: c for c in list_labels(folder)} for name, folder in folders.items()
        }

    def choose(self, wanted: Sequence[str] | None, count: int, track: Track) -> list[str]:
        """The cases wanted, or some from the worst to the best, by the mean Dice over the systems;
        without references some at equal steps of their names."""
        predicted = sorted(set(self.cases).intersection(*self.predictions.values()))
        scored = [case for case in predicted if case in self.references.cases]
        missing = [case for case in wanted or () if case not in predicted]
        if missing or not predicted:
            message = f"not every system has a prediction of {', '.join(missing) or 'any case'}"
            remedy = f"choose from {', '.join(predicted[:10]) or 'none'}"
            raise DataError(Problem("", str(self.data), message, remedy))
        if wanted:
            return list(wanted)
        if not scored:
            if self.references.cases:
                names = ", ".join(sorted(self.references.cases)[:3])
                message = f"no case ({predicted[0]}, ...) has a reference ({names}, ...)"
                raise DataError(
                    Problem(
                        "", str(self.data), message, "give references with the names of the cases"
                    )
                )
            return spread({case: float(index) for index, case in enumerate(predicted)}, count)
        scores = {
            case: fmean(
                mean_dice(p.prediction, p.reference, self.settings.targets)
                for p in self.pairs(case).values()
            )
            for case in track(scored, "choosing cases")
        }
        return spread(scores, count)

    def pairs(self, case: str) -> dict[str, Pair]:
        """Each system's label map with the reference."""
        ours = read_values(self.settings)
        return {
            name: read_pair(cases[case], case, self.references, ours)
            for name, cases in self.predictions.items()
        }

    def read(self, case: str, channel: str) -> Example:
        if channel not in self.settings.channels:
            listed = ", ".join(self.settings.channels)
            raise FactorizerError(f"there is no channel {channel!r}; choose one of {listed}")
        volume = read_image(self.cases[case], [channel])
        if case in self.references.cases:
            pairs = self.pairs(case)
            reference = next(iter(pairs.values())).reference
            predictions = {name: pair.prediction for name, pair in pairs.items()}
            return Example(case, volume.array[0], reference, predictions, volume.spacing_mm)
        ours, image = read_values(self.settings), self.cases[case].channels[channel].file
        predictions = {
            name: read_prediction(cases[case], volume.grid, ours, beside=f"image {image}")
            for name, cases in self.predictions.items()
        }
        return Example(case, volume.array[0], None, predictions, volume.spacing_mm)


def find_references(data: Path, settings: Data) -> References:
    """The data set's own labels; none where images are given, or a data set without labels."""
    try:
        cohort = read_cohort(data, mask_suffix=settings.mask_suffix)
    except DataError:  # images, or a list of them
        return References({}, {})
    return list_references(data, settings) if cohort.labelled else References({}, {})
