"""One training, from the first step to the scores, and the cross-validation of several.

A training resumes from its newest readable checkpoint. It is refused where it would replace
another. Several processes may train together: then the first one prepares, writes and reports.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import torch
from lightning.pytorch import Callback, Trainer

from factorizer.config import Preset
from factorizer.data.cache import CaseStore, Settings, settings_for
from factorizer.data.cases import Cohort
from factorizer.data.folds import Folds
from factorizer.data.layouts import read_cohort
from factorizer.data.matching import note_renamed_labels
from factorizer.errors import RunError
from factorizer.evaluation.scores import Score
from factorizer.files import write_atomically
from factorizer.hardware import GIB
from factorizer.progress import SILENT, Progress
from factorizer.runs.fold import Fold, FoldNumber
from factorizer.runs.records import describe_start, with_end
from factorizer.runs.run import Run
from factorizer.training.begin import make_module, settle_init, warn_of_known_cases
from factorizer.training.checkpoints import REMEDY, Checkpoints, newest_readable
from factorizer.training.consistency import (
    check_cases,
    check_folder,
    check_folds,
    check_siblings,
    claim_folder,
    settle_folds,
    split_cases,
    unfinished_folds,
)
from factorizer.training.memory import check_memory, is_out_of_memory
from factorizer.training.module import PatchStream, Segmentation
from factorizer.training.report import ReportProgress
from factorizer.training.scoring import Scoring
from factorizer.training.stop import StopOnSignal, Stopped
from factorizer.training.trainer import Machine, is_leader, make_trainer, validation_interval
from factorizer.words import count

SHOWN = 200  # characters of an error that is not ours


@dataclass(frozen=True)
class Outcome:
    """How a training ended. `signal` is the one that stopped it, or 0."""

    fold: Fold
    step: int
    finished: bool
    mean_dice: float | None = None
    signal: int = 0

    @property
    def folder(self) -> Path:
        return self.fold.path


@dataclass(frozen=True)
class CrossValidation:
    """How a cross-validation ended: the pooled scores, or the folds that are still missing."""

    run: Run
    scores_file: Path | None = None
    missing: Sequence[int] = ()
    signal: int = 0


@dataclass(frozen=True)
class TrainingCases:
    """What a fold is trained on and what it holds out."""

    cohort: Cohort
    settings: Settings
    folds: Folds
    origin: str  # where the folds come from
    training: Sequence[str]
    held_out: Sequence[str]


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint that a training resumes from. The file is None at the very beginning."""

    file: Path | None = None
    step: int = 0


def train_fold(
    preset: Preset,
    *,
    data: Path,
    out: Path,
    fold: FoldNumber = 0,
    split: Path | None = None,
    resume: bool = False,
    init: str | None = None,
    machine: Machine | None = None,
    callbacks: Sequence[Callback] = (),
    progress: Progress = SILENT,
) -> Outcome:
    """Train on all folds except one, and score the last weights on that one.

    Args:
        preset: The data, the network and the training.
        data: The data set: its folder, or a list of cases.
        out: The folder of the run. The fold goes to OUT/foldK.
        fold: The fold that is held out. "all" holds out none, and has no scores.
        split: A file that says which case is in which fold. Otherwise folds are drawn.
        resume: Whether a fold that was stopped is resumed.
        init: A trained model (RUN/foldK or zoo:NAME) whose weights are used where they fit.
        machine: Devices, precision and workers.
        callbacks: Further callbacks for Lightning's trainer.
        progress: Where lines and bars go.

    Example:
        >>> preset = factorizer.load_preset("hippocampus")  # doctest: +SKIP
        >>> outcome = factorizer.train_fold(preset, data=data, out=out)  # doctest: +SKIP
        >>> outcome.mean_dice  # doctest: +SKIP
        0.88
    """
    started = time.monotonic()
    machine = machine or Machine()
    leader = is_leader()
    if not leader:
        progress, callbacks = SILENT, ()
    place = Run(out).fold(fold)
    if leader:
        check_folder(place, preset, resume=resume)
        check_siblings(place, preset)
    if place.is_finished_for(preset.training.max_steps):
        progress.say(f"{place.path} is finished")
        return Outcome(place, preset.training.max_steps, finished=True)
    cases = gather_cases(preset, data, place, split, progress)
    start = find_checkpoint(place, preset, progress) if resume else Checkpoint()
    session = Session(preset, place, cases, start, machine, callbacks, progress)
    first_model = settle_init(place, init)
    module = make_first_module(session, first_model)
    with place.run.hold(fold) if leader else nullcontext():
        if leader:
            check_folder(place, preset, resume=resume)  # another process may have been here
            session.claim(data, first_model)
        return session.train(module, started)


