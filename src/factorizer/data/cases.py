"""Cases and cohorts, and the problems found in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from factorizer.errors import FactorizerError

HIGHEST_LABEL = 255
MOST_LISTED = 5


@dataclass(frozen=True)
class Problem:
    """Something wrong with a case, or with the whole data set if `case` is empty.

    `message` says what was found, and `remedy` says what to do. A case with a warning can still be
    used. A bug is a mistake in Factorizer itself.
    """

    case: str
    file: str
    message: str
    remedy: str
    severity: Literal["error", "warning", "bug"] = "error"

    def __str__(self) -> str:
        place = self.file or self.case
        text = f"{self.message}; {self.remedy}"
        return f"{place}: {text}" if place else text

    @property
    def is_warning(self) -> bool:
        """Whether the case can still be used."""
        return self.severity == "warning"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class DataError(FactorizerError):
    """Data that cannot be used, because of one or several problems."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems

    @classmethod
    def about(cls, file: Path | str, message: str, remedy: str, *, case: str = "") -> Self:
        """An error with a single problem."""
        return cls(Problem(case, str(file), message, remedy))


def group_problems(problems: Iterable[Problem]) -> Iterator[tuple[Sequence[Problem], str]]:
    """The first few problems of each kind, and a line about the others of it, often empty."""
    kinds: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        kinds.setdefault((problem.message, problem.remedy), []).append(problem)
    for same in kinds.values():
        others = len(same) - MOST_LISTED
        yield same[:MOST_LISTED], f"  and {others} more for the same reason" if others > 0 else ""


def list_some(items: Sequence[str | float]) -> str:
    """The first names or numbers, and how many more exist."""
    texts = [item if isinstance(item, str) else f"{item:g}" for item in items[:MOST_LISTED]]
    listed = ", ".join(texts)
    if len(items) > MOST_LISTED:
        return f"{listed} and {len(items) - MOST_LISTED} more"
    return listed


@dataclass(frozen=True)
class Source:
    """Where to find one channel: a file, and the channel's index among the `count` channels that
    the file must hold."""

    file: Path
    index: int = 0
    count: int = 1


def sources_in_one_file(file: Path, channels: Sequence[str]) -> dict[str, Source]:
    """The sources of channels that one file holds together, in this order."""
    return {channel: Source(file, index, len(channels)) for index, channel in enumerate(channels)}


@dataclass(frozen=True)
class Case:
    """The images of one patient visit: a source for each channel, and the label map if known.

    All cases of a patient belong to the same fold. An empty `patient` means that this case is the
    patient's only one. `patient_is_sure` is false if the patient was guessed: folds given by the
    user may then separate the cases of a patient.
    """

    name: str
    channels: Mapping[str, Source]
    label: Path | None = None
    patient: str = ""
    patient_is_sure: bool = True

    @property
    def owner(self) -> str:
        """The patient, or the case itself if no patient is named."""
        return self.patient or self.name


def missing_channels(case: Case, channels: Sequence[str]) -> list[str]:
    """Those of the channels that a case does not have."""
    return [channel for channel in channels if channel not in case.channels]


@dataclass(frozen=True)
class Cohort:
    """The cases of a data set, and the names of its channels and labels.

    `label_values` maps the values on disk to the values in `labels`. Any other value on disk is an
    error. Both mappings are empty if the data set does not name its labels. A preset then names
    them by value.

    `regions` are the regions that the data set itself defines, often none. `ignored` is the value
    of voxels that nobody judged. They are background in training and do not count in scores.

    `as_found` has every case with the channels that were found, also the cases that lack some,
    which `cases` leaves out. It is for prediction, and empty if a layout cannot have such cases.
    """

    root: Path
    layout: str
    cases: tuple[Case, ...]
    channels: tuple[str, ...]
    labels: Mapping[str, int]
    label_values: Mapping[int, int]
    regions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    ignored: int | None = None
    as_found: tuple[Case, ...] = ()

    def case(self, name: str) -> Case:
        return next(case for case in self.cases if case.name == name)

    @property
    def labelled(self) -> tuple[Case, ...]:
        """The cases with a label map. Training and scoring need one."""
        return tuple(case for case in self.cases if case.label is not None)


def make_cohort(
    folder: Path,
    *,
    layout: str,
    cases: Sequence[Case],
    channels: tuple[str, ...],
    labels: Mapping[str, int],
    problems: Sequence[Problem],
    label_values: Mapping[int, int] | None = None,
    regions: Mapping[str, tuple[str, ...]] | None = None,
    ignored: int | None = None,
    as_found: Sequence[Case] = (),
) -> Cohort:
    """A cohort whose case names are unique. A folder without any case is a problem of the cohort.

    Without `label_values`, the values on disk are those in `labels`.
    """
    kept, duplicates = drop_duplicates(cases)
    problems = [*problems, *duplicates]
    if not kept and not problems:
        message = f"no case is found in this {layout} data set"
        problems.append(Problem("", str(folder), message, "add images"))
    return Cohort(
        root=folder,
        layout=layout,
        cases=tuple(kept),
        channels=channels,
        labels=labels,
        label_values=label_values or keep_values(labels),
        regions=regions or {},
        problems=tuple(problems),
        ignored=ignored,
        as_found=tuple(drop_duplicates(as_found)[0]),
    )


def keep_values(labels: Mapping[str, int]) -> dict[int, int]:
    """Label values for a data set whose values on disk are those of its labels."""
    return {0: 0} | {value: value for value in labels.values()}


def drop_duplicates(cases: Sequence[Case]) -> tuple[list[Case], list[Problem]]:
    """The cases with a unique name, and a problem for each name that several cases share."""
    counts = Counter(case.name for case in cases)
    kept = [case for case in cases if counts[case.name] == 1]
    problems = []
    for name, count in counts.items():
        if count > 1:
            files = [first_file(case) for case in cases if case.name == name]
            message = f"the name stands for {count} cases ({' and '.join(files)})"
            problems.append(Problem(name, "", message, "rename or remove all except one"))
    return kept, problems


def first_file(case: Case) -> str:
    return str(next(iter(case.channels.values())).file)
