"""`factorizer figure qualitative`: which cases to show, and the segmentations of each system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from factorizer.config import Data, Preset
from factorizer.data.cases import Case, DataError, Problem
from factorizer.data.images import read_image
from factorizer.data.inputs import read_inputs
from factorizer.data.layouts import read_cohort
from factorizer.errors import FactorizerError
from factorizer.evaluation.label_pairs import Pair, read_pair, read_prediction
from factorizer.evaluation.references import (
    References,
    list_labels,
    list_references,
    preset_values,
)
from factorizer.figures.qualitative import Example, draw_examples, mean_dice, spread
from factorizer.files import refuse_existing, require_ending, write_atomically
from factorizer.preset_files import load_preset
from factorizer.progress import SILENT, Progress
from factorizer.studies.named import split_name

ROWS = 4  # cases that are shown, unless they are named


@dataclass(frozen=True, eq=False)
class GalleryFigure:
    """A figure of segmentations as PNG, the cases in it, and problems with other cases.

    `files` were written.
    """

    png: bytes
    cases: Sequence[str]
    problems: Sequence[Problem]
    files: Sequence[Path] = ()


def draw_gallery(
    data: Path,
    preset: str | Path | Preset,
    predictions: Sequence[str | Path],
    *,
    out: Path | None = None,
    references: Path | None = None,
    cases: Sequence[str] | None = None,
    rows: int | None = None,
    channel: str | None = None,
    progress: Progress = SILENT,
) -> GalleryFigure:
    """Draw segmentations side by side: a row per case, a column per system.

    Args:
        data: A data set in any layout, or images as `predict` takes them.
        preset: The preset, or its name or file. It says the labels, regions and channels.
        predictions: A folder of predicted label maps per system, as FOLDER or NAME=FOLDER.
        out: A new .png file.
        references: True labels: a folder of files, or a data set. Those of `data` by default.
        cases: The cases to show. By default some from the worst to the best.
        rows: How many cases to show if they are not named. 4 by default.
        channel: The channel to draw on. The first of the preset by default.
        progress: Where bars go.

    Example:
        >>> systems = ["ours=predictions"]
        >>> drawn = factorizer.draw_gallery(Path("strokes"), "isles22", systems, rows=2)
        >>> len(drawn.cases)
        2
    """
    if out is not None:
        check_output(out)
    if cases and rows:
        raise FactorizerError("cases and rows are both given; rows is for cases that are not named")
    section = load_preset(preset).data
    shown = channel or section.channels[0]
    if shown not in section.channels:
        listed = ", ".join(section.channels)
        raise FactorizerError(f"there is no channel {shown!r}; choose one of {listed}")
    folders = name_folders(predictions)
    gallery = Gallery(data, folders, section, references=references)
    chosen = gallery.choose(cases, rows or ROWS, progress)
    examples = []
    for case in progress.track(chosen, "reading cases"):
        examples.append(gallery.read(case, shown))
    png = draw_examples(examples, targets=section.targets)
    if out is not None:
        write_atomically(out, png)
    return GalleryFigure(png, chosen, gallery.problems, [] if out is None else [out])


def check_output(out: Path) -> None:
    refuse_existing(out)
    require_ending("out", out, ".png")


def name_folders(predictions: Sequence[str | Path]) -> dict[str, Path]:
    """The folder of each system by the system's name."""
    folders: dict[str, Path] = {}
    for text in predictions:
        name, folder = split_name(text)
        name = name or Path(folder).name
        if name in folders:
            raise FactorizerError(
                f"two systems are named {name}; give each its own name, as NAME=FOLDER"
            )
        folders[name] = Path(folder)
    return folders


class Gallery:
    """Images, the predictions of some systems for them, and references if they are known."""

    def __init__(
        self,
        data: Path,
        folders: dict[str, Path],
        section: Data,
        *,
        references: Path | None = None,
    ) -> None:
        self.data = data
        self.section = section
        cases, self.problems = read_inputs(
            [data], section.channels, mask_suffix=section.mask_suffix
        )
        self.cases = {case.name: case for case in cases}
        if references is None:
            self.references = own_references(data, section)
        else:
            self.references = list_references(references, section)
        self.predictions: dict[str, dict[str, Case]] = {}
        for name, folder in folders.items():
            self.predictions[name] = {case.name: case for case in list_labels(folder)}

    def choose(
        self, wanted: Sequence[str] | None, count: int, progress: Progress = SILENT
    ) -> list[str]:
        """The cases that are wanted, or some from the worst to the best by mean Dice.

        Without references they are some at equal steps of their names.
        """
        predicted = sorted(set(self.cases).intersection(*self.predictions.values()))
        missing = [case for case in wanted or () if case not in predicted]
        if missing or not predicted:
            message = f"not every system has a prediction of {', '.join(missing) or 'any case'}"
            remedy = f"choose from {', '.join(predicted[:10]) or 'none'}"
            raise DataError(Problem("", str(self.data), message, remedy))
        if wanted:
            return list(wanted)
        if not self.references.cases:
            places = {case: float(place) for place, case in enumerate(predicted)}
            return spread(places, count)
        return spread(self.score(predicted, progress), count)

    def score(self, predicted: Sequence[str], progress: Progress) -> dict[str, float]:
        """The mean Dice over systems of each case that has a reference."""
        scored = [case for case in predicted if case in self.references.cases]
        if not scored:
            names = ", ".join(sorted(self.references.cases)[:3])
            message = f"no case ({predicted[0]}, ...) has a reference ({names}, ...)"
            remedy = "give references with the names of the cases"
            raise DataError(Problem("", str(self.data), message, remedy))
        targets = self.section.targets
        scores = {}
        for case in progress.track(scored, "choosing cases"):
            pairs = self.pairs(case).values()
            scores[case] = fmean(
                mean_dice(pair.prediction, pair.reference, targets) for pair in pairs
            )
        return scores

    def pairs(self, case: str) -> dict[str, Pair]:
        """The prediction of each system with the reference."""
        values = preset_values(self.section)
        pairs = {}
        for name, cases in self.predictions.items():
            pairs[name] = read_pair(cases[case], case, self.references, values)
        return pairs

    def read(self, case: str, channel: str) -> Example:
        """A case as it is drawn."""
        volume = read_image(self.cases[case], [channel])
        image, spacing_mm = volume.array[0], volume.spacing_mm
        if case in self.references.cases:
            pairs = self.pairs(case)
            reference = next(iter(pairs.values())).reference
            predictions = {name: pair.prediction for name, pair in pairs.items()}
            return Example(case, image, reference, predictions, spacing_mm)
        values = preset_values(self.section)
        beside = f"image {self.cases[case].channels[channel].file}"
        predictions = {}
        for name, cases in self.predictions.items():
            predictions[name] = read_prediction(cases[case], volume.grid, values, beside=beside)
        return Example(case, image, None, predictions, spacing_mm)


def own_references(data: Path, section: Data) -> References:
    """The labels of a data set. Empty for images, or for a data set without labels."""
    try:
        cohort = read_cohort(data, mask_suffix=section.mask_suffix)
    except DataError:  # images, or a list of images
        return References({}, {})
    return list_references(data, section) if cohort.labelled else References({}, {})
