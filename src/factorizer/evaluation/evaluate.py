"""`factorizer evaluate`: predictions against references, matched by the names of cases."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from factorizer.config import Data, Preset
from factorizer.data.attempts import attempt
from factorizer.data.cases import Case, DataError, Problem
from factorizer.data.images import canonical_grid
from factorizer.errors import FactorizerError
from factorizer.evaluation.label_maps import score_label_maps
from factorizer.evaluation.label_pairs import read_pair
from factorizer.evaluation.nnunet_summary import make_summary, summarize_case
from factorizer.evaluation.references import (
    References,
    list_labels,
    list_references,
    preset_values,
    renamed_values,
)
from factorizer.evaluation.scores import (
    MOST_MM,
    HD95Empty,
    Means,
    Score,
    describe_conventions,
    mean_scores,
    write_scores,
)
from factorizer.files import refuse_existing, require_ending, write_atomically
from factorizer.preset_files import load_preset
from factorizer.progress import SILENT, Progress

PRESET, DATASET = "preset", "dataset"  # whose label values predictions have


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores of predictions, and the cases that have none.

    `problems` says why cases could not be scored. `unmatched` names the cases that only the
    predictions or only the references have. `conventions` says how empty masks were scored.
    `summaries` has the cases as nnU-Net's summary.json does. `files` were written.
    """

    scores: Sequence[Score]
    problems: Sequence[Problem]
    unmatched: Mapping[str, Sequence[str]]
    conventions: str
    summaries: Sequence[Mapping[str, Any]]
    files: Sequence[Path] = ()

    @property
    def means(self) -> dict[str, Means]:
        """The means over cases, by region."""
        return mean_scores(self.scores)


def evaluate(
    predictions: Path,
    references: Path,
    preset: str | Path | Preset,
    *,
    out: Path | None = None,
    hd95_empty: str | float = "diagonal",
    prediction_values: str = PRESET,
    progress: Progress = SILENT,
) -> Evaluation:
    """Score predictions against references: Dice, HD95, volumes and lesions.

    A case that cannot be read or scored is a problem of this case, and the others are scored.

    Args:
        predictions: A folder of predicted label maps.
        references: A folder of label files, or a data set in any layout.
        preset: The preset, or its name or file. It says which labels and regions are scored.
        out: A new scores.csv. nnU-Net's summary.json is written beside it.
        hd95_empty: HD95 where one of two masks is empty: "nan", "diagonal" (of the image), or
            millimetres.
        prediction_values: Whose label values the predictions have: "preset", as `predict` writes
            them, or "dataset".
        progress: Where lines and bars go.

    Example:
        >>> result = factorizer.evaluate(Path("predictions"), Path("strokes"), "isles22")
        >>> result.means["lesion"].dice
        1.0
    """
    rule = parse_penalty(hd95_empty)
    if prediction_values not in (PRESET, DATASET):
        raise FactorizerError(
            f"prediction_values is {prediction_values!r}; give {PRESET} or {DATASET}"
        )
    files = output_files(out) if out is not None else []
    refuse_existing(*files)
    chosen = load_preset(preset)
    result = evaluate_folders(
        predictions,
        references,
        chosen.data,
        hd95_empty=rule,
        prediction_values=prediction_values,
        progress=progress,
    )
    if not files or not result.scores:
        return result
    write_scores(files[0], result.scores)
    write_atomically(files[1], make_summary(result.summaries))
    return replace(result, files=files)


def output_files(scores: Path) -> list[Path]:
    """The table of scores and nnU-Net's summary beside it: scores_a.csv and summary_a.json."""
    require_ending("out", scores, ".csv")
    stem = scores.stem.removeprefix("scores").strip("_- ")
    return [scores, scores.with_name(f"summary_{stem}.json" if stem else "summary.json")]


def parse_penalty(value: str | float) -> HD95Empty:
    """A rule for HD95 of an empty mask. Numbers may be text."""
    if value == "nan" or value == "diagonal":
        return value  # type: ignore[return-value]
    try:
        millimetres = float(value)
    except ValueError:
        millimetres = -1.0
    if not 0 <= millimetres <= MOST_MM:
        allowed = f"a number of millimetres from 0 to {MOST_MM:,.0f}"
        raise FactorizerError(f"hd95_empty is {value!r}; give nan, diagonal, or {allowed}")
    return millimetres


def evaluate_folders(
    predictions: Path,
    references: Path,
    data: Data,
    *,
    hd95_empty: HD95Empty = "diagonal",
    prediction_values: str = PRESET,
    progress: Progress = SILENT,
) -> Evaluation:
    """Score every case that has a prediction and a reference. Nothing is written.

    `data` is the data section of a preset: it says which labels and regions are scored. The other
    arguments are those of `evaluate`.

    Example:
        >>> section = factorizer.load_preset("isles22").data
        >>> result = factorizer.evaluate_folders(Path("predictions"), Path("strokes"), section)
        >>> result.means["lesion"].cases
        6
    """
    predicted = {case.name: case for case in list_labels(predictions)}
    expected = list_references(references, data)
    shared = sorted(predicted.keys() & expected.cases.keys())
    if not shared:
        raise no_match(predictions, predicted, references, expected.cases)
    values = preset_values(data) if prediction_values == PRESET else expected.values
    tell_values(references, expected, data, prediction_values, progress)
    scores: list[Score] = []
    summaries: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for name in progress.track(shared, "evaluating"):
        work = partial(score_case, predicted[name], name, expected, values, data, hd95_empty)
        scored, failures = attempt(name, work)
        problems += failures
        if scored is not None:
            scores += scored[0]
            summaries.append(scored[1])
    unmatched = {
        "predictions": sorted(predicted.keys() - expected.cases.keys()),
        "references": sorted(expected.cases.keys() - predicted.keys()),
    }
    return Evaluation(scores, problems, unmatched, describe_conventions(hd95_empty), summaries)


def score_case(
    predicted: Case,
    name: str,
    references: References,
    values: Mapping[int, int],
    data: Data,
    hd95_empty: HD95Empty,
) -> tuple[list[Score], dict[str, Any]]:
    """The scores of a case, and the case as nnU-Net summarizes it."""
    pair = read_pair(predicted, name, references, values)
    scores = score_label_maps(
        name,
        pair.prediction,
        pair.reference,
        targets=data.targets,
        spacing_mm=canonical_grid(pair.grid).spacing_mm,
        hd95_empty=hd95_empty,
    )
    return scores, summarize_case(pair, data.targets)


def tell_values(
    folder: Path,
    references: References,
    data: Data,
    prediction_values: str,
    progress: Progress,
) -> None:
    """Say which label values the predictions are taken to have, if that can be mistaken."""
    theirs = renamed_values(references, data)
    if theirs:
        used = data.labels if prediction_values == PRESET else theirs
        listed = ", ".join(f"{name} = {value}" for name, value in used.items())
        progress.say(
            f"the label values of {folder} are not the preset's. Predictions are read with those "
            f"of the {prediction_values}: {listed}"
        )


def no_match(
    predictions: Path, predicted: Collection[str], references: Path, expected: Collection[str]
) -> DataError:
    """No case has both a prediction and a reference."""
    ours, theirs = some_names(predicted), some_names(expected)
    message = f"no prediction ({ours}) has the name of a reference ({theirs})"
    remedy = f"name predictions like the cases of {references}"
    return DataError(Problem("", str(predictions), message, remedy))


def some_names(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:3]) or "none"
