"""Folds of a cross-validation, drawn from a seed or read from a file.

All cases of a patient are in the same fold.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from factorizer.data.cases import Case, DataError
from factorizer.files import FileError, read_csv, read_json, write_atomically
from factorizer.words import count

Folds = dict[int, list[str]]  # the names of the cases in each fold
FORMS = "give a CSV with the columns case and fold, a folds.json, or nnU-Net's splits_final.json"
MOST_LISTED = 5
MOST_SHOWN = 40  # letters of a wrong value


def draw_folds(
    cases: Sequence[Case], *, num_folds: int, seed: int, volumes: Mapping[str, float] | None = None
) -> Folds:
    """Deal the patients into folds of about the same size.

    Patients are shuffled and dealt to the folds in turn. `volumes` gives the lesion volume of each
    case. Folds then have about the same volumes too: patients are sorted by volume, and each
    `num_folds` neighbours are dealt to the folds in random order.
    """
    patients: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        patients[case.owner].append(case.name)
    check_number_of_patients(len(patients), num_folds)
    generator = np.random.default_rng(seed)
    alphabetical = sorted(patients)
    order = [alphabetical[index] for index in generator.permutation(len(patients))]
    if volumes is not None:
        volume_of: dict[str, float] = {}
        for patient, names in patients.items():
            volume_of[patient] = sum(volumes[name] for name in names)
        order.sort(key=volume_of.__getitem__)
    folds: Folds = {fold: [] for fold in range(num_folds)}
    for first in range(0, len(order), num_folds):
        neighbours = order[first : first + num_folds]
        places = list(range(num_folds))
        if volumes is not None:
            places = generator.permutation(num_folds).tolist()
        for place, patient in zip(places[: len(neighbours)], neighbours, strict=True):
            folds[place] += patients[patient]
    return {fold: sorted(names) for fold, names in folds.items()}


def check_number_of_patients(number: int, num_folds: int) -> None:
    """Refuse fewer patients than folds."""
    if number >= num_folds:
        return
    message = f"{count(number, 'labelled patient')} cannot be divided into {num_folds} folds"
    remedy = "give labels of at least two patients"
    if number > 1:
        remedy = "use fewer folds (training.folds)"
    raise DataError.about("", message, remedy)


def read_folds(file: Path, cases: Sequence[Case]) -> Folds:
    """The folds of the cases in a file: a CSV with the columns case and fold, a folds.json, or
    nnU-Net's splits_final.json.

    Every case must have a fold, and all cases of a patient the same one.
    """
    fold_of = read_fold_of(file)
    missing = [case.name for case in cases if case.name not in fold_of]
    if missing:
        listed = ", ".join(missing[:MOST_LISTED])
        if len(missing) > MOST_LISTED:
            listed += ", ..."
        message = f"it has no fold for {count(len(missing), 'case')} ({listed})"
        raise DataError.about(file, message, "add them")
    folds = gather(fold_of, cases)
    check_patients(folds, cases, file)
    return folds


def read_own_folds(file: Path, cases: Sequence[Case]) -> Folds:
    """The folds that a run wrote, without cases that are missing now.

    Patients are not checked, because the run was trained on these folds. New cases have no fold.
    """
    fold_of = read_fold_of(file)
    known = [case for case in cases if case.name in fold_of]
    if not known:
        some = ", ".join(list(fold_of)[:3])
        message = f"none of the {count(len(cases), 'case')} is in it ({some}, ...)"
        raise DataError.about(file, message, "give the data that the run was started with")
    return gather(fold_of, known)


def read_fold_of(file: Path) -> dict[str, int]:
    """The fold of each case in a file."""
    is_json = file.suffix.lower() == ".json"
    fold_of: dict[str, int] = {}
    try:
        for name, fold in read_folds_json(file) if is_json else read_folds_csv(file):
            if fold_of.setdefault(name, fold) != fold:
                raise DataError.about(file, f"case {name} is in two folds", "keep one", case=name)
    except FileError as error:
        raise DataError.about(error.file, error.reason, FORMS) from None
    return fold_of


def gather(fold_of: Mapping[str, int], cases: Sequence[Case]) -> Folds:
    """The names of the cases by fold, sorted."""
    folds: Folds = defaultdict(list)
    for case in cases:
        folds[fold_of[case.name]].append(case.name)
    return {fold: sorted(folds[fold]) for fold in sorted(folds)}


def read_folds_csv(file: Path) -> Iterator[tuple[str, int]]:
    """The cases of a CSV file and their folds."""
    rows = read_csv(file)
    columns = list(rows[0][1]) if rows else []
    if not {"case", "fold"} <= set(columns):
        message = f"its columns are {', '.join(columns) or 'none'}"
        raise DataError.about(file, message, "give the columns case and fold")
    for line, cells in rows:
        name = cells["case"]
        if not name:
            message = f"line {line} has no case"
            raise DataError.about(file, message, "give its name, or remove the line")
        yield name, parse_fold(file, f"line {line}: case {name}", cells["fold"])


def parse_fold(file: Path, owner: str, text: str) -> int:
    """The number of a fold. `owner` says what has this fold."""
    if not re.fullmatch(r"[0-9]{1,6}", text):
        message = f"{owner} has the fold {text[:MOST_SHOWN]!r}"
        raise DataError.about(file, message, "give whole numbers")
    return int(text)


def read_folds_json(file: Path) -> Iterator[tuple[str, int]]:
    """The cases of a folds.json or of nnU-Net's splits_final.json, and their folds."""
    content = read_json(file)
    if isinstance(content, list) and content:
        folds = parse_splits(file, content)
    else:
        given = content.get("folds") if isinstance(content, dict) else None
        if not isinstance(given, dict):
            raise DataError.about(file, "it holds no folds", FORMS)
        folds = {number: list_names(file, given, number, "folds") for number in given}
    for number, names in folds.items():
        fold = parse_fold(file, "an entry", number)
        for name in names:
            yield name, fold


