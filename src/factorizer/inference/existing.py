"""Files that exist where predictions will be written: they are kept, skipped or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from factorizer.data.cases import Case, DataError, Problem
from factorizer.data.naming import IMAGES_2D, NIFTI
from factorizer.data.outputs import prediction_file, probabilities_file
from factorizer.errors import FactorizerError
from factorizer.files import FileError
from factorizer.inference.manifest import (
    Facts,
    Record,
    describe_inputs,
    differences,
    find_doubt,
    list_reasons,
    read_record,
)


def output_files(case: Case, out: Path, *, save_probabilities: bool) -> list[Path]:
    """The files of a case. The first is its label map."""
    files = [prediction_file(out, case)]
    if save_probabilities:
        files.append(probabilities_file(out, case))
    return files


def check_outputs(wanted: Mapping[str, Sequence[Path]], out: Path, *, skip_existing: bool) -> None:
    """Raise if cases share a file, a file would be overwritten, or the folder cannot be written to.

    `wanted` has the files of each case.
    """
    if out.name.endswith((*NIFTI, *IMAGES_2D)):
        raise FactorizerError(
            f"{out} is the name of an image; give a folder, in which each case's labels get its "
            "name"
        )
    owner = owners_of(wanted)
    existing = [file for file in owner if file.exists()]
    if existing and not skip_existing:
        more = f" and {len(existing) - 1} more" if len(existing) > 1 else ""
        raise FactorizerError(
            f"{existing[0]}{more} already exists; resume to skip what exists, or give another "
            "folder"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise FactorizerError(
            f"{out} cannot be written to ({error.strerror}); give another folder"
        ) from None


def owners_of(wanted: Mapping[str, Sequence[Path]]) -> dict[Path, str]:
    """The case that each file belongs to."""
    owner: dict[Path, str] = {}
    for case, files in wanted.items():
        for file in files:
            if owner.setdefault(file, case) != case:
                raise FactorizerError(
                    f"{file.name} would be a file of the case {owner[file]} and of the case "
                    f"{case}; rename one of them, or do not save probabilities"
                )
    return owner


def check_same_model(
    cases: Sequence[Case], out: Path, wanted: Mapping[str, Sequence[Path]], made_with: Facts
) -> None:
    """Raise if predictions of another model or with other options exist: a folder has one kind."""
    found: dict[Path, list[str]] = {}
    for case in cases:
        existing = [file for file in wanted[case.name] if file.exists()]
        if not existing:
            continue
        with suppress(FileError):  # a damaged record is a problem of its case later
            record = read_record(out, case)
            words = differences(record.made_with, made_with) if record else []
            if words:
                found[existing[0]] = words
    if found:
        file, words = next(iter(found.items()))
        more = f" (as were {len(found) - 1} more)" if len(found) > 1 else ""
        raise FactorizerError(
            f"{file} was made {list_reasons(words)}{more}; give another folder, or remove the "
            "predictions in it"
        )


def check_existing(case: Case, out: Path, existing: Sequence[Path], made_with: Facts) -> None:
    """Raise `DataError` if existing files of a case are not its predictions, unchanged."""
    if not existing:
        return
    try:
        now = Record(made_with, describe_inputs(case))
        problem = find_doubt(case.name, read_record(out, case), now, existing)
    except FileError as error:
        problem = Problem(case.name, error.file, error.reason, error.remedy)
    except OSError as error:
        message = f"it cannot be read ({error.strerror})"
        problem = Problem(case.name, str(error.filename), message, "check it")
    if problem is not None:
        raise DataError(problem)
