"""The cases, regions and metrics that several systems share, and their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from factorizer.errors import FactorizerError
from factorizer.evaluation.scores import Values, is_undefined

AVERAGE = "Avg."  # the mean over regions, which is shown as one more region
HIGHER_IS_BETTER = {"dice": True, "hd95_mm": False}  # the metrics that are compared
Tables = Mapping[str, Values]  # the scores of each system


class Shared(NamedTuple):
    """The metrics, regions and cases that all systems have."""

    metrics: list[str]
    regions: list[str]
    cases: list[str]


def find_shared(tables: Tables) -> Shared:
    """The metrics and regions that all systems have, and the cases that have all of these."""
    metrics = [metric for metric in HIGHER_IS_BETTER if all_have(tables, metric)]
    regions = in_every(map(regions_of, tables.values()))
    candidates = in_every(map(cases_of, tables.values()))
    pairs = list(product(regions, metrics))
    cases = [case for case in candidates if is_complete(case, pairs, tables)]
    if not metrics or not regions or not cases:
        raise FactorizerError(
            "the systems share no case with the same region and metric; compare runs on the same "
            "data"
        )
    return Shared(metrics, regions, cases)


def regions_of(table: Values) -> list[str]:
    return list(dict.fromkeys(region for region, _, _ in table))


def metrics_of(table: Values) -> set[str]:
    return {metric for _, metric, _ in table}


def cases_of(table: Values) -> list[str]:
    return list(dict.fromkeys(case for _, _, case in table))


def all_have(tables: Tables, metric: str) -> bool:
    """Whether every system has some score of a metric."""
    return all(metric in metrics_of(table) for table in tables.values())


def in_every(lists: Iterable[Sequence[str]]) -> list[str]:
    """The items that are in every list, in the order of the first list."""
    first, *others = lists
    common = set(first).intersection(*others)
    return [item for item in first if item in common]


def is_complete(case: str, pairs: Sequence[tuple[str, str]], tables: Tables) -> bool:
    """Whether every system has a score of a case for each pair of region and metric."""
    wanted = {(region, metric, case) for region, metric in pairs}
    return all(wanted <= table.keys() for table in tables.values())


def group_by_patient(cases: Sequence[str], patients: Mapping[str, str]) -> dict[str, list[str]]:
    """The cases of each patient. A case without a known patient is a patient of its own."""
    groups: dict[str, list[str]] = {}
    for case in cases:
        groups.setdefault(patients.get(case, case), []).append(case)
    return groups


def collect_values(
    tables: Tables, shared: Shared, groups: Sequence[Sequence[str]]
) -> dict[tuple[str, str, str], NDArray[np.float64]]:
    """The mean over each group of cases, by metric, region or their average, and system."""
    values: dict[tuple[str, str, str], NDArray[np.float64]] = {}
    for metric, (name, table) in product(shared.metrics, tables.items()):
        rows = []
        for region in shared.regions:
            row = group_means(table, region, metric, groups)
            values[metric, region, name] = row
            rows.append(row)
        values[metric, AVERAGE, name] = np.mean(rows, axis=0)
    return values


def group_means(
    table: Values, region: str, metric: str, groups: Sequence[Sequence[str]]
) -> NDArray[np.float64]:
    means = []
    for group in groups:
        means.append(np.mean([table[region, metric, case] for case in group]))
    return np.array(means)


def count_undefined(table: Values, shared: Shared) -> int:
    """In how many shared cases and regions HD95 of a system is undefined."""
    pairs = product(shared.regions, shared.cases)
    return sum(is_undefined(table, region, case) for region, case in pairs)


def list_left_out(table: Values, shared: Shared) -> list[str]:
    """The cases, regions and metrics of a system that are not compared."""
    cases = set(cases_of(table)) - set(shared.cases)
    regions = set(regions_of(table)) - set(shared.regions)
    metrics = metrics_of(table) - set(shared.metrics)
    known = [metric for metric in HIGHER_IS_BETTER if metric in metrics]
    return [*sorted(cases), *sorted(regions), *known]
