"""What a data set is once its files are found: cases, their channels and labels, and what is wrong
with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from factorizer.data.naming import is_picture, unnamed_channels
from factorizer.errors import FactorizerError

HIGHEST_LABEL = 255


@dataclass(frozen=True)
class Problem:
    """Something wrong with a case or with the data set (case ""): what was found, where, and what
    to do."""

    case: str
    file: str
    message: str
    remedy: str
    severity: Literal["error", "warning", "bug"] = "error"

    def __str__(self) -> str:
        place = f"{self.file}: " if self.file else f"{self.case}: " if self.case else ""
        return f"{place}{self.message}; {self.remedy}"

    @property
    def is_warning(self) -> bool:
        """Whether the case can be used in spite of it."""
        return self.severity == "warning"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class DataError(FactorizerError):
    """Data that cannot be used: one or several problems."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def list_some(items: Sequence[str | float]) -> str:
    """The first few of some names or numbers."""
    more = f" and {len(items) - 5} more" if len(items) > 5 else ""
    return ", ".join(item if isinstance(item, str) else f"{item:g}" for item in items[:5]) + more


@dataclass(frozen=True)
class Source:
    """Where a channel is: a file, which of its channels, and how many the file must hold."""

    file: Path
    index: int = 0
    count: int = 1


@dataclass(frozen=True)
class Case:
    """One image of a patient, channel by channel, and its label map if there is one."""

    name: str
    channels: Mapping[str, Source]
    label: Path | None = None
    patient: str = ""  # whose cases stay together in a fold; the case itself unless given
    patient_is_sure: bool = True  # else a given split may separate them

    @property
    def owner(self) -> str:
        return self.patient or self.name


@dataclass(frozen=True)
class Cohort:
    """The cases of a data set, with the names of its channels and labels.

    `label_values` turns the values on disk into those of `labels`; a value it does not have is an
    error. Both are empty where no description names the labels, as of loose files: a preset then
    takes them by value. `regions` are the named unions of labels that the data set itself asks for,
    if it does.
    """

    root: Path
    layout: str
    cases: tuple[Case, ...]
    channels: tuple[str, ...]
    labels: Mapping[str, int]
    label_values: Mapping[int, int]
    regions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    ignored: int | None = (
        None  # the value of voxels that nobody judged: background in training, left out of scores
    )

    def case(self, name: str) -> Case:
        return next(case for case in self.cases if case.name == name)

    @property
    def labelled(self) -> tuple[Case, ...]:
        """The cases that can be trained on."""
        return tuple(case for case in self.cases if case.label is not None)


def make_cohort(
    folder: Path,
    layout: str,
    cases: list[Case],
    channels: tuple[str, ...],
    labels: Mapping[str, int],
    problems: list[Problem],
    *,
    label_values: Mapping[int, int] | None = None,
    regions: Mapping[str, tuple[str, ...]] | None = None,
    ignored: int | None = None,
) -> Cohort:
    if not labels or not all(0 < value <= HIGHEST_LABEL for value in labels.values()):
        got = ", ".join(f"{name} = {value}" for name, value in labels.items()) or "none"
        message = f"its labels are {got}"
        raise DataError(
            Problem(
                "",
                str(folder / "dataset.json"),
                message,
                f"give labels with values from 1 to {HIGHEST_LABEL}",
            )
        )
    kept, duplicates = drop_duplicates(cases)
    problems = [*problems, *duplicates]
    if not kept and not problems:
        problems.append(
            Problem("", str(folder), f"no case is found in this {layout} data set", "add images")
        )
    values = label_values or {0: 0, **{value: value for value in labels.values()}}
    return Cohort(
        folder,
        layout,
        tuple(kept),
        channels,
        labels,
        values,
        regions or {},
        tuple(problems),
        ignored,
    )


