"""`factorizer compare`: systems on the cases and regions that all of them have (Tables 1 and 2,
Fig. 3)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from factorizer.errors import FactorizerError
from factorizer.evaluation.differences import (
    Facts,
    RunDifference,
    find_differences,
    find_unknown,
)
from factorizer.evaluation.scores import Score, is_undefined, mean_of, read_scores
from factorizer.evaluation.statistics import (
    Difference,
    bootstrap_mean,
    compare_pairs,
    holm,
    signed_rank,
)
from factorizer.runs.facts import read_facts

AVERAGE = "Avg."
HIGHER_IS_BETTER = {"dice": True, "hd95_mm": False}
NAMES = {"dice": "Dice", "hd95_mm": "HD95"}
TITLES = {"dice": "Dice (%)", "hd95_mm": "HD95 (mm)"}
FACTOR = {"dice": 100.0, "hd95_mm": 1.0}
SIGNIFICANT = 0.05


@dataclass(frozen=True, eq=False)
class Entry:
    """A system: its name, its scores, what it costs if that is known, and what its run says about
    itself."""

    name: str
    scores: Sequence[Score]
    parameters: float | None = None  # millions
    gflops: float | None = None
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Values (cases, or means of a patient's cases) by metric, region and system; regions end with
    their average."""

    entries: Sequence[Entry]
    reference: str
    metrics: Sequence[str]
    regions: Sequence[str]
    cases: Sequence[str]  # or patients
    values: Mapping[tuple[str, str, str], NDArray[np.float64]]  # metric, region, system
    undefined: Mapping[str, int]  # system -> HD95 of how many cases and regions
    left_out: Mapping[
        str, Sequence[str]
    ]  # system -> its cases, regions and metrics that not all have
    per_patient: bool = False
    tests: Sequence[PairedTest] = field(default_factory=tuple)

    @property
    def names(self) -> list[str]:
        return [entry.name for entry in self.entries]

    @property
    def differences(self) -> list[RunDifference]:
        """What is not the same in all runs, other than their scores."""
        return find_differences({entry.name: entry.facts for entry in self.entries})

    @property
    def unknown(self) -> list[str]:
        """What the runs do not say."""
        return find_unknown({entry.name: entry.facts for entry in self.entries})

    def defined(self, metric: str, region: str) -> NDArray[np.bool_]:
        """The cases where it is a number for every system: else one would gain by failing."""
        return np.all(
            [np.isfinite(self.values[metric, region, name]) for name in self.names], axis=0
        )

    def mean(self, metric: str, region: str, name: str) -> float:
        """In the units of the table."""
        return FACTOR[metric] * mean_of(
            self.values[metric, region, name][self.defined(metric, region)].tolist()
        )

    def interval(self, metric: str, region: str, name: str) -> tuple[float, float]:
        low, high = bootstrap_mean(self.values[metric, region, name][self.defined(metric, region)])
        return FACTOR[metric] * low, FACTOR[metric] * high


@dataclass(frozen=True)
class PairedTest:
    """The reference system against another in one metric and region, in the units of the table.

    `corrected` is Holm's over the other systems.
    """

    metric: str
    region: str
    other: str
    difference: Difference
    corrected: float


def read_entry(source: str) -> tuple[str, Path, Path | None]:
    """NAME=PATH or PATH, a scores.csv or a run -> the system's name, its scores, its configuration
    if it has one."""
    name, sign, path = ("", "", "") if Path(source).exists() else source.partition("=")
    if sign and not name.strip():
        raise FactorizerError(f"{source!r} has no name before the sign =; give NAME=PATH, or PATH")
    place = Path(path if sign else source)
    if place.is_file():
        folder, scores = place.parent, place
    else:
        folder, scores = place, place / "scores.csv"
        if not scores.is_file():
            raise FactorizerError(
                f"{place} has no scores.csv; give a run that is finished (a cross-validation, or "
                "one fold of it), or a scores.csv that `factorizer evaluate` wrote"
            )
    configs = [folder / "config.yaml", *sorted(folder.glob("fold*/config.yaml"))]
    config = next((file for file in configs if file.is_file()), None)
    default = place.stem if place.is_file() and place.stem != "scores" else folder.absolute().name
    if re.fullmatch(r"fold\d+", default):
        default = folder.absolute().parent.name
    return (name if sign else default), scores, config


def load_entry(name: str, scores: Path, cost: tuple[float, float] | None) -> Entry:
    parameters, gflops = cost or (None, None)
    return Entry(name, read_scores(scores), parameters, gflops, read_facts(scores.parent))