def gather_cases(
    preset: Preset, data: Path, fold: Fold, split: Path | None, progress: Progress
) -> TrainingCases:
    """Read the data set and deal its cases out."""
    assert fold.number is not None, "it is a fold of a run"
    cohort = read_cohort(data, mask_suffix=preset.data.mask_suffix)
    folds, origin = settle_folds(fold.run, cohort, preset, split)
    check_folds(fold.run, folds)
    for remark in remarks_on(cohort, folds, preset):
        progress.say(remark)
    training, held_out = split_cases(folds, fold.number)
    settings = settings_for(cohort, preset.data)
    return TrainingCases(cohort, settings, folds, origin, training, held_out)


def remarks_on(cohort: Cohort, folds: Folds, preset: Preset) -> Iterator[str]:
    """What a user should know about the data set before it is trained on."""
    names = {case.name for case in cohort.cases}
    for problem in cohort.problems:
        if problem.case not in names:
            yield str(problem)
    unused = len(names) - sum(map(len, folds.values()))
    if unused:
        verb = "is" if unused == 1 else "are"
        yield (
            f"{count(unused, 'case')} of {cohort.root} {verb} in no fold of this run (unlabelled, "
            f"or new) and {verb} left out"
        )
    for problem in note_renamed_labels(cohort, preset.data.labels):
        yield str(problem)


def find_checkpoint(fold: Fold, preset: Preset, progress: Progress) -> Checkpoint:
    """The checkpoint that a fold resumes from."""
    file, step = newest_readable(fold, progress)
    most = preset.training.max_steps
    if step > most:
        raise RunError(f"{file} is of step {step}, beyond training.max_steps, {most}; {REMEDY}")
    return Checkpoint(file, step)


def make_first_module(session: Session, first_model: str | None) -> Segmentation:
    """The network, with the weights of a first model if it does not resume from a checkpoint."""
    source = first_model if session.start.file is None else None
    if source is not None:
        warn_of_known_cases(source, session.cases.held_out, session.progress)
    return make_module(session.preset, session.machine, source, session.progress)


class Session:
    """One start of a training."""

    def __init__(
        self,
        preset: Preset,
        fold: Fold,
        cases: TrainingCases,
        start: Checkpoint,
        machine: Machine,
        callbacks: Sequence[Callback],
        progress: Progress,
    ) -> None:
        self.preset = preset
        self.fold = fold
        self.cases = cases
        self.start = start
        self.machine = machine
        self.progress = progress
        held_out = bool(cases.held_out)
        every = validation_interval(preset.training) if held_out else None
        self.checkpoints = Checkpoints(
            fold,
            every=preset.training.checkpoint_every,
            validate_every=every,
            start_step=start.step,
        )
        report = ReportProgress(progress, preset.training.batch_size)
        self.trainer = make_trainer(
            preset.training,
            fold,
            [self.checkpoints, StopOnSignal(self.checkpoints), report, *callbacks],
            machine,
            start_step=start.step,
            held_out=held_out,
        )
        need = check_memory(preset, machine)
        self.store = CaseStore(fold.run.cache, cases.cohort.cases, cases.settings)
        self.stream = PatchStream(
            preset, self.store, cases.training, cases.held_out, machine.workers
        )
        progress.say(
            f"the run is in {fold.path}; training needs about {need.total / GIB:.1f} GiB of memory"
        )

    def claim(self, data: Path, first_model: str | None) -> None:
        """Prepare the cases and write what the run is. Only the first process does this."""
        fold, cases = self.fold, self.cases
        fold.remove_traces()
        self.checkpoints.remove_unfinished()
        prepare_cases(self.store, cases, self.progress)
        check_cases(fold, self.store.entries)
        fold.run.write_split(cases.folds, cases.origin)  # from here on the run exists
        remark = claim_folder(fold, self.preset)
        if remark:
            self.progress.say(remark)
        fold.write_cases(self.store.entries)
        options = {
            "init": first_model,
            **asdict(self.machine),
            "processes": self.trainer.world_size,
            "held_out": cases.held_out,
        }
        start = describe_start(
            data=data,
            seed=self.preset.training.seed,
            threads=torch.get_num_threads(),
            options=options,
        )
        fold.write_starts([*fold.starts(), start])

    def train(self, module: Segmentation, started: float) -> Outcome:
        """Train to the last step and score, or until a signal stops it."""
        self.say_what_it_trains_on()
        prepared = time.monotonic()
        scoring = Scoring(self.preset, self.cases.cohort, self.cases.settings)
        scoring.score_while_validating(self.trainer, module)
        signal = fit(self.trainer, module, self.stream, self.start.file)
        trained = time.monotonic()
        seconds = {"preparing": prepared - started, "training": trained - prepared}
        step = self.trainer.global_step
        if signal:
            self.write_end(seconds)
            self.progress.say(f"stopped at step {step} and saved")
            return Outcome(self.fold, step, finished=False, signal=signal)
        self.checkpoints.save_last(self.trainer)
        names = self.stream.held_out.names
        rows = scoring.scores(self.trainer, module, names, self.progress)
        if is_leader():
            draw_learning_curve(self.fold)
        seconds["scoring"] = time.monotonic() - trained
        self.write_end(seconds)
        if is_leader() and self.cases.held_out:
            self.fold.write_scores(rows)  # last: with them the fold is finished
        return Outcome(self.fold, step, finished=True, mean_dice=mean_dice(rows))

    def say_what_it_trains_on(self) -> None:
        if self.start.file:
            self.progress.say(f"resuming from {self.start.file}")
            return
        training = [name for name in self.cases.training if name in self.store.entries]
        held_out = [name for name in self.cases.held_out if name in self.store.entries]
        kept = len(held_out) or "none"
        self.progress.say(f"training on {count(len(training), 'case')}, {kept} held out")

    def write_end(self, seconds: dict[str, float]) -> None:
        """Write down how this start ended."""
        if is_leader():
            step = self.trainer.global_step
            self.fold.write_starts(with_end(self.fold.starts(), step=step, seconds=seconds))


