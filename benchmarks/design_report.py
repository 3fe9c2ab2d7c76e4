"""The table of the trainings of variants that are finished."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from design_plan import OUTPUT, TASKS, VARIANTS, patients_file
from numpy.typing import NDArray

from factorizer.evaluation.scores import read_scores
from factorizer.evaluation.statistics import Difference, compare_pairs, holm
from factorizer.files import write_atomically

OURS = "conv-factorizer"
COLUMNS = (
    "variant",
    "what it is",
    "Dice of each seed",
    "Dice",
    "against ours [95 %]",
    "p",
    "p, Holm",
)
Values = dict[str, float]  # by patient


@dataclass(frozen=True)
class Results:
    """The Dice of each patient, by variant and seed, after so many steps."""

    task: str
    steps: int
    dice: Mapping[str, Mapping[int, Values]]

    def shared_seeds(self, variant: str) -> list[int]:
        """The seeds that a variant and ours have."""
        return sorted(set(self.dice[variant]) & set(self.dice[OURS]))


def write_report() -> None:
    """Write docs/results/design/README's tables: one file for each task."""
    for task in TASKS:
        text = "\n".join(table_of(results) for results in collect(task))
        if text:
            write_atomically(OUTPUT / f"{task}.md", text)


def collect(task: str) -> list[Results]:
    """The finished trainings of a task, by number of steps."""
    found: dict[int, dict[str, dict[int, Values]]] = {}
    for file in sorted((OUTPUT / task).glob("*.csv")):
        match = re.fullmatch(r"(.+)-(\d+)-(\d+)", file.stem)
        assert match, file
        variant, steps, seed = match[1], int(match[2]), int(match[3])
        found.setdefault(steps, {}).setdefault(variant, {})[seed] = dice_by_patient(task, file)
    return [Results(task, steps, variants) for steps, variants in sorted(found.items())]


def dice_by_patient(task: str, file: Path) -> Values:
    """The mean Dice over the cases and regions of each patient."""
    patients = json.loads(patients_file(task).read_text())
    groups: dict[str, list[float]] = {}
    for score in read_scores(file):
        if score.metric == "dice":
            groups.setdefault(patients[score.case], []).append(score.value)
    return {patient: float(np.mean(values)) for patient, values in groups.items()}


def table_of(results: Results) -> str:
    """A Markdown table, best variant first."""
    variants = sorted(results.dice, key=lambda name: -mean_of(results.dice[name]))
    others = [name for name in variants if OURS in results.dice and name != OURS]
    compared = {name: against_ours(results, name) for name in others}
    tested = [name for name in others if compared[name] is not None]
    corrected = holm([compared[name].p for name in tested])  # type: ignore[union-attr]
    lines = [f"## {results.task}, {results.steps} steps", "", line(COLUMNS)]
    lines.append("|" + "---|" * len(COLUMNS))
    for name in variants:
        seeds = results.dice[name]
        each = " ".join(f"{np.mean(list(seeds[seed].values())):.3f}" for seed in sorted(seeds))
        cells = [name, VARIANTS[name].note, each, f"{mean_of(seeds):.4f}"]
        difference = compared.get(name)
        if difference is None:
            cells += ["", "", ""]
        else:
            p = corrected[tested.index(name)]
            cells += [describe(difference), f"{difference.p:.2g}", f"{p:.2g}"]
        lines.append(line(cells))
    return "\n".join([*lines, ""])


def against_ours(results: Results, name: str) -> Difference | None:
    """A variant minus ours, patient by patient, averaged over the seeds that both have."""
    seeds = results.shared_seeds(name)
    if not seeds:
        return None
    patients = list(results.dice[OURS][seeds[0]])

    def averaged(variant: str) -> NDArray[np.float64]:
        rows = [[results.dice[variant][seed][patient] for patient in patients] for seed in seeds]
        return np.mean(rows, axis=0)

    return compare_pairs(averaged(name), averaged(OURS))


def mean_of(seeds: Mapping[int, Values]) -> float:
    return float(np.mean([list(values.values()) for values in seeds.values()]))


def describe(difference: Difference) -> str:
    points = [100 * number for number in (difference.mean, difference.low, difference.high)]
    return "{:+.1f} [{:+.1f}, {:+.1f}]".format(*points)


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
