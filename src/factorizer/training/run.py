"""One training run, from the first step to the scores.

A run goes on from its newest readable checkpoint, and is refused where it would replace another.
Under several processes all of them train; the first prepares, writes and speaks.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from filelock import FileLock, Timeout
from lightning.pytorch import Callback, Trainer

from factorizer.config import Preset
from factorizer.data.cache import CaseStore, settings_for
from factorizer.data.cases import Cohort, note_renamed_labels
from factorizer.data.folds import Folds
from factorizer.data.layouts import read_cohort
from factorizer.evaluation.scores import write_scores
from factorizer.files import write_atomically
from factorizer.training.begin import make_module, settle_init, warn_of_known_cases
from factorizer.training.checkpoints import REMEDY, Checkpoints, newest_readable
from factorizer.training.folder import (
    Fold,
    RunError,
    check_cases,
    check_folder,
    check_folds,
    check_siblings,
    claim_folder,
    is_finished,
    pool_scores,
    remove_traces,
    settle_folds,
    split_cases,
    unfinished_folds,
    write_cases,
    write_new_folds,
)
from factorizer.training.log import log_file
from factorizer.training.memory import check_memory, is_out_of_memory
from factorizer.training.module import PatchStream, Segmentation
from factorizer.training.records import describe_end, describe_start
from factorizer.training.scoring import Scoring, Track
from factorizer.training.signals import Interrupted
from factorizer.training.stop import StopOnSignal, Stopped
from factorizer.training.trainer import Machine, is_leader, make_trainer, validation_interval
from factorizer.words import count

Say = Callable[[str], object]
SHOWN = 200  # characters of an error that is not ours


@dataclass(frozen=True)
class Outcome:
    """How a call of `train_fold` ended; `signal` is the one that stopped it, 0 where none did."""

    folder: Path
    step: int
    finished: bool
    mean_dice: float | None = None
    signal: int = 0


def be_silent(text: str) -> None:
    pass


def show_nothing(items: Sequence[Any], label: str) -> Iterable[Any]:
    return items


def train_fold(
    preset: Preset,
    *,
    data: Path,
    fold: Fold,
    out: Path,
    split: Path | None = None,
    resume: bool = False,
    init: str | None = None,
    machine: Machine | None = None,
    callbacks: Sequence[Callback] = (),
    say: Say = be_silent,
    track: Track = show_nothing,
    again: str = "run the same command with --resume to go on",
) -> Outcome:
    """Train on all folds but one, then score the last weights on that one; or train on all cases
    (fold "all").

    `init` is a trained model (a fold's folder, or zoo:NAME) whose weights are taken over where they
    fit.
    """
    machine = machine or Machine()
    leader = is_leader()
    if not leader:
        say, track, callbacks = be_silent, show_nothing, ()
    folder, started = out / f"fold{fold}", time.monotonic()
    if leader:
        check_folder(folder, preset, resume=resume)
        check_siblings(folder, preset)
    if is_finished(folder, preset):
        say(
            f"{folder} is finished; "
            + ("its scores are in scores.csv" if fold != "all" else "it has no scores")
        )
        return Outcome(folder, preset.training.max_steps, finished=True)
    cohort = read_cohort(data, mask_suffix=preset.data.mask_suffix)
    folds, origin = settle_folds(out / "folds.json", cohort, preset, split)
    check_folds(out, folds)
    for remark in remarks_on(cohort, folds, preset):
        say(remark)
    training, held_out = split_cases(folds, fold)
    settings = settings_for(cohort, preset.data)
    start, step = newest_readable(folder / "checkpoints", say) if resume else (None, 0)
    if step > preset.training.max_steps:
        raise RunError(
            f"{start} is of step {step}, beyond training.max_steps, {preset.training.max_steps}; "
            f"{REMEDY}"
        )
    checkpoints = Checkpoints(
        folder / "checkpoints",
        every=preset.training.checkpoint_every,
        validate_every=validation_interval(preset.training) if held_out else None,
        start_step=step,
    )
    callbacks = [checkpoints, StopOnSignal(checkpoints), *callbacks]
    trainer = make_trainer(
        preset.training, folder, callbacks, machine, start_step=step, held_out=bool(held_out)
    )
    need = check_memory(preset, machine)
    init = settle_init(folder, init)
    source = init if start is None else None  # later it is not needed any more
    if source is not None:
        warn_of_known_cases(source, held_out, say)
    module = make_module(preset, machine, source, say)
    store = CaseStore(out / "cache", cohort.cases, settings)
    stream = PatchStream(preset, store, training, held_out, machine.workers)
    say(f"the run goes to {folder}; training takes about {need.total / 2**30:.1f} GiB of memory")
    with hold(out, fold) if leader else nullcontext():
        if leader:
            check_folder(
                folder, preset, resume=resume
            )  # again, as another process may have been here meanwhile
            remove_traces(folder)
            prepare_cases(store, training, held_out, say, track)
            check_cases(folder, store.entries)
            write_new_folds(out, folds, origin)  # from here on the run exists
            extension = claim_folder(folder, preset)
            if extension:
                say(extension)
            write_cases(folder, store.entries)
            options = {
                "init": init,
                **asdict(machine),
                "processes": trainer.world_size,
                "held_out": held_out,
            }
            describe_start(folder, preset, data, options)
        usable = [sum(name in store.entries for name in names) for names in (training, held_out)]
        kept = usable[1] or "none"
        say(
            f"going on from {start}"
            if start
            else f"training on {count(usable[0], 'case')}, {kept} held out"
        )
        prepared = time.monotonic()
        scoring = Scoring(preset, cohort, settings)
        scoring.score_while_validating(trainer, module)
        stopped = fit(trainer, module, stream, start)
        trained = time.monotonic()
        seconds = {"preparing": prepared - started, "training": trained - prepared}
        if stopped:
            if leader:
                describe_end(folder, step=trainer.global_step, seconds=rounded(seconds))
            say(f"stopped at step {trainer.global_step} and saved; {again}")
            return Outcome(folder, trainer.global_step, finished=False, signal=stopped)
        checkpoints.save_last(trainer)
        rows = scoring.scores(trainer, module, stream.held_out.names, track)
        if leader:
            draw_learning_curve(folder)
            seconds["scoring"] = time.monotonic() - trained
            describe_end(folder, step=trainer.global_step, seconds=rounded(seconds))
            if held_out:
                write_scores(folder / "scores.csv", rows)  # last: with them the run is finished
    dices = [row.value for row in rows if row.metric == "dice"]
    return Outcome(
        folder, trainer.global_step, finished=True, mean_dice=fmean(dices) if dices else None
    )


def remarks_on(cohort: Cohort, folds: Folds, preset: Preset) -> Iterator[str]:
    """What a user should know of the data before they are trained on; cases are looked at one by
    one later."""
    names = {case.name for case in cohort.cases}
    yield from (str(problem) for problem in cohort.problems if problem.case not in names)
    others = len(names) - sum(map(len, folds.values()))
    if others:
        verb = "is" if others == 1 else "are"
        yield (
            f"{count(others, 'case')} of {cohort.root} {verb} in no fold of this run (unlabelled, "
            f"or new), and {verb} left out"
        )
    yield from map(str, note_renamed_labels(cohort, preset.data.labels))


@contextmanager
def hold(out: Path, fold: Fold) -> Iterator[None]:
    """Keep other processes out of a fold while it is trained."""
    locks = out / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(locks / f"fold{fold}", timeout=0):
            yield
    except Timeout:
        raise RunError(
            f"another process is training {out}/fold{fold} now; wait for it, or give another --out"
        ) from None


def fit(trainer: Trainer, module: Segmentation, stream: PatchStream, start: Path | None) -> int:
    """Train to the end, or until a signal stops the run: then its number."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", module=r"lightning|torch|monai"
        )  # advice that does not apply
        try:
            trainer.fit(module, datamodule=stream, ckpt_path=start, weights_only=True)
        except Stopped as stop:
            return stop.number
        except Exception as error:  # a damaged checkpoint raises errors of any kind
            if is_out_of_memory(error):
                raise RunError(
                    f"the memory does not suffice at step {trainer.global_step}; lower "
                    "data.patch_size, training.batch_size, model.widths or model.rank"
                ) from error
            if start is None or stream.opened:
                raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:SHOWN]
            raise RunError(f"{start} cannot be resumed from ({reason}); {REMEDY}") from error
    return 0