def mean_dice(rows: Sequence[Score]) -> float | None:
    dices = [row.value for row in rows if row.metric == "dice"]
    return fmean(dices) if dices else None


def prepare_cases(store: CaseStore, cases: TrainingCases, progress: Progress) -> None:
    """Preprocess the cases. One that cannot be used is named and left out."""
    names = [*cases.training, *cases.held_out]
    for problem in store.prepare(names, progress=progress):
        progress.say(f"warning: {problem}" if problem.is_warning else f"left out: {problem}")
    for wanted, purpose in (
        (cases.training, "to train on"),
        (cases.held_out, "in the held-out fold"),
    ):
        if wanted and not any(name in store.entries for name in wanted):
            raise RunError(f"no usable case is left {purpose}")


def fit(trainer: Trainer, module: Segmentation, stream: PatchStream, start: Path | None) -> int:
    """Train to the end, or until a signal stops it. Return the signal's number, or 0."""
    with warnings.catch_warnings():
        # advice that does not apply
        warnings.filterwarnings("ignore", module=r"lightning|torch|monai")
        try:
            trainer.fit(module, datamodule=stream, ckpt_path=start, weights_only=True)
        except Stopped as stop:
            return stop.number
        except Exception as error:  # a damaged checkpoint raises errors of any kind
            if is_out_of_memory(error):
                raise RunError(
                    f"the memory is not sufficient at step {trainer.global_step}; lower "
                    "data.patch_size, training.batch_size, model.widths or model.rank"
                ) from error
            if start is None or stream.opened:
                raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:SHOWN]
            raise RunError(f"{start} cannot be resumed from ({reason}); {REMEDY}") from error
    return 0


def draw_learning_curve(fold: Fold) -> None:
    from factorizer.figures.curve import draw_curve
    from factorizer.training.log import read_log

    if fold.log_file.exists():
        write_atomically(fold.curve_file, draw_curve(read_log(fold.log_file)))


def cross_validate(
    preset: Preset,
    *,
    data: Path,
    out: Path,
    fold: int | None = None,
    split: Path | None = None,
    init: str | None = None,
    machine: Machine | None = None,
    callbacks: Sequence[Callback] = (),
    progress: Progress = SILENT,
) -> CrossValidation:
    """Train or resume every fold, one after the other. Pool their scores when all are finished.

    With `fold`, only that one is trained: so the jobs of an array can share the work. The other
    arguments are those of `train_fold`.
    """
    run, leader = Run(out), is_leader()
    cohort = read_cohort(data, mask_suffix=preset.data.mask_suffix)
    folds, _ = settle_folds(run, cohort, preset, split)
    numbers = list(folds) if fold is None else [fold]
    for place, number in enumerate(numbers, start=1):
        if leader and len(numbers) > 1:
            progress.say(f"fold {number} ({place} of {len(numbers)})")
        outcome = train_fold(
            preset,
            data=data,
            out=out,
            fold=number,
            split=split,
            resume=True,
            init=init,
            machine=machine,
            callbacks=callbacks,
            progress=progress,
        )
        if outcome.signal:
            return CrossValidation(run, signal=outcome.signal)
    if not leader:
        return CrossValidation(run)
    missing = unfinished_folds(run, list(folds), preset.training.max_steps)
    if missing:
        return CrossValidation(run, missing=missing)
    return CrossValidation(run, run.pool_scores(list(folds)))
