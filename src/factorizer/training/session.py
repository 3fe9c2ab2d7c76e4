"""The training of one fold, from the first step to the scores.

A training resumes from its newest readable checkpoint. It is refused if it would replace another.
If several processes train together, the first one prepares, writes and reports.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import torch
from lightning.pytorch import Callback, Trainer

from factorizer.config import Preset
from factorizer.data.cache import CaseStore
from factorizer.errors import RunError
from factorizer.evaluation.scores import Score
from factorizer.files import write_atomically
from factorizer.hardware import GIB
from factorizer.progress import SILENT, Progress
from factorizer.runs.fold import ALL, Fold, FoldNumber
from factorizer.runs.records import describe_start, with_end
from factorizer.runs.run import Run
from factorizer.training.begin import make_module, settle_init, warn_of_known_cases
from factorizer.training.checkpoints import (
    REMEDY,
    Checkpoints,
    arose_in_checkpoint,
    newest_readable,
)
from factorizer.training.consistency import (
    check_cases,
    check_folder,
    check_siblings,
    claim_folder,
)
from factorizer.training.log import read_log
from factorizer.training.machine import Machine
from factorizer.training.memory_need import check_memory, is_out_of_memory
from factorizer.training.module import Segmentation
from factorizer.training.report import ReportProgress
from factorizer.training.scoring import Scoring
from factorizer.training.stop import StopOnSignal, Stopped
from factorizer.training.stream import PatchStream
from factorizer.training.trainer import is_leader, make_trainer, validation_interval
from factorizer.training.training_cases import TrainingCases, gather_cases, prepare_cases
from factorizer.words import count

SHOWN = 200  # characters of an error that is not ours


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Attributes:
        fold: The fold that was trained.
        step: The steps that are made.
        finished: Whether it made all its steps and has its scores.
        mean_dice: The mean over the held-out cases and regions. None without held-out cases.
        scores_file: The scores of the held-out cases. None in all processes except the first.
        signal: The signal that stopped it, or 0.
    """

    fold: Fold
    step: int
    finished: bool
    mean_dice: float | None = None
    scores_file: Path | None = None
    signal: int = 0

    @property
    def folder(self) -> Path:
        return self.fold.path


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

    This is the inner part of `train`. It takes the preset as it is. The fold goes to OUT/foldK.
    `callbacks` are further callbacks for Lightning's trainer. The other arguments are those of
    `train`.

    Example:
        >>> quick = ["training.max_steps=2", "training.folds=2", "model.widths=[8,16]"]
        >>> quick += ["data.patch_size=[16,16,16]"]
        >>> preset = factorizer.change_preset(factorizer.load_preset("isles22"), quick)
        >>> outcome = factorizer.train_fold(preset, data=Path("strokes"), out=Path("runs/quick"))
        >>> str(outcome.folder)
        'runs/quick/fold0'
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
        return outcome_of(place, preset.training.max_steps, known_scores(place))
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


def known_scores(fold: Fold) -> list[Score]:
    """The scores of a fold that is finished."""
    return [] if fold.number == ALL else fold.scores()


def find_checkpoint(fold: Fold, preset: Preset, progress: Progress) -> Checkpoint:
    """The checkpoint that a fold resumes from."""
    file, step = newest_readable(fold, progress)
    most = preset.training.max_steps
    if step > most:
        raise RunError(
            f"{file} was saved at step {step}, beyond training.max_steps, {most}; {REMEDY}"
        )
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
        training = preset.training
        held_out = bool(cases.held_out)
        self.checkpoints = Checkpoints(
            fold,
            every=training.checkpoint_every,
            validate_every=validation_interval(training) if held_out else None,
            start_step=start.step,
        )
        report = ReportProgress(progress, training.batch_size)
        self.trainer = make_trainer(
            training,
            fold,
            [self.checkpoints, StopOnSignal(self.checkpoints), report, *callbacks],
            machine,
            start_step=start.step,
            held_out=held_out,
        )
        need = check_memory(preset, machine)
        self.store = CaseStore(fold.run.cache, cases.cohort.cases, cases.preparation)
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
        scoring = Scoring(self.preset, self.cases.cohort, self.cases.preparation)
        scoring.score_while_validating(self.trainer, module)
        signal = fit(self.trainer, module, self.stream, self.start.file)
        trained = time.monotonic()
        seconds = {"preparing": prepared - started, "training": trained - prepared}
        step = self.trainer.global_step
        if signal:
            self.write_end(seconds)
            self.progress.say(f"saved at step {step}")
            return Outcome(self.fold, step, finished=False, signal=signal)
        self.checkpoints.save_last(self.trainer)
        names = self.stream.held_out.names
        rows = scoring.scores(self.trainer, module, names, self.progress)
        if is_leader():
            draw_learning_curve(self.fold)
        seconds["scoring"] = time.monotonic() - trained
        self.write_end(seconds)
        if not self.cases.held_out:
            self.progress.say(f"trained on all cases; the model is {self.fold.path}")
        elif is_leader():
            self.fold.write_scores(rows)  # last: with them the fold is finished
        return outcome_of(self.fold, step, rows)

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


def outcome_of(fold: Fold, step: int, rows: Sequence[Score]) -> Outcome:
    """The outcome of a fold that is finished. Only the first process names the file of scores."""
    dices = [row.value for row in rows if row.metric == "dice"]
    mean_dice = fmean(dices) if dices else None
    scores_file = fold.scores_file if rows and is_leader() else None
    return Outcome(fold, step, finished=True, mean_dice=mean_dice, scores_file=scores_file)


def fit(trainer: Trainer, module: Segmentation, stream: PatchStream, start: Path | None) -> int:
    """Train to the end, or until a signal stops it. Return the signal's number, or 0."""
    try:
        with warnings.catch_warnings():
            # their advice does not apply here
            warnings.filterwarnings("ignore", module=r"lightning|torch|monai")
            trainer.fit(module, datamodule=stream, ckpt_path=start, weights_only=True)
    except Stopped as stop:
        return stop.number
    except Exception as error:
        if is_out_of_memory(error):
            raise RunError(
                f"there is not enough memory at step {trainer.global_step}; lower "
                "data.patch_size, training.batch_size, model.widths or model.rank"
            ) from error
        if not arose_in_checkpoint(error):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:SHOWN]
        raise RunError(f"{start} cannot be resumed from ({reason}); {REMEDY}") from error
    return 0


def draw_learning_curve(fold: Fold) -> None:
    from factorizer.figures.curve import draw_curve

    if fold.log_file.exists():
        write_atomically(fold.curve_file, draw_curve(read_log(fold.log_file)))
