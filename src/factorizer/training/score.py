"""Score a network on held-out cases, on the grid of their own files."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import fmean

import torch
from torch import nn

from factorizer.config import Preset
from factorizer.data.cache import Settings
from factorizer.data.cases import Cohort
from factorizer.data.images import read_image, read_label, turn_to_canonical
from factorizer.data.preprocess import restore
from factorizer.data.regions import labels_to_regions
from factorizer.evaluation.metrics import dice, hd95_mm
from factorizer.files import write_atomically
from factorizer.inference.sliding import predict_probabilities


@dataclass(frozen=True)
class Score:
    """A row of scores.csv."""

    case: str
    region: str
    metric: str
    value: float


def score_cases(
    network: nn.Module,
    cohort: Cohort,
    names: Sequence[str],
    settings: Settings,
    preset: Preset,
    say: Callable[[str], object],
) -> list[Score]:
    """Dice and HD95 of every case and region."""
    data, inference = preset.data, preset.inference
    network.eval()
    rows = []
    for number, name in enumerate(names, start=1):
        case = cohort.case(name)
        prepared = settings.prepare(case, with_label=False)
        probabilities = predict_probabilities(
            network,
            torch.from_numpy(prepared.image),
            window=data.patch_size,
            overlap=inference.overlap,
            blending=inference.blending,
        )
        whole = restore(probabilities.numpy(), prepared.frame, "linear")
        volume = read_image(case, settings.channels)
        masks = turn_to_canonical(whole, volume.grid) >= inference.threshold
        label = read_label(case, settings.label_values, volume.grid)
        truth = labels_to_regions(label, data.labels, data.regions)
        for region, mask, reference in zip(data.regions, masks, truth, strict=True):
            rows.append(Score(name, region, "dice", dice(mask, reference)))
            rows.append(Score(name, region, "hd95_mm", hd95_mm(mask, reference, volume.spacing_mm)))
        say(f"scored {number} of {len(names)}: {name}")
    return rows


def write_scores(file: Path, rows: Sequence[Score]) -> None:
    """case, region, metric, value; an undefined value is nan."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("case", "region", "metric", "value"))
    for row in rows:
        writer.writerow((row.case, row.region, row.metric, f"{row.value:.6g}"))
    write_atomically(file, text.getvalue())


def read_scores(file: Path) -> list[Score]:
    lines = csv.DictReader(file.read_text().splitlines())
    return [Score(x["case"], x["region"], x["metric"], float(x["value"])) for x in lines]


def summarize_scores(rows: Sequence[Score]) -> list[tuple[str, str, float, int, int]]:
    """Region, metric, mean over the cases where it is defined, their number, and the number where it is not."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        groups.setdefault((row.region, row.metric), []).append(row.value)
    table = []
    for (region, metric), values in groups.items():
        defined = [value for value in values if not isnan(value)]
        mean = fmean(defined) if defined else float("nan")
        table.append((region, metric, mean, len(defined), len(values) - len(defined)))
    return table