def select_channels(cohort: Cohort, wanted: Sequence[str]) -> tuple[str, ...]:
    """The data set's names of the channels a preset wants: the same names, in capitals or not; as
    many that nobody named, in their order; or the only one under another name, if that does not
    speak of another kind of scanner."""
    known = {channel.lower(): channel for case in cohort.cases for channel in case.channels}
    if known.keys() >= {channel.lower() for channel in wanted}:
        return tuple(known[channel.lower()] for channel in wanted)
    if len(wanted) == len(cohort.channels) and cohort.channels == unnamed_channels(len(wanted)):
        return cohort.channels
    kinds = [
        {"CT", "PET"} & {name.upper() for name in names} for names in (wanted, cohort.channels)
    ]
    if len(wanted) == len(cohort.channels) == 1 and kinds[0] == kinds[1]:
        return cohort.channels
    message = (
        f"the preset wants the channels {', '.join(wanted)}, the data set has "
        f"{', '.join(cohort.channels)}"
    )
    raise DataError(
        Problem("", str(cohort.root), message, "choose another preset or model, or other data")
    )


def select_label_values(cohort: Cohort, labels: Mapping[str, int]) -> dict[int, int]:
    """The values on disk that a preset's labels allow, and what they become; background stays 0.

    Labels are the same that have the same name, in capitals or not; where names differ, or there
    are none, the same value.
    """
    if not cohort.labels:
        return values_of_unnamed(cohort, labels)
    theirs, wanted = by_name(cohort.labels), by_name(labels)
    agree = all(wanted.get(name, value) == value for name, value in theirs.items())
    if theirs.keys() >= wanted.keys():
        ours = {theirs[name]: value for name, value in wanted.items()}
    elif agree and set(theirs.values()) >= set(wanted.values()):
        ours = {value: value for value in labels.values()}
    else:
        listed = [
            ", ".join(f"{name} = {value}" for name, value in x.items())
            for x in (cohort.labels, labels)
        ]
        message = f"its labels ({listed[0]}) are not the preset's ({listed[1]})"
        remedy = "take another preset, or name its labels as the data set does"
        raise DataError(Problem("", str(cohort.root), message, remedy))
    ours[0] = 0
    return {value: ours[named] for value, named in cohort.label_values.items() if named in ours}


def values_of_unnamed(cohort: Cohort, labels: Mapping[str, int]) -> dict[int, int]:
    """The values of labels that nobody named. A single label may also be drawn as 255, in pictures
    as any value."""
    values = {value: value for value in (0, *labels.values())}
    if len(labels) > 1:
        return values
    (only,) = labels.values()
    if cohort.labelled and all(is_picture(case.label) for case in cohort.labelled if case.label):
        return {value: only * int(value > 0) for value in range(256)}
    return {255: only} | values


def by_name(labels: Mapping[str, int]) -> dict[str, int]:
    return {name.lower(): value for name, value in labels.items()}


def note_renamed_labels(cohort: Cohort, labels: Mapping[str, int]) -> list[Problem]:
    """A warning where all of several labels have other names in a preset, and are told apart by
    their values alone."""
    theirs = {value: name for name, value in cohort.labels.items()}
    pairs = [f"{theirs[value]} as {name}" for name, value in labels.items() if value in theirs]
    if len(labels) == 1 or not pairs or by_name(cohort.labels).keys() & by_name(labels).keys():
        return []
    message = (
        f"its labels have other names than the preset's, and are taken by value: {', '.join(pairs)}"
    )
    return [
        Problem(
            "",
            str(cohort.root),
            message,
            "if that is wrong, name the preset's as the data set does",
            "warning",
        )
    ]


def drop_duplicates(cases: Sequence[Case]) -> tuple[list[Case], list[Problem]]:
    """The cases whose name is theirs alone, and a problem for each name that several have."""
    counts = Counter(case.name for case in cases)
    problems = []
    for name in (name for name, count in counts.items() if count > 1):
        files = [
            str(next(iter(case.channels.values())).file) for case in cases if case.name == name
        ]
        message = f"the name stands for {len(files)} cases ({' and '.join(files)})"
        problems.append(Problem(name, "", message, "rename or remove all but one"))
    return [case for case in cases if counts[case.name] == 1], problems
