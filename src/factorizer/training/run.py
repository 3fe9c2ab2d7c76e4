"""One training run, from the first step to the scores.

A run goes on from its newest readable checkpoint, and is refused where it would replace another. Under several
processes all of them train; the first prepares, writes and speaks.
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
from torch import nn

from factorizer.config import Preset
from factorizer.data.cache import CaseStore, Settings, settings_for
from factorizer.data.cases import Cohort, list_some, note_renamed_labels
from factorizer.data.folds import Folds, split_fold, write_folds
from factorizer.data.layouts import read_cohort
from factorizer.evaluation.scores import Score, write_scores
from factorizer.files import write_atomically
from factorizer.inference.load import find_models, load_what_fits, make_network, read_weights, trained_on
from factorizer.inference.predictor import Predictor
from factorizer.inference.score import score_case
from factorizer.inference.sliding import Sliding
from factorizer.nn.unet import UNet
from factorizer.preset_files import ZOO
from factorizer.training.activations import checkpoint_activations
from factorizer.training.checkpoints import Checkpoints, newest_readable
from factorizer.training.folder import (
    RunError,
    check_cases,
    check_folder,
    check_siblings,
    claim_folder,
    describe_end,
    describe_start,
    is_finished,
    pool_scores,
    read_starts,
    settle_folds,
    unfinished_folds,
)
from factorizer.training.module import PatchStream, Segmentation, gather
from factorizer.training.schedule import warmup_for
from factorizer.training.trainer import Machine, StopOnSignal, Stopped, is_leader, make_trainer

Say = Callable[[str], object]
Track = Callable[[Sequence[Any], str], Iterable[Any]]  # some items and what is done with them -> the same items


@dataclass(frozen=True)
class Outcome:
    """How a call of `train_fold` ended."""

    folder: Path
    step: int
    finished: bool
    mean_dice: float | None = None


def be_silent(text: str) -> None:
    pass


def show_nothing(items: Sequence[Any], label: str) -> Iterable[Any]:
    return items


def train_fold(
    preset: Preset,
    *,
    data: Path,
    fold: int,
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
    """Train on all folds but one, then score the last weights on that one.

    `init` is a trained model (a fold's folder, or zoo:NAME) whose weights are taken over where they fit.
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
        say(f"{folder} is finished; its scores are in scores.csv")
        return Outcome(folder, preset.training.max_steps, finished=True)
    cohort = read_cohort(data, mask_suffix=preset.data.mask_suffix)
    folds, origin = settle_folds(out / "folds.json", cohort, preset, split)
    for remark in remarks_on(cohort, folds, preset):
        say(remark)
    training, held_out = split_fold(folds, fold)
    settings = settings_for(cohort, preset.data)
    start, step = newest_readable(folder / "checkpoints", say) if resume else (None, 0)
    checkpoints = Checkpoints(folder / "checkpoints", preset.training.checkpoint_every)
    callbacks = [checkpoints, StopOnSignal(checkpoints), *callbacks]
    trainer = make_trainer(preset.training, folder, callbacks, machine, step)
    init = settle_init(folder, init)
    source = init if start is None else None  # later it is not needed any more
    if source is not None:
        warn_of_known_cases(source, held_out, say)
    module = make_module(preset, machine, source, say)
    store = CaseStore(out / "cache", cohort.cases, settings)
    stream = PatchStream(preset, store, training, held_out, machine.workers)
    with hold(out, fold) if leader else nullcontext():
        if leader:
            check_folder(folder, preset, resume=resume)  # again, as another process may have been here meanwhile
            prepare_cases(store, training, held_out, say, track)
            check_cases(folder, store.entries)
            if not (out / "folds.json").exists():
                write_folds(out / "folds.json", folds, origin=origin)  # from here on the run exists
            extension = claim_folder(folder, preset)
            if extension:
                say(extension)
            describe_start(folder, preset, data, {"init": init, **asdict(machine), "processes": trainer.world_size})
        usable = [sum(name in store.entries for name in names) for names in (training, held_out)]
        say(f"going on from {start}" if start else f"training on {usable[0]} cases, {usable[1]} held out")
        prepared = time.monotonic()
        stopped = fit(trainer, module, stream, start)
        trained = time.monotonic()
        seconds = {"preparing": prepared - started, "training": trained - prepared}
        if stopped:
            if leader:
                describe_end(folder, step=trainer.global_step, seconds=rounded(seconds))
            say(f"stopped at step {trainer.global_step} and saved; {again}")
            return Outcome(folder, trainer.global_step, finished=False)
        checkpoints.save_last(trainer)
        rows = score_held_out(trainer, module, preset, cohort, stream.held_out.names, settings, track)
        if leader:
            write_scores(folder / "scores.csv", rows)
            draw_learning_curve(folder)
            seconds["scoring"] = time.monotonic() - trained
            describe_end(folder, step=trainer.global_step, seconds=rounded(seconds))
    mean_dice = fmean(row.value for row in rows if row.metric == "dice")
    return Outcome(folder, trainer.global_step, finished=True, mean_dice=mean_dice)


def remarks_on(cohort: Cohort, folds: Folds, preset: Preset) -> Iterator[str]:
    """What a user should know of the data before they are trained on; cases are looked at one by one later."""
    names = {case.name for case in cohort.cases}
    yield from (str(problem) for problem in cohort.problems if problem.case not in names)
    others = len(names) - sum(map(len, folds.values()))
    if others:
        yield f"{others} cases of {cohort.root} are in no fold of this run (unlabelled, or new), and are left out"
    yield from map(str, note_renamed_labels(cohort, preset.data.labels))


@contextmanager
def hold(out: Path, fold: int) -> Iterator[None]:
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


def settle_init(folder: Path, init: str | None) -> str | None:
    """Where the first weights are from: as given, or as when the run began."""
    resolved = init if init is None or init.startswith(ZOO) else str(Path(init).absolute())
    starts = read_starts(folder)
    before = starts[0].get("init") if starts else None
    if starts and resolved not in (None, before):
        raise RunError(f"{folder} was begun with --init {before}; leave the option out, or give another --out")
    return resolved if not starts else before


def warn_of_known_cases(init: str, held_out: Sequence[str], say: Say) -> None:
    known = len(trained_on(find_models(init)) & set(held_out))
    if known:
        say(
            f"{known} of the {len(held_out)} held-out cases have names of cases that {init} was trained on: if they "
            "are the same, scores will be too good; give a fold that held them out"
        )


def fit(trainer: Trainer, module: Segmentation, stream: PatchStream, start: Path | None) -> bool:
    """Train to the end, or until a signal stops the run: then True."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"lightning|torch|monai")  # advice that does not apply
        try:
            trainer.fit(module, datamodule=stream, ckpt_path=start, weights_only=True)
        except Stopped:
            return True
    return False


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
    """Run or go on with every fold, one after the other, or with one; when all are there, pool their scores.

    Returns OUT/scores.csv, or None while other folds are missing.
    """
    cohort = read_cohort(data, mask_suffix=preset.data.mask_suffix)
    folds, _ = settle_folds(out / "folds.json", cohort, preset, split)
    leader = is_leader()
    for number in folds if fold is None else [fold]:
        if leader:
            say(f"fold {number} of {', '.join(map(str, folds))}")
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
        if not outcome.finished:
            return None
    if not leader:
        return None
    missing = unfinished_folds(out, list(folds), preset)
    if missing:
        say(f"the folds {', '.join(map(str, missing))} are not finished; when they are, {out}/scores.csv is written")
        return None
    return pool_scores(out, list(folds), preset)


def prepare_cases(store: CaseStore, training: Sequence[str], held_out: Sequence[str], say: Say, track: Track) -> None:
    """Preprocess what is to be used; a case that cannot be is named and left out."""
    for problem in store.prepare([*training, *held_out], track=lambda done: track(done, "preparing cases")):
        say(f"left out: {problem}" if problem.severity == "error" else f"warning: {problem}")
    for names, purpose in ((training, "to train on"), (held_out, "in the held-out fold")):
        if not any(name in store.entries for name in names):
            raise RunError(f"no usable case is left {purpose}")


def make_module(preset: Preset, machine: Machine, init: str | None, say: Say) -> Segmentation:
    training, inference = preset.training, preset.inference
    if training.validate_every > training.max_steps:
        say(f"validation is at the end, after {training.max_steps} steps (validate_every is {training.validate_every})")
    warmup = warmup_for(training.max_steps, training.warmup_steps)
    if warmup < training.warmup_steps:
        say(f"warm-up is cut from {training.warmup_steps} to {warmup} steps, a tenth of {training.max_steps}")
    network = make_network(preset)
    weights = training.deep_supervision_weights
    if isinstance(network, UNet) and len(network.heads) > len(weights):
        raise RunError(
            f"the model has {len(network.heads)} outputs, but there are {len(weights)} weights; "
            "give training.deep_supervision_weights one for each"
        )
    if init is not None:
        initialize(network, init, say)
    if machine.checkpoint_activations:
        checkpoint_activations(network)
    return Segmentation(
        network,
        regions=list(preset.data.regions),
        optimizer=training.optimizer,
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        max_steps=training.max_steps,
        warmup_steps=warmup,
        supervision_weights=training.deep_supervision_weights,
        dice_epsilon=training.dice_epsilon,
        sliding=Sliding(preset.data.patch_size, inference.overlap, inference.blending),
        threshold=inference.threshold,
        seed=training.seed,
    )


def initialize(network: nn.Module, source: str, say: Say) -> None:
    """Take over a trained model's weights where they fit, and say what does not."""
    (folder,) = find_models(source)
    loaded, drawn = load_what_fits(network, read_weights(folder))
    matrices = {name for name, p in network.named_parameters() if p.ndim > 1}  # a bias or a seed may fit by chance
    if not matrices & set(loaded):
        raise RunError(f"no weight of {source} fits this network; give a model of the same system and widths")
    say(f"loaded from {source}: {len(loaded)} of {len(loaded) + len(drawn)} weights")
    say(f"drawn anew: {list_some(drawn) or 'none'}")


def score_held_out(
    trainer: Trainer,
    module: Segmentation,
    preset: Preset,
    cohort: Cohort,
    names: Sequence[str],
    settings: Settings,
    track: Track,
) -> list[Score]:
    """The scores of the last weights, from all processes, by case."""
    predictor = Predictor(preset, [module.network], device=trainer.strategy.root_device)
    tracked = track(names, "scoring the held-out cases")
    scored = gather(trainer, {name: score_case(predictor, cohort.case(name), settings) for name in tracked})
    return [row for case in sorted(scored) for row in scored[case]]


def rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in seconds.items()}


def draw_learning_curve(folder: Path) -> None:
    from factorizer.training.curve import draw_curve

    log = folder / "log" / "metrics.csv"
    if log.exists():
        write_atomically(folder / "learning_curve.png", draw_curve(log))
