"""What all parts of the comparison of systems share: its data, folders and tables."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from factorizer.config import Preset
from factorizer.data.cache import Preparation, preparation_for
from factorizer.data.cases import Cohort
from factorizer.data.folds import draw_folds
from factorizer.data.layouts import read_cohort
from factorizer.evaluation.scores import Score, read_scores
from factorizer.files import csv_text, write_atomically
from factorizer.models.registry import SYSTEMS as REGISTERED
from factorizer.preset_files import change_preset, load_preset

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "docs" / "results" / "systems"
WORK = ROOT / "runs" / "systems"  # preprocessed cases, weights and locks
COST_FILE = OUTPUT / "cost.csv"
SYSTEMS = [name for name in REGISTERED if name != "conv-factorizer"]  # which came later
SECONDS, STEPS = 300, 300  # at which runs are read
MARKS = (30, 60, 120, 180, 240, SECONDS)  # seconds at which the learning curve has points
RATES = (5e-4, 1.5e-3, 4.5e-3)
TUNING_FOLD, TEST_FOLD = 0, 1
CURVE_CASES = 10
SEEDS = {
    "global-factorizer": 3,
    "local-factorizer": 3,
    "swin-factorizer": 3,
    "nnunet": 3,
    "res-unet": 3,
}
COMMON = [
    "data.patch_size=[32,64,32]",  # a size that all ten can take
    "data.augmentation.flip.probability=0",  # these three as when the results were made
    "data.augmentation.affine.axes=null",
    "data.augmentation.elastic.probability=0",
    "model.widths=[16,32,64,128,256]",
]
HALVES = {  # half the widths of the systems that name them differently
    "transbts": "{width: 8, embed_dim: 256, hidden: 2048, num_heads: 4}",
    "unetr": "{feature_size: 16, hidden_size: 384, mlp_dim: 1536, num_heads: 6}",
    "swin-unetr": "{feature_size: 24, window_size: 4}",  # the window of the Factorizers here
    "nnformer": "{embed_dim: 96}",
}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """The cases, how they are preprocessed, and the folds that they are in."""

    cohort: Cohort
    preparation: Preparation
    folds: Mapping[int, Sequence[str]]


@cache
def make_plan(data: Path) -> Plan:
    cohort = read_cohort(data)
    preparation = preparation_for(cohort, preset_of("nnunet").data)
    return Plan(cohort, preparation, draw_folds(cohort.cases, num_folds=5, seed=0))


def preset_of(name: str) -> Preset:
    """The preset of a system."""
    changes = [*COMMON, f"model.name={name}"]
    if name in HALVES:
        changes.append(f"model.extra={HALVES[name]}")
    return change_preset(load_preset("hippocampus"), changes)


def read_step_seconds() -> dict[str, float]:
    """The seconds of a training step of each system."""
    return {row["system"]: float(row["step_s"]) for row in read_rows(COST_FILE)}


def search_file(name: str, rate: float) -> Path:
    """The scores of a system that was trained with a rate."""
    return OUTPUT / "search" / f"{name}-{rate:g}.csv"


def is_searched(name: str) -> bool:
    """Whether all rates of a system were tried."""
    return all(search_file(name, rate).exists() for rate in RATES)


def best_rate(name: str) -> float:
    means = {rate: mean_dice(read_scores(search_file(name, rate))) for rate in RATES}
    return max(means, key=lambda rate: means[rate])


def mean_dice(scores: Sequence[Score], owners: Mapping[str, str] | None = None) -> float:
    """The mean over patients of the mean over their cases and regions.

    `owners` says which patient a case is of. Without it every case counts as a patient.
    """
    groups: dict[str, list[float]] = {}
    for score in scores:
        if score.metric == "dice":
            owner = (owners or {}).get(score.case, score.case)
            groups.setdefault(owner, []).append(score.value)
    return statistics.fmean(map(statistics.fmean, groups.values()))


def write_rows(file: Path, rows: Sequence[Row]) -> None:
    lines = [list(row.values()) for row in rows]
    write_atomically(file, csv_text(list(rows[0]), lines))


def read_rows(file: Path) -> list[dict[str, str]]:
    with file.open() as lines:
        return list(csv.DictReader(lines))