def compare_entries(
    entries: Sequence[Entry],
    *,
    reference: str | None = None,
    patients: Mapping[str, str] | None = None,
) -> Comparison:
    """The systems on what they share; `reference`, the first unless named, is tested against each
    other one.

    `patients` says whose a case is: the cases of one are averaged first, as tests and intervals
    need independent ones.
    """
    names = [entry.name for entry in entries]
    if len(set(names)) < len(names):
        raise FactorizerError(
            f"the systems are named {', '.join(names)}; name each differently, as NAME=PATH"
        )
    reference = reference or names[0]
    if reference not in names:
        raise FactorizerError(f"there is no system {reference!r}; choose one of {', '.join(names)}")
    tables = {
        entry.name: {(s.metric, s.region, s.case): s.value for s in entry.scores}
        for entry in entries
    }
    regions = shared([[s.region for s in entry.scores] for entry in entries])
    metrics = [
        m
        for m in HIGHER_IS_BETTER
        if all(any(key[0] == m for key in table) for table in tables.values())
    ]
    cases = shared([[s.case for s in entry.scores] for entry in entries])
    cases = [
        c
        for c in cases
        if all((m, r, c) in t for m in metrics for r in regions for t in tables.values())
    ]
    if not regions or not metrics or not cases:
        raise FactorizerError(
            "the systems share no case with the same region and metric; compare runs on the same "
            "data"
        )
    groups: dict[str, list[str]] = {}
    for case in cases:
        groups.setdefault((patients or {}).get(case, case), []).append(case)
    values = collect_values(tables, metrics, regions, list(groups.values()))
    left_out = {
        e.name: [
            *sorted({s.case for s in e.scores} - set(cases)),
            *sorted({s.region for s in e.scores} - set(regions)),
            *[
                m
                for m in HIGHER_IS_BETTER
                if m not in metrics and any(s.metric == m for s in e.scores)
            ],
        ]
        for e in entries
    }
    undefined = count_undefined(entries, regions, cases)
    if len(regions) > 1:
        regions = [*regions, AVERAGE]
    comparison = Comparison(
        entries,
        reference,
        metrics,
        regions,
        list(groups),
        values,
        undefined,
        left_out,
        patients is not None,
    )
    return replace(comparison, tests=run_tests(comparison))


def collect_values(
    tables: Mapping[str, Mapping[tuple[str, str, str], float]],
    metrics: Sequence[str],
    regions: Sequence[str],
    groups: Sequence[Sequence[str]],
) -> dict[tuple[str, str, str], NDArray[np.float64]]:
    """Metric, region or their average, system -> the mean over each group of cases."""
    values: dict[tuple[str, str, str], NDArray[np.float64]] = {}
    for metric in metrics:
        for name, table in tables.items():
            rows = np.array(
                [
                    [np.mean([table[metric, r, c] for c in group]) for group in groups]
                    for r in regions
                ]
            )
            values |= {
                (metric, region, name): row for region, row in zip(regions, rows, strict=True)
            }
            values[metric, AVERAGE, name] = rows.mean(0)
    return values


def shared(lists: Sequence[Sequence[str]]) -> list[str]:
    """What is in every list, in the order of the first."""
    common = set(lists[0]).intersection(*lists[1:])
    return [item for item in dict.fromkeys(lists[0]) if item in common]


def count_undefined(
    entries: Sequence[Entry], regions: Sequence[str], cases: Sequence[str]
) -> dict[str, int]:
    counts = {}
    for entry in entries:
        table = {(s.region, s.metric, s.case): s.value for s in entry.scores}
        counts[entry.name] = sum(is_undefined(table, r, c) for r in regions for c in cases)
    return counts


def run_tests(comparison: Comparison) -> list[PairedTest]:
    """The reference against every other system, corrected for their number within each metric and
    region."""
    others = [name for name in comparison.names if name != comparison.reference]
    tests = []
    for metric in comparison.metrics:
        for region in comparison.regions:
            ours, factor = comparison.values[metric, region, comparison.reference], FACTOR[metric]
            found = [
                compare_pairs(ours, comparison.values[metric, region, other]) for other in others
            ]
            found = [
                replace(d, mean=factor * d.mean, low=factor * d.low, high=factor * d.high)
                for d in found
            ]
            corrected = holm([difference.p for difference in found])
            tests += [
                PairedTest(metric, region, *rest)
                for rest in zip(others, found, corrected, strict=True)
            ]
    return tests


def rank(comparison: Comparison) -> list[tuple[int, str, float]]:
    """Place, name and mean of each system, by the first metric, which is Dice where there is one.

    Systems share a place unless one is significantly better than the other: a place is one more
    than the number of systems that are (all pairs, Holm-corrected, p < 0.05).
    """
    metric, region, names = comparison.metrics[0], comparison.regions[-1], comparison.names
    sign = 1 if HIGHER_IS_BETTER[metric] else -1
    pairs = list(combinations(names, 2))
    values = [[comparison.values[metric, region, name] for name in pair] for pair in pairs]
    found = [signed_rank(*pair) for pair in values]
    better = dict.fromkeys(names, 0)
    for pair, (ours, theirs), (_, effect), p in zip(
        pairs, values, found, holm([p for p, _ in found]), strict=True
    ):
        mean = np.nanmean(ours - theirs)
        if (
            p < SIGNIFICANT and mean * effect > 0
        ):  # where mean and ranks disagree, none is called better
            better[pair[1] if sign * effect > 0 else pair[0]] += 1
    means = {name: comparison.mean(metric, region, name) for name in names}
    order = sorted(names, key=lambda name: (better[name], -sign * means[name]))
    return [(better[name] + 1, name, means[name]) for name in order]
