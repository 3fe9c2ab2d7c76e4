"""ISLES'22, a BIDS data set: [rawdata/]sub-*/ses-*/**/*_dwi.nii.gz, derivatives/**/*_msk.nii.gz."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from factorizer.data.cases import (
    Case,
    Cohort,
    DataError,
    Problem,
    Source,
    make_cohort,
    missing_channels,
)
from factorizer.data.walk import list_deep, list_folder, list_folders, missing_file, one_file

CHANNELS = ("DWI", "ADC")
OPTIONAL_CHANNEL = "FLAIR"  # for presets that want it


def read_isles(folder: Path) -> Cohort | None:
    """The cohort of a BIDS folder, or of the folder rawdata in one."""
    raw = folder / "rawdata" if (folder / "rawdata").is_dir() else folder
    is_raw = folder.absolute().name == "rawdata"
    root = folder.absolute().parent if is_raw else folder  # the parent of derivatives
    sessions = name_sessions(raw)
    if not sessions:
        return None
    cases: list[Case] = []
    as_found: list[Case] = []
    problems: list[Problem] = []
    for session, name in sessions.items():
        try:
            case = read_session(session, name, root)
        except DataError as error:
            problems += [replace(problem, case=name) for problem in error.problems]
            continue
        if case.channels:
            as_found.append(case)
        missing = missing_channels(case, CHANNELS)
        if missing:
            file = session / "dwi" / f"{stem_of(session)}_{missing[0].lower()}.nii.gz"
            problems.append(missing_file(name, file, missing[0]))
            continue
        cases.append(case)
        if case.label is None:
            place = root / "derivatives" / session.parent.name / session.name
            wanted = place / f"{stem_of(session)}_msk.nii.gz"
            problems.append(missing_file(name, wanted, "its label"))
    return make_cohort(
        folder,
        layout="isles",
        cases=cases,
        channels=CHANNELS,
        labels={"lesion": 1},
        problems=problems,
        as_found=as_found,
    )


def name_sessions(raw: Path) -> dict[Path, str]:
    """The sessions in a BIDS folder, and the name of the case that each session is.

    A case is named after its patient. If any patient has several sessions, all names get the
    session too.
    """
    sessions: list[Path] = []
    for patient in list_folders(raw):
        if patient.name.startswith("sub-") and os.access(patient, os.R_OK):
            sessions += [path for path in list_folders(patient) if path.name.startswith("ses-")]
    patients = {session.parent for session in sessions}
    if len(sessions) > len(patients):
        return {session: stem_of(session) for session in sessions}
    return {session: session.parent.name for session in sessions}


def stem_of(session: Path) -> str:
    """The beginning of the names of a session's files: sub-01_ses-02."""
    return f"{session.parent.name}_{session.name}"


def read_session(session: Path, name: str, root: Path) -> Case:
    """The case of a session, with the channels that exist. `root` is the folder that holds
    derivatives."""
    files = list_deep(session)
    sources: dict[str, Source] = {}
    for channel in (*CHANNELS, OPTIONAL_CHANNEL):
        file = one_file(name, session, files, f"_{channel.lower()}")
        if file is not None:
            sources[channel] = Source(file)
    mask = find_mask(name, root, session)
    return Case(name, sources, mask, patient=session.parent.name)


def find_mask(case: str, root: Path, session: Path) -> Path | None:
    """The mask of a session: in derivatives, in a folder below that, or beside the images."""
    place = Path(session.parent.name) / session.name
    derivatives = root / "derivatives"
    pipelines = [path / place for path in list_folder(derivatives)]
    for parent in (derivatives / place, *pipelines, session):
        if parent.is_dir():
            mask = one_file(case, parent, list_deep(parent), "_msk")
            if mask is not None:
                return mask
    return None
