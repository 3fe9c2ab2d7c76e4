"""The references of images: given by the user, or those of the data set that the images are in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from factorizer.config import Data
from factorizer.data.cases import Case, DataError
from factorizer.data.layouts import read_cohort
from factorizer.errors import FactorizerError
from factorizer.evaluation.references import References, list_references

LEVELS = 5  # folders above an image that may be its data set, as in BIDS


def find_references(
    given: Path | None, inputs: Sequence[Path], cases: Sequence[Case], data: Data
) -> References:
    """The references of these cases, by the names of the cases.

    Without `given`, they are the labels of the data set that holds the inputs. They are empty if
    the inputs are in no data set.
    """
    if given is not None:
        return match_given(given, cases, data)
    first = inputs[0].absolute()
    for place in (first, *first.parents[:LEVELS]):
        try:
            read_cohort(place, mask_suffix=data.mask_suffix)  # a folder of images is not of labels
            known = list_references(place, data)
        except DataError:
            continue
        found = match_files(cases, known.cases)
        if found:
            return References(found, known.values)
    return References({}, {})


def match_given(given: Path, cases: Sequence[Case], data: Data) -> References:
    """The references of cases that share an image or a name with one of them."""
    known = list_references(given, data)
    found = match_files(cases, known.cases)
    for case in cases:
        if case.name in known.cases:
            found[case.name] = known.cases[case.name]
    if cases and not found:
        names = ", ".join(sorted(known.cases)[:3])
        raise FactorizerError(
            f"no case ({cases[0].name}, ...) has a label in {given} ({names}, ...); give labels "
            "with the names of the cases"
        )
    return References(found, known.values)


def match_files(cases: Sequence[Case], references: Mapping[str, Case]) -> dict[str, Case]:
    """The reference of each case that shares an image with it. Their names may differ."""
    owners: dict[Path, Case] = {}
    for reference in references.values():
        for source in reference.channels.values():
            owners[source.file.resolve()] = reference
    found: dict[str, Case] = {}
    for case in cases:
        for source in case.channels.values():
            file = source.file.resolve()
            if file in owners:
                found[case.name] = owners[file]
    return found
