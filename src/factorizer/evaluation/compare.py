"""Statistics of several systems on the cases and regions that all of them have (Tables 1 and 2,
Fig. 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from factorizer.errors import FactorizerError
from factorizer.evaluation.differences import Facts, RunDifference, find_differences, find_unknown
from factorizer.evaluation.scores import Score, index_scores, mean_of
from factorizer.evaluation.shared import (
    AVERAGE,
    HIGHER_IS_BETTER,
    collect_values,
    count_undefined,
    find_shared,
    group_by_patient,
    list_left_out,
)
from factorizer.evaluation.statistics import (
    Difference,
    bootstrap_mean,
    compare_pairs,
    holm,
    signed_rank,
)

NAMES = {"dice": "Dice", "hd95_mm": "HD95"}
TITLES = {"dice": "Dice (%)", "hd95_mm": "HD95 (mm)"}
FACTOR = {"dice": 100.0, "hd95_mm": 1.0}  # from scores to the units of the table
SIGNIFICANT = 0.05


@dataclass(frozen=True, eq=False)
class Entry:
    """A system to compare.

    Args:
        name: The name of the system.
        scores: Its scores, as `evaluate` returns them or `read_scores` reads them.
        parameters: Its parameters in millions, if known.
        gflops: The GFLOPs of a patch, if known.
        facts: What is known about its run, such as steps, seed and versions.

    Example:
        >>> from factorizer.evaluation.scores import Score
        >>> entry = factorizer.Entry("ours", [Score("case_1", "lesion", "dice", 0.9)])
        >>> entry.name
        'ours'
    """

    name: str
    scores: Sequence[Score]
    parameters: float | None = None  # millions
    gflops: float | None = None
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class PairedTest:
    """The reference system against another in one metric and region, in the units of the table.

    `corrected` is Holm's p over all other systems.
    """

    metric: str
    region: str
    other: str
    difference: Difference
    corrected: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Systems on the cases that all of them have.

    `values` has one number per case, or per patient if cases of a patient were averaged.
    `undefined` counts the cases and regions of a system where HD95 is undefined. `left_out` lists
    the cases, regions and metrics of a system that others lack. With several regions, the last one
    is their average. `files` were written.
    """

    entries: Sequence[Entry]
    reference: str
    metrics: Sequence[str]
    regions: Sequence[str]
    cases: Sequence[str]  # or patients
    values: Mapping[tuple[str, str, str], NDArray[np.float64]]  # by metric, region and system
    undefined: Mapping[str, int]  # by system
    left_out: Mapping[str, Sequence[str]]  # by system
    per_patient: bool = False
    tests: Sequence[PairedTest] = ()
    files: Sequence[Path] = ()

    @property
    def names(self) -> list[str]:
        return [entry.name for entry in self.entries]

    @property
    def facts(self) -> dict[str, Facts]:
        """The facts of each system's run."""
        return {entry.name: entry.facts for entry in self.entries}

    @property
    def differences(self) -> list[RunDifference]:
        """Facts that are not the same in all runs."""
        return find_differences(self.facts)

    @property
    def unknown(self) -> list[str]:
        """A line for each run that does not say everything."""
        return find_unknown(self.facts)

    def defined(self, metric: str, region: str) -> NDArray[np.bool_]:
        """The cases where every system has a number.

        Means are over these cases. Otherwise a system would gain by failing in a hard case.
        """
        finite = [np.isfinite(self.values[metric, region, name]) for name in self.names]
        return np.all(finite, axis=0)

    def defined_values(self, metric: str, region: str, name: str) -> NDArray[np.float64]:
        """The values of a system in the cases where every system has a number."""
        return self.values[metric, region, name][self.defined(metric, region)]

    def mean(self, metric: str, region: str, name: str) -> float:
        """The mean of a system in the units of the table."""
        return FACTOR[metric] * mean_of(self.defined_values(metric, region, name).tolist())

    def interval(self, metric: str, region: str, name: str) -> tuple[float, float]:
        """The bootstrap interval of the mean in the units of the table."""
        low, high = bootstrap_mean(self.defined_values(metric, region, name))
        return FACTOR[metric] * low, FACTOR[metric] * high


