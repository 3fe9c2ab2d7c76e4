"""Lines that a user should read before and while cases are predicted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from factorizer.data.cases import Case, Problem, group_problems
from factorizer.data.headers import count_channels
from factorizer.hardware import GIB
from factorizer.inference.memory import estimate_bytes
from factorizer.inference.predictor import Predictor
from factorizer.runs.find import trained_on
from factorizer.runs.fold import Fold
from factorizer.words import count


def remarks_before(
    predictor: Predictor,
    folds: Sequence[Fold],
    cases: Sequence[Case],
    *,
    keep_probabilities: bool,
) -> Iterator[str]:
    """The work ahead, the meaning of inputs and outputs, and reasons to doubt the results."""
    yield describe_work(predictor, cases, keep_probabilities=keep_probabilities)
    data = predictor.preset.data
    if cases and len(data.channels) > 1:
        yield from describe_channels(cases[0])
    yield f"labels are written as {list_pairs(data.labels)}"
    for fold in folds:
        if not fold.is_finished:
            yield f"{fold.name} is not finished; its weights are those of the last checkpoint"
    seen = len(trained_on(folds) & {case.name for case in cases})
    if seen:
        have = "has the name of a case" if seen == 1 else "have names of cases"
        yield f"{seen} of them {have} that this model was trained on: scores of those say little"


def describe_channels(case: Case) -> Iterator[str]:
    """A line that says which channel is taken from where. None if a file lacks channels."""
    sources = case.channels.values()
    if any(count_channels(source.file) != source.count for source in sources):
        return
    files = {channel: source.file.name for channel, source in case.channels.items()}
    places = {channel: source.index + 1 for channel, source in case.channels.items()}
    names = set(files.values())
    listed = list_pairs(files) if len(names) > 1 else f"{list_pairs(places)} in {names.pop()}"
    yield f"channels of {case.name}: {listed}"


def describe_work(predictor: Predictor, cases: Sequence[Case], *, keep_probabilities: bool) -> str:
    """How many cases and networks, where, and how much memory they take."""
    most = 0.0
    for case in cases:
        wanted = estimate_bytes(
            predictor.preset,
            case,
            batch_size=predictor.sliding.batch_size,
            keep_probabilities=keep_probabilities,
        )
        most = max(most, wanted)
    return (
        f"{count(len(cases), 'case')}, {count(len(predictor.networks), 'network')} on "
        f"{predictor.device}, at most about {most / GIB:.1f} GiB of memory; research use, not a "
        "medical device"
    )


def list_pairs(values: Mapping[str, object]) -> str:
    """Names and values: a = 1, b = 2."""
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def describe_problems(problems: Iterable[Problem]) -> Iterator[str]:
    """The first few problems of each kind, and how many more there are of it."""
    for first, about_others in group_problems(problems):
        yield from map(describe_problem, first)
        if about_others:
            yield about_others


def describe_problem(problem: Problem) -> str:
    """A problem with its severity before it."""
    return f"{problem.severity} {problem}"