def cross_validate(
    preset: Preset,
    *,
    data: Path,
    out: Path,
    fold: int | None = None,
    split: Path | None = None,
    say: Say = be_silent,
    **options: Any,
) -> Path | None:
    """Run or go on with every fold, one after the other, or with one; when all are there, pool
    their scores.

    Returns OUT/scores.csv, or None while other folds are missing. A signal that stops a fold is
    raised as `Interrupted`.
    """
    cohort = read_cohort(data, mask_suffix=preset.data.mask_suffix)
    folds, _ = settle_folds(out / "folds.json", cohort, preset, split)
    leader = is_leader()
    numbers = list(folds) if fold is None else [fold]
    for place, number in enumerate(numbers, start=1):
        if leader and len(numbers) > 1:
            say(f"fold {number} ({place} of {len(numbers)})")
        outcome = train_fold(
            preset,
            data=data,
            fold=number,
            out=out,
            split=split,
            resume=True,
            say=say,
            again="run the same command to go on",
            **options,
        )
        if outcome.signal:
            raise Interrupted(outcome.signal, said=True)
    if not leader:
        return None
    missing = unfinished_folds(out, list(folds), preset)
    if missing:
        which = (
            f"fold {missing[0]} is"
            if len(missing) == 1
            else f"the folds {', '.join(map(str, missing))} are"
        )
        say(f"{which} not finished; when all are, {out}/scores.csv is written")
        return None
    return pool_scores(out, list(folds), preset)


def prepare_cases(
    store: CaseStore, training: Sequence[str], held_out: Sequence[str], say: Say, track: Track
) -> None:
    """Preprocess what is to be used; a case that cannot be is named and left out."""
    for problem in store.prepare([*training, *held_out]):
        say(f"warning: {problem}" if problem.is_warning else f"left out: {problem}")
    for names, purpose in ((training, "to train on"), (held_out, "in the held-out fold")):
        if names and not any(name in store.entries for name in names):
            raise RunError(f"no usable case is left {purpose}")


def rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in seconds.items()}


def draw_learning_curve(folder: Path) -> None:
    from factorizer.training.curve import draw_curve

    log = log_file(folder)
    if log.exists():
        write_atomically(folder / "learning_curve.png", draw_curve(log))
