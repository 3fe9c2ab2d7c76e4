"""Which trained models a user means: a run, a fold of it, or a model of the zoo."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from factorizer.errors import ModelError
from factorizer.preset_files import ZOO
from factorizer.runs.fold import ALL, Fold
from factorizer.runs.run import Run
from factorizer.runs.zoo import zoo_model

Wanted = Literal["all"] | Sequence[int] | None  # folds of a run


def find_folds(source: str | Path, folds: Wanted = None) -> list[Fold]:
    """The models in RUN, RUN/foldK or zoo:NAME.

    A run with several folds needs `folds`: "all", or some numbers.
    """
    text = str(source)
    if text.startswith(ZOO):
        if folds is not None:
            raise ModelError(f"{text} is one model; leave out the folds")
        return [zoo_model(text.removeprefix(ZOO))]
    fold = Fold(Path(source))
    if fold.exists:
        if folds is not None:
            raise ModelError(f"{fold.path} is one fold; leave out the folds, or give its run")
        return [fold]
    return choose_folds(Run(Path(source)), folds)


def find_fold(source: str | Path) -> Fold:
    """The one model in RUN, RUN/foldK or zoo:NAME."""
    (fold,) = find_folds(source)
    return fold


def choose_folds(run: Run, wanted: Wanted) -> list[Fold]:
    """The folds of a run that are wanted. If none are named, the only one that exists."""
    known = {fold.number: fold for fold in run.folds()}
    trained_on_all = run.fold(ALL)
    if not known and trained_on_all.exists:
        if wanted is not None:
            raise ModelError(f"{trained_on_all.path} is its only fold; leave out the folds")
        return [trained_on_all]
    if not known:
        raise ModelError(
            f"{run.path} is not a run; give a folder that `factorizer train` wrote, or {ZOO}NAME"
        )
    listed = ", ".join(map(str, known))
    if wanted is None:
        if len(known) > 1:
            raise ModelError(
                f"{run.path} has the folds {listed}; give one of them as {run.path}/foldK, or ask "
                "for an ensemble of several"
            )
        return list(known.values())
    numbers = list(known) if wanted == "all" else list(wanted)
    if not numbers or len(set(numbers)) < len(numbers):
        raise ModelError(f"folds is {numbers}; give all, or different numbers of {listed}")
    missing = [str(number) for number in numbers if number not in known]
    if missing:
        raise ModelError(f"{run.path} has the folds {listed}, not {', '.join(missing)}")
    return [known[number] for number in numbers]


def trained_on(folds: Sequence[Fold], seen: Collection[Fold] = ()) -> set[str]:
    """The cases that some of these models, or the models that they began with, were trained on."""
    names: set[str] = set()
    for fold in folds:
        names |= fold.trained_on()
        init = fold.first_weights()
        if init and fold not in seen:  # two runs may name each other
            with suppress(ModelError):  # that model may not exist any more
                names |= trained_on(find_folds(init), [*seen, fold])
    return names
