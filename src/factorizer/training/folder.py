"""The folder of a run: whether a run may start there, its folds, and what it says about itself.

OUT/folds.json and OUT/foldK/{config.yaml, cases.json, run.json, log/metrics.csv, checkpoints/,
learning_curve.png, scores.csv}, written in this order. A run that is trained on all cases is in
OUT/foldall, and has no scores.csv.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Literal

from filelock import FileLock

from factorizer.config import Preset
from factorizer.data.cases import Cohort
from factorizer.data.folds import (
    Folds,
    draw_folds,
    read_fold_of,
    read_folds,
    read_own_folds,
    split_fold,
    write_folds,
)
from factorizer.evaluation.scores import read_scores, write_scores
from factorizer.files import FileError, read_json, read_text, remove_leftovers, write_atomically
from factorizer.preset_files import PresetError, change_preset, load_preset, to_yaml
from factorizer.training.checkpoints import remove_unfinished
from factorizer.training.environment import RunError
from factorizer.training.records import has_ended, read_starts, steps_before
from factorizer.words import count

Fold = int | Literal["all"]  # the fold that is held out; all: none is
OWN_FILES = (
    "config.yaml",
    "cases.json",
    "run.json",
    "log/metrics.csv",
    "scores.csv",
    "learning_curve.png",
)


def is_finished(folder: Path, preset: Preset) -> bool:
    """Whether the run is there at full length. The length is looked at first: an extension moves
    the scores away before it writes the new one."""
    steps = steps_before(folder)
    return steps is not None and steps >= preset.training.max_steps and has_ended(folder)


def check_folder(folder: Path, preset: Preset, *, resume: bool) -> None:
    """Where the run's folder is there already, it must be this run's, or a shorter one of this, and
    be resumed."""
    file, text = folder / "config.yaml", to_yaml(preset)
    if not file.exists():
        if folder.exists() and not all(map(is_trace, folder.iterdir())):
            raise RunError(f"{folder} is not empty and no run; give another --out")
        return
    if not is_preset_of(file, preset) and not (resume and is_extension(folder, preset)):
        changes = unified_diff(
            configuration_of(file).splitlines(), text.splitlines(), lineterm="", n=0
        )
        shown = "\n".join(
            line for line in changes if line[:3] not in ("---", "+++") and line[:2] != "@@"
        )
        advice = "give another --out (only a larger training.max_steps can be resumed)"
        raise RunError(
            f"{folder} is a run with another configuration; {advice}. The difference:\n{shown}"
        )
    if not resume:
        raise RunError(f"{folder} is a run already; go on with --resume, or give another --out")


def is_trace(path: Path) -> bool:
    """Whether a file is what a run leaves that is killed before its configuration is written."""
    return path.name == "cases.json" or path.name.startswith((".cases.json.", ".config.yaml."))


def remove_traces(folder: Path) -> None:
    """Remove what a run that was killed left of files it was writing; only under the lock of its
    fold."""
    if not (folder / "config.yaml").exists():
        (folder / "cases.json").unlink(missing_ok=True)  # perhaps of another configuration
    remove_leftovers(*(folder / name for name in OWN_FILES))
    remove_unfinished(folder / "checkpoints")


def is_preset_of(file: Path, preset: Preset) -> bool:
    """Whether a run's configuration says the same, regions in the same order too."""
    return configuration_of(file) == to_yaml(preset)


def configuration_of(file: Path) -> str:
    """What a run's config.yaml says: a field that came later has its default, and comments are
    those of today."""
    try:
        return to_yaml(load_preset(file))
    except PresetError:
        return read_text(file)


def check_siblings(folder: Path, preset: Preset) -> None:
    """The folds of a run have one configuration, but for the length where one is extended before
    the others."""
    for file in sorted(folder.parent.glob("fold*/config.yaml")):
        same_length = change_preset(preset, [f"training.max_steps={steps_before(file.parent)}"])
        if file.parent != folder and not is_preset_of(file, same_length):
            raise RunError(
                f"{file.parent} is a fold with another configuration; give another --out"
            )


def check_cases(folder: Path, entries: Mapping[str, Path]) -> None:
    """The cases of a run, by content, are those that it and its other folds began with."""
    now = case_keys(entries)
    for file in sorted(folder.parent.glob("fold*/cases.json")):
        if not (file.parent / "config.yaml").exists():  # killed before it began
            continue
        before = read_cases(file)
        changed = sorted(
            name for name in before.keys() | now.keys() if before.get(name) != now.get(name)
        )
        if changed:
            some = f"{', '.join(changed[:3])}{', ...' * (len(changed) > 3)}"
            differ = f"{count(len(changed), 'case')} {'differs' if len(changed) == 1 else 'differ'}"
            raise RunError(
                f"{file.parent} was begun with other data, or with another version of the "
                f"preprocessing: {differ} ({some}); give the same --data, or another --out"
            )


def write_cases(folder: Path, entries: Mapping[str, Path]) -> None:
    """Write down the cases that a fold begins with."""
    if not (folder / "cases.json").exists():
        write_atomically(folder / "cases.json", json.dumps(case_keys(entries), indent=0) + "\n")