def compare_entries(
    entries: Sequence[Entry],
    *,
    reference: str | None = None,
    patients: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare systems on the cases that all of them have.

    Args:
        entries: The systems.
        reference: The system that is tested against each other one. The first one by default.
        patients: The patient of each case. The cases of a patient are averaged first, because
            tests and intervals need independent values.

    Example:
        >>> from factorizer.evaluation.scores import Score
        >>> ours = factorizer.Entry("ours", [Score("a", "lesion", "dice", 0.9)])
        >>> theirs = factorizer.Entry("theirs", [Score("a", "lesion", "dice", 0.8)])
        >>> factorizer.compare_entries([ours, theirs]).mean("dice", "lesion", "ours")
        90.0
    """
    reference = check_names([entry.name for entry in entries], reference)
    tables = {entry.name: index_scores(entry.scores) for entry in entries}
    shared = find_shared(tables)
    groups = group_by_patient(shared.cases, patients or {})
    several = len(shared.regions) > 1
    comparison = Comparison(
        entries=entries,
        reference=reference,
        metrics=shared.metrics,
        regions=[*shared.regions, AVERAGE] if several else shared.regions,
        cases=list(groups),
        values=collect_values(tables, shared, list(groups.values())),
        undefined={name: count_undefined(table, shared) for name, table in tables.items()},
        left_out={name: list_left_out(table, shared) for name, table in tables.items()},
        per_patient=patients is not None,
    )
    return replace(comparison, tests=run_tests(comparison))


def check_names(names: Sequence[str], reference: str | None) -> str:
    """The name of the reference system. Every system must have a name of its own."""
    if not names:
        raise FactorizerError("no system is given; give at least one")
    if len(set(names)) < len(names):
        listed = ", ".join(names)
        raise FactorizerError(
            f"the systems are named {listed}; give each its own name, as NAME=PATH"
        )
    chosen = reference or names[0]
    if chosen not in names:
        raise FactorizerError(f"there is no system {chosen!r}; choose one of {', '.join(names)}")
    return chosen


def run_tests(comparison: Comparison) -> list[PairedTest]:
    """The reference against every other system, in each metric and region."""
    tests = []
    for metric, region in product(comparison.metrics, comparison.regions):
        tests += run_tests_of_region(comparison, metric, region)
    return tests


def run_tests_of_region(comparison: Comparison, metric: str, region: str) -> list[PairedTest]:
    """The reference against every other system. p is corrected for the number of systems."""
    others = [name for name in comparison.names if name != comparison.reference]
    ours = comparison.values[metric, region, comparison.reference]
    found = []
    for other in others:
        difference = compare_pairs(ours, comparison.values[metric, region, other])
        found.append(scale(difference, FACTOR[metric]))
    corrected = holm([difference.p for difference in found])
    tests = []
    for other, difference, p in zip(others, found, corrected, strict=True):
        tests.append(PairedTest(metric, region, other, difference, p))
    return tests


def scale(difference: Difference, factor: float) -> Difference:
    """A difference in other units."""
    return replace(
        difference,
        mean=factor * difference.mean,
        low=factor * difference.low,
        high=factor * difference.high,
    )


def rank(comparison: Comparison) -> list[tuple[int, str, float]]:
    """The place, name and mean of each system, by Dice if all have it, otherwise by HD95.

    Systems share a place unless one is significantly better than the other: the place of a system
    is one more than the number of systems that are better (all pairs, Holm-corrected, p < 0.05).
    """
    metric, region = comparison.metrics[0], comparison.regions[-1]
    sign = 1 if HIGHER_IS_BETTER[metric] else -1
    better = count_better(comparison, metric, region)
    means = {name: comparison.mean(metric, region, name) for name in comparison.names}
    order = sorted(comparison.names, key=lambda name: (better[name], -sign * means[name]))
    return [(better[name] + 1, name, means[name]) for name in order]


def count_better(comparison: Comparison, metric: str, region: str) -> dict[str, int]:
    """For each system, how many others are significantly better.

    If the mean and the ranks of a pair disagree, neither of the two is better.
    """
    sign = 1 if HIGHER_IS_BETTER[metric] else -1
    values = {name: comparison.values[metric, region, name] for name in comparison.names}
    pairs = list(combinations(comparison.names, 2))
    found = [signed_rank(values[first], values[second]) for first, second in pairs]
    corrected = holm([p for p, _ in found])
    counts = dict.fromkeys(comparison.names, 0)
    for (first, second), (_, effect), p in zip(pairs, found, corrected, strict=True):
        mean = np.nanmean(values[first] - values[second])
        agree = mean * effect > 0
        if p < SIGNIFICANT and agree:
            worse = second if sign * effect > 0 else first
            counts[worse] += 1
    return counts