def parse_splits(file: Path, splits: Sequence[Any]) -> dict[str, list[str]]:
    """The validation cases of each split of nnU-Net.

    The cases that no split validates are one more fold, on which all others are trained.
    """
    folds: dict[str, list[str]] = {}
    for number, split in enumerate(splits):
        folds[str(number)] = list_names(file, split, "val", f"split {number}")
    validated = set[str]().union(*folds.values())
    trained: set[str] = set()
    for number, split in enumerate(splits):
        trained |= set(list_names(file, split, "train", f"split {number}"))
    folds[str(len(folds))] = sorted(trained - validated)
    return folds


def list_names(file: Path, holder: Any, field: str, place: str) -> list[str]:
    """The names of cases in a field of a JSON file. `place` says where the field is."""
    names = holder.get(field) if isinstance(holder, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        message = f"it holds no folds ({place} has no list of names {field[:MOST_SHOWN]!r})"
        raise DataError.about(file, message, FORMS)
    return names


def write_folds(file: Path, folds: Folds, *, origin: str) -> None:
    """Write a folds.json. `origin` says where the folds come from, such as the seed."""
    content = {"origin": origin, "folds": {str(fold): names for fold, names in folds.items()}}
    write_atomically(file, json.dumps(content, indent=2) + "\n")


def split_fold(folds: Folds, fold: int) -> tuple[list[str], list[str]]:
    """The cases to train on, and the cases that the fold holds out."""
    if not folds.get(fold):
        with_cases = ", ".join(str(number) for number, names in folds.items() if names)
        remedy = f"choose one of the folds {with_cases}"
        raise DataError.about("", f"fold {fold} has no cases", remedy)
    training: list[str] = []
    for other, names in folds.items():
        if other != fold:
            training += names
    if not training:
        raise DataError.about("", f"all cases are in fold {fold}", "give at least two folds")
    return sorted(training), list(folds[fold])


def check_patients(folds: Folds, cases: Sequence[Case], file: Path) -> None:
    """Refuse folds that separate the cases of a patient. Guessed patients are not checked."""
    patient_of = {case.name: case.owner for case in cases if case.patient_is_sure}
    fold_of: dict[str, int] = {}
    for fold, names in folds.items():
        for name in names:
            patient = patient_of.get(name, name)
            if fold_of.setdefault(patient, fold) != fold:
                message = f"patient {patient} is in the folds {fold_of[patient]} and {fold}"
                remedy = "put all cases of a patient into one fold"
                raise DataError.about(file, message, remedy, case=name)
