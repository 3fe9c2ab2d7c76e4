"""Whether a training may begin or resume in a folder: it must be the same run on the same data.

A fold is only ever resumed with the preset, the cases and the split that it began with. It may
become longer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from pathlib import Path

from factorizer.config import Preset
from factorizer.data.cases import Cohort
from factorizer.data.folds import Folds, draw_folds, read_folds, read_own_folds, split_fold
from factorizer.errors import RunError
from factorizer.preset_files import change_preset, to_yaml
from factorizer.runs.fold import ALL, Fold, FoldNumber, case_keys
from factorizer.runs.run import Run
from factorizer.words import count


def check_folder(fold: Fold, preset: Preset, *, resume: bool) -> None:
    """Refuse a folder that holds something else, or a fold that is not to be resumed."""
    if not fold.exists:
        if fold.path.exists() and not all(map(fold.is_trace, fold.path.iterdir())):
            raise RunError(f"{fold.path} is neither empty nor a run; give another folder")
        return
    if not fold.has_preset(preset) and not (resume and is_extension(fold, preset)):
        raise RunError(
            f"{fold.path} was trained with another preset; give another folder (only a larger "
            f"training.max_steps can be resumed). The difference:\n{show_changes(fold, preset)}"
        )
    if not resume:
        raise RunError(f"{fold.path} already exists; resume it, or give another folder")


def show_changes(fold: Fold, preset: Preset) -> str:
    """The lines of config.yaml that differ from a preset."""
    before, now = fold.configuration().splitlines(), to_yaml(preset).splitlines()
    lines = []
    for line in unified_diff(before, now, lineterm="", n=0):
        if not line.startswith(("---", "+++", "@@")):
            lines.append(line)
    return "\n".join(lines)


def check_siblings(fold: Fold, preset: Preset) -> None:
    """Refuse a fold whose run has folds with another preset. Their lengths may differ."""
    for other in fold.run.everything():
        same_length = change_preset(preset, [f"training.max_steps={other.max_steps}"])
        if other != fold and not other.has_preset(same_length):
            raise RunError(f"{other.path} was trained with another preset; give another folder")


def check_cases(fold: Fold, entries: Mapping[str, Path]) -> None:
    """Refuse cases that differ, by content, from those that the run began with."""
    now = case_keys(entries)
    for other in fold.run.everything():
        if not other.cases_file.is_file():
            continue
        before = other.cases()
        names = sorted(before.keys() | now.keys())
        changed = [name for name in names if before.get(name) != now.get(name)]
        if changed:
            verb = "differs" if len(changed) == 1 else "differ"
            raise RunError(
                f"{other.path} began with different data, or with another version of the "
                f"preprocessing: {count(len(changed), 'case')} {verb} ({list_first(changed)}); "
                "give the same data, or another folder"
            )


def list_first(names: Sequence[str]) -> str:
    """The first three names."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def is_extension(fold: Fold, preset: Preset) -> bool:
    """Whether a fold is shorter than wanted and the same otherwise."""
    steps = fold.max_steps
    if steps is None or steps >= preset.training.max_steps:
        return False
    return fold.has_preset(change_preset(preset, [f"training.max_steps={steps}"]))


def claim_folder(fold: Fold, preset: Preset) -> str:
    """Write the preset of a fold. Return a remark if the fold becomes longer.

    What was found with the shorter training keeps its name with the number of steps.
    """
    steps, extended = fold.max_steps, is_extension(fold, preset)
    if extended:
        for file in files_of_result(fold):
            if file.exists():
                os.replace(file, file.with_stem(f"{file.stem}-{steps}"))
    fold.write_preset(preset)
    fold.checkpoints.mkdir(exist_ok=True)
    if not extended:
        return ""
    wanted = preset.training.max_steps
    return (
        f"extending from {steps} to {wanted} steps: the learning rate continues where a training "
        f"of {wanted} steps would be now, so the result differs from such a training"
    )


def files_of_result(fold: Fold) -> list[Path]:
    """What was found with the weights of a fold."""
    files = [fold.scores_file, fold.speeds_file]
    if fold.number != ALL:
        files += [fold.run.scores_file, fold.run.rules_file]
    return files


def settle_folds(run: Run, cohort: Cohort, preset: Preset, split: Path | None) -> tuple[Folds, str]:
    """The folds of a run, and where they come from: its own, those of a file, or new ones."""
    if run.folds_file.exists():
        return check_own_folds(run, cohort, split), str(run.folds_file)
    if split is not None:
        return read_folds(split, cohort.labelled), f"split {split.name}"
    seed = preset.training.seed
    folds = draw_folds(cohort.labelled, num_folds=preset.training.folds, seed=seed)
    return folds, f"seed {seed}"


def check_own_folds(run: Run, cohort: Cohort, split: Path | None) -> Folds:
    """The folds that a run began with, if all its cases still exist and no other split is given."""
    folds = run.split(cohort.cases)
    gone = sorted(run.fold_of_case().keys() - {case.name for case in cohort.cases})
    if gone:
        more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        raise RunError(
            f"{run.folds_file} has {gone[0]}{more}, which {cohort.root} does not have any more; "
            "restore the data, or give another folder"
        )
    if split is not None and read_own_folds(split, cohort.cases) != folds:
        raise RunError(
            f"{run.folds_file} and {split} have different folds; give another folder, or leave out "
            "the split"
        )
    return folds


def split_cases(folds: Folds, number: FoldNumber) -> tuple[list[str], list[str]]:
    """The cases to train on, and the cases to hold out."""
    if number == ALL:
        names: list[str] = []
        for own in folds.values():
            names += own
        return sorted(names), []
    return split_fold(folds, number)


def check_folds(run: Run, folds: Folds) -> None:
    """Refuse folds that differ from those that a fold of the run wrote down when it began."""
    for fold in run.folds():
        assert isinstance(fold.number, int), "foldall is not among them"
        starts, names = fold.starts(), folds.get(fold.number, [])
        before = starts[0].get("held_out") if starts else None
        if isinstance(before, list) and before != names:
            changed = sorted(set(map(str, before)) ^ set(names))
            raise RunError(
                f"{fold.path} began with other folds than those in {run.folds_file}: different "
                f"cases were held out ({list_first(changed)}); restore the file, or give another "
                "folder"
            )


def unfinished_folds(run: Run, numbers: Sequence[int], max_steps: int) -> list[int]:
    """The folds that are not trained to this length yet."""
    return [number for number in numbers if not run.fold(number).is_finished_for(max_steps)]