def case_keys(entries: Mapping[str, Path]) -> dict[str, str]:
    return {name: entry.name for name, entry in sorted(entries.items())}


def read_cases(file: Path) -> dict[str, str]:
    """The cases that a fold began with, and the names of their entries in the cache."""
    cases = read_json(file)
    if not isinstance(cases, dict) or not all(isinstance(entry, str) for entry in cases.values()):
        raise FileError(file, "it is not a table of cases", "restore it, or give another --out")
    return cases


def is_extension(folder: Path, preset: Preset) -> bool:
    """Whether the run in a folder differs from the wanted one in being shorter, and in nothing
    else."""
    steps = steps_before(folder)
    if steps is None or steps >= preset.training.max_steps:
        return False
    return is_preset_of(
        folder / "config.yaml", change_preset(preset, [f"training.max_steps={steps}"])
    )


def claim_folder(folder: Path, preset: Preset) -> str:
    """Write the configuration; of a run that is made longer, put aside what was found of the
    weights before. Says what was done to it."""
    steps = steps_before(folder)
    extended = is_extension(folder, preset)
    found = [folder / "scores.csv", folder / "speeds.json"]
    if folder.name != "foldall":
        found += [
            folder.parent / "scores.csv",
            folder.parent / "postprocessing.json",
        ]  # of all folds
    for file in found:
        if extended and file.exists():
            os.replace(file, file.with_stem(f"{file.stem}-{steps}"))
    write_atomically(folder / "config.yaml", to_yaml(preset))
    (folder / "checkpoints").mkdir(exist_ok=True)
    if not extended:
        return ""
    return (
        f"extending from {steps} to {preset.training.max_steps} steps: the learning rate goes on "
        f"where a run of {preset.training.max_steps} steps would be, so the result differs from "
        "such a run"
    )


def settle_folds(
    file: Path, cohort: Cohort, preset: Preset, split: Path | None
) -> tuple[Folds, str]:
    """The folds of this run and where they are from: those written before, those given, or new
    ones."""
    if file.exists():
        folds = read_own_folds(file, cohort.cases)
        gone = sorted(read_fold_of(file).keys() - {case.name for case in cohort.cases})
        if gone:
            message = f"{gone[0]}{f' and {len(gone) - 1} more' if len(gone) > 1 else ''}"
            raise RunError(
                f"{file} has {message}, which {cohort.root} has no longer; restore it, or give "
                "another --out"
            )
        if split is not None and read_own_folds(split, cohort.cases) != folds:
            raise RunError(
                f"{file} has other folds than {split}; give another --out, or leave out --split"
            )
        return folds, f"{file}"  # not written again
    if split is not None:
        return read_folds(split, cohort.labelled), f"split {split.name}"
    seed = preset.training.seed
    return draw_folds(cohort.labelled, num_folds=preset.training.folds, seed=seed), f"seed {seed}"


def write_new_folds(out: Path, folds: Folds, origin: str) -> None:
    """Write folds.json where it does not exist yet; another fold may be about to do the same."""
    file = out / "folds.json"
    with FileLock(out / ".locks" / "run"):
        remove_leftovers(file)
        if not file.exists():
            write_folds(file, folds, origin=origin)


def split_cases(folds: Folds, fold: Fold) -> tuple[list[str], list[str]]:
    """The cases to train on and the cases held out."""
    if fold == "all":
        return sorted(name for names in folds.values() for name in names), []
    return split_fold(folds, fold)


def check_folds(out: Path, folds: Folds) -> None:
    """The folds are those that each fold of the run was begun with, as far as it wrote that
    down."""
    for folder in sorted(out.glob("fold*")):
        if not folder.name[4:].isdigit():
            continue
        starts, names = read_starts(folder), folds.get(int(folder.name[4:]), [])
        before = starts[0].get("held_out") if starts else None
        if isinstance(before, list) and before != names:
            changed = sorted(set(map(str, before)) ^ set(names))
            raise RunError(
                f"{out / 'folds.json'} is not what {folder} was begun with: other cases are held "
                f"out ({', '.join(changed[:3])}{', ...' * (len(changed) > 3)}); restore the file, "
                "or give another --out"
            )


def unfinished_folds(out: Path, folds: Sequence[int], preset: Preset) -> list[int]:
    return [fold for fold in folds if not is_finished(out / f"fold{fold}", preset)]


def pool_scores(out: Path, folds: Sequence[int], preset: Preset) -> Path:
    """One table of all folds, each case from the fold that held it out."""
    missing = unfinished_folds(out, folds, preset)
    if missing:
        raise RunError(
            f"the folds {', '.join(map(str, missing))} of {out} are not finished; train them first"
        )
    rows = [row for fold in folds for row in read_scores(out / f"fold{fold}" / "scores.csv")]
    file = out / "scores.csv"
    with FileLock(out / ".locks" / "run"):
        remove_leftovers(file)
        write_scores(file, sorted(rows, key=lambda row: (row.case, row.region, row.metric)))
    return file
