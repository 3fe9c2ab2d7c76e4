"""Train a preset on a data set: one fold, or every fold of a cross-validation.

Lightning reads the environment as soon as it is imported. So this file imports it only after the
environment is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from factorizer.config import Preset
from factorizer.data.layouts import read_cohort
from factorizer.errors import RunError
from factorizer.hardware import choose_device
from factorizer.preset_files import change_preset, load_preset, refuse_idle_options
from factorizer.progress import SILENT, Progress
from factorizer.runs.fold import ALL, FoldNumber
from factorizer.runs.run import Run
from factorizer.training.budget import warn_of_long_training
from factorizer.training.consistency import settle_folds, unfinished_folds
from factorizer.training.environment import check_environment
from factorizer.training.machine import Machine

if TYPE_CHECKING:
    from lightning.pytorch import Callback

    from factorizer.training.session import Outcome

RUNS = Path("runs")  # the folder of runs that are not given one


@dataclass(frozen=True)
class CrossValidation:
    """How a cross-validation ended.

    Attributes:
        run: The run with its folds.
        scores_file: The scores of all folds. None if a fold is missing.
        missing: The folds that are not finished yet.
        signal: The signal that stopped it, or 0.
    """

    run: Run
    scores_file: Path | None = None
    missing: Sequence[int] = ()
    signal: int = 0


def train(
    preset: str | Path | Preset,
    *,
    data: Path,
    out: Path | None = None,
    fold: FoldNumber = 0,
    system: str | None = None,
    changes: Sequence[str] = (),
    split: Path | None = None,
    resume: bool = False,
    init: str | None = None,
    machine: Machine | None = None,
    progress: Progress = SILENT,
) -> Outcome:
    """Train on all folds except one, and score the last weights on that one.

    Args:
        preset: A preset, its name, or its file.
        data: The data set: its folder, or a list of cases.
        out: The folder of the run. The default is runs/PRESET-SYSTEM.
        fold: The fold that is held out. "all" holds out none, and has no scores.
        system: A network other than the preset's.
        changes: Fields of the preset with other values, as "path.to.field=value".
        split: A file that says which case is in which fold. Otherwise folds are drawn.
        resume: Whether a fold that was stopped is resumed.
        init: A trained model (RUN/foldK or zoo:NAME) whose weights are used where they fit.
        machine: Devices, precision and workers.
        progress: Where lines and bars go.

    Example:
        >>> quick = ["training.max_steps=2", "training.folds=2", "model.widths=[8,16]"]
        >>> quick += ["data.patch_size=[16,16,16]"]
        >>> outcome = factorizer.train("isles22", data=Path("strokes"), changes=quick)
        >>> outcome.finished, str(outcome.folder)
        (True, 'runs/isles22-swin-factorizer/fold0')
    """
    machine = machine or Machine()
    check_environment(machine.devices)
    settled = settle_preset(preset, system=system, changes=changes)
    folder = out or default_folder(preset, settled)
    from factorizer.training.session import train_fold

    if not resume:
        warn_if_long(settled, machine, progress)
    return train_fold(
        settled,
        data=data,
        out=folder,
        fold=fold,
        split=split,
        resume=resume,
        init=init,
        machine=machine,
        progress=progress,
    )


def cross_validate(
    preset: str | Path | Preset,
    *,
    data: Path,
    out: Path | None = None,
    fold: int | None = None,
    system: str | None = None,
    changes: Sequence[str] = (),
    split: Path | None = None,
    init: str | None = None,
    machine: Machine | None = None,
    callbacks: Sequence[Callback] = (),
    progress: Progress = SILENT,
) -> CrossValidation:
    """Train or resume every fold, one after the other. Pool their scores when all are finished.

    With `fold`, only that one is trained, so that several jobs can share the work. `callbacks` are
    further callbacks for Lightning's trainer. The other arguments are those of `train`.

    Example:
        >>> quick = ["training.max_steps=2", "training.folds=2", "model.widths=[8,16]"]
        >>> quick += ["data.patch_size=[16,16,16]"]
        >>> result = factorizer.cross_validate("isles22", data=Path("strokes"), changes=quick)
        >>> str(result.scores_file)
        'runs/isles22-swin-factorizer/scores.csv'
    """
    machine = machine or Machine()
    check_environment(machine.devices)
    settled = settle_preset(preset, system=system, changes=changes)
    run = Run(out or default_folder(preset, settled))
    warn_if_long(settled, machine, progress)
    from factorizer.training.session import train_fold
    from factorizer.training.trainer import is_leader

    cohort = read_cohort(data, mask_suffix=settled.data.mask_suffix)
    folds, _ = settle_folds(run, cohort, settled, split)
    numbers = list(folds) if fold is None else [fold]
    train_one = partial(
        train_fold,
        settled,
        data=data,
        out=run.path,
        split=split,
        resume=True,
        init=init,
        machine=machine,
        callbacks=callbacks,
        progress=progress,
    )
    for place, number in enumerate(numbers, start=1):
        if is_leader() and len(numbers) > 1:
            progress.say(f"fold {number} ({place} of {len(numbers)})")
        outcome = train_one(fold=number)
        if outcome.signal:
            return CrossValidation(run, signal=outcome.signal)
    return pool_folds(run, list(folds), settled) if is_leader() else CrossValidation(run)


def pool_folds(run: Run, numbers: Sequence[int], preset: Preset) -> CrossValidation:
    """Write the scores of all folds to one table, if every fold is finished."""
    missing = unfinished_folds(run, numbers, preset.training.max_steps)
    if missing:
        return CrossValidation(run, missing=missing)
    return CrossValidation(run, run.pool_scores(numbers))


def settle_preset(
    preset: str | Path | Preset, *, system: str | None = None, changes: Sequence[str] = ()
) -> Preset:
    """A preset with another system and changed fields. A change without effect is refused."""
    loaded = load_preset(preset)
    wanted = [f"model.name={system}", *changes] if system else list(changes)
    if not wanted:
        return loaded
    changed = change_preset(loaded, wanted)
    refuse_idle_options(changed, changes)
    return changed


def default_folder(preset: str | Path | Preset, settled: Preset) -> Path:
    """runs/PRESET-SYSTEM."""
    if isinstance(preset, Preset):
        raise RunError("out is missing; give the folder of the run, or a preset by its name")
    return RUNS / f"{Path(preset).stem}-{settled.model.name}"


def parse_fold(text: str) -> FoldNumber:
    """The number of a fold, or all."""
    if text == ALL:
        return ALL
    if not (text.isascii() and text.isdigit()):
        raise RunError(f"fold is {text!r}; give the number of a fold, or all")
    return int(text)


def warn_if_long(preset: Preset, machine: Machine, progress: Progress) -> None:
    """Warn of a training that takes days on this CPU."""
    import torch

    from factorizer.training.trainer import is_leader

    if not is_leader() or choose_device(machine.device).type != "cpu":
        return
    warning = warn_of_long_training(preset, torch.get_num_threads())
    if warning:
        progress.say(warning)
