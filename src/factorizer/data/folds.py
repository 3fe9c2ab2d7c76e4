"""Folds of the cross-validation: drawn from a seed, or given; a patient is never in two of them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from factorizer.data.cases import Case, DataError, Problem
from factorizer.files import FileError, read_csv, read_json, write_atomically
from factorizer.words import count

Folds = dict[int, list[str]]  # fold -> names of its cases
FORMS = "give a CSV with the columns case and fold, a folds.json, or nnU-Net's splits_final.json"


def draw_folds(
    cases: Sequence[Case], *, num_folds: int, seed: int, volumes: Mapping[str, float] | None = None
) -> Folds:
    """Deal the patients into folds of about equal size; with `volumes` also of about equal lesion
    volumes.

    Patients are shuffled, or put in the order of their volumes and shuffled within runs of
    `num_folds`, and dealt out in turn.
    """
    patients: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        patients[case.owner].append(case.name)
    if len(patients) < num_folds:
        message = (
            f"{count(len(patients), 'labelled patient')} cannot be dealt into {num_folds} folds"
        )
        remedy = (
            "use fewer folds (training.folds)"
            if len(patients) > 1
            else "give labels of at least two patients"
        )
        raise DataError(Problem("", "", message, remedy))
    generator = np.random.default_rng(seed)
    names = sorted(patients)
    order = [names[i] for i in generator.permutation(len(names))]
    if volumes is not None:
        order.sort(key=lambda patient: sum(volumes[name] for name in patients[patient]))
    folds: Folds = {fold: [] for fold in range(num_folds)}
    for first in range(0, len(order), num_folds):
        run = order[first : first + num_folds]
        places = (
            generator.permutation(num_folds)[: len(run)] if volumes is not None else range(len(run))
        )
        for place, patient in zip(places, run, strict=True):
            folds[int(place)] += patients[patient]
    return {fold: sorted(names) for fold, names in folds.items()}


def read_folds(file: Path, cases: Sequence[Case]) -> Folds:
    """Folds from a CSV (columns case, fold), a folds.json or nnU-Net's splits_final.json, for the
    cases there are."""
    given = read_fold_of(file)
    missing = [case.name for case in cases if case.name not in given]
    if missing:
        some = f"{', '.join(missing[:5])}{', ...' * (len(missing) > 5)}"
        message = f"it has no fold for {count(len(missing), 'case')} ({some})"
        raise DataError(Problem("", str(file), message, "add them"))
    folds = gather(given, cases)
    check_patients(folds, cases, str(file))
    return folds


def read_own_folds(file: Path, cases: Sequence[Case]) -> Folds:
    """The folds that a run wrote down, of the cases that there are: it was trained on them,
    whatever is right today."""
    given = read_fold_of(file)
    known = [case for case in cases if case.name in given]
    if not known:
        message = (
            f"none of the {count(len(cases), 'case')} is in it ({', '.join(list(given)[:3])}, ...)"
        )
        raise DataError(
            Problem("", str(file), message, "give the data that the run was begun with")
        )
    return gather(given, known)


def read_fold_of(file: Path) -> dict[str, int]:
    """The fold of each case."""
    try:
        pairs = list(
            read_folds_json(file) if file.suffix.lower() == ".json" else read_folds_csv(file)
        )
    except FileError as error:
        raise DataError(Problem("", error.file, error.reason, FORMS)) from None
    given: dict[str, int] = {}
    for name, fold in pairs:
        if given.setdefault(name, fold) != fold:
            raise DataError(
                Problem(name, str(file), f"case {name} stands in two folds", "keep one")
            )
    return given


def gather(fold_of: Mapping[str, int], cases: Sequence[Case]) -> Folds:
    folds: Folds = defaultdict(list)
    for case in cases:
        folds[fold_of[case.name]].append(case.name)
    return {fold: sorted(folds[fold]) for fold in sorted(folds)}


def read_folds_csv(file: Path) -> Iterator[tuple[str, int]]:
    rows = read_csv(file)
    columns = list(rows[0][1]) if rows else []
    if not {"case", "fold"} <= set(columns):
        got = ", ".join(columns) or "none"
        raise DataError(
            Problem("", str(file), f"its columns are {got}", "give the columns case and fold")
        )
    for line, cells in rows:
        name = cells["case"]
        if not name:
            raise DataError(
                Problem(
                    "", str(file), f"line {line} has no case", "give its name, or remove the line"
                )
            )
        yield name, parse_fold(file, f"line {line}: case {name}", cells["fold"])


def parse_fold(file: Path, whose: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise DataError(
            Problem("", str(file), f"{whose} has the fold {text[:40]!r}", "give whole numbers")
        )
    return int(text)


def read_folds_json(file: Path) -> Iterator[tuple[str, int]]:
    """Ours, or nnU-Net's list of splits: what is in no validation set is a fold of its own, always
    trained on."""
    content = read_json(file)
    folds: dict[str, list[str]] = {}
    if isinstance(content, list) and content:
        for number, split in enumerate(content):
            folds[str(number)] = list_names(file, split, "val", f"split {number}")
        validated = {name for names in folds.values() for name in names}
        trained = {
            name
            for i, split in enumerate(content)
            for name in list_names(file, split, "train", f"split {i}")
        }
        folds[str(len(folds))] = sorted(trained - validated)
    else:
        given = content.get("folds") if isinstance(content, dict) else None
        if not isinstance(given, dict):
            raise DataError(Problem("", str(file), "it holds no folds", FORMS))
        folds = {number: list_names(file, given, number, "folds") for number in given}
    for key, names in folds.items():
        fold = parse_fold(file, "an entry", key)
        yield from ((name, fold) for name in names)


def list_names(file: Path, holder: Any, field: str, place: str) -> list[str]:
    """The names of cases in a field of a JSON file."""
    names = holder.get(field) if isinstance(holder, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        message = f"it holds no folds ({place} has no list of names {field[:40]!r})"
        raise DataError(Problem("", str(file), message, FORMS))
    return names


def write_folds(file: Path, folds: Folds, *, origin: str) -> None:
    """`origin` says where they are from, such as the seed."""
    content = {"origin": origin, "folds": {str(fold): names for fold, names in folds.items()}}
    write_atomically(file, json.dumps(content, indent=2) + "\n")


def split_fold(folds: Folds, fold: int) -> tuple[list[str], list[str]]:
    """The cases to train on and the cases held out."""
    if not folds.get(fold):
        listed = ", ".join(str(k) for k, names in folds.items() if names)
        raise DataError(
            Problem("", "", f"fold {fold} has no cases", f"choose one of the folds {listed}")
        )
    training = sorted(name for other, names in folds.items() if other != fold for name in names)
    if not training:
        raise DataError(Problem("", "", f"all cases are in fold {fold}", "give at least two folds"))
    return training, list(folds[fold])


def check_patients(folds: Mapping[int, Sequence[str]], cases: Sequence[Case], file: str) -> None:
    owner = {case.name: case.owner if case.patient_is_sure else case.name for case in cases}
    place: dict[str, int] = {}
    for fold, names in folds.items():
        for name in names:
            if place.setdefault(owner[name], fold) != fold:
                message = f"patient {owner[name]} is in the folds {place[owner[name]]} and {fold}"
                raise DataError(
                    Problem(name, file, message, "put all cases of a patient into one fold")
                )
