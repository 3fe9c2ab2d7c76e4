"""One training run: a folder that describes itself, from the first step to the scores.

OUT/folds.json and OUT/foldK/{config.yaml, run.json, log/metrics.csv, checkpoints/, scores.csv, learning_curve.png}. A
run goes on from its newest readable checkpoint, and is refused where it would replace another.
"""

from __future__ import annotations

import json
import logging
import platform
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import unified_diff
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch import nn

from factorizer import __version__
from factorizer.config import Preset, build_options, to_yaml
from factorizer.data.cache import CaseStore, Settings
from factorizer.data.cases import Cohort, DataError, Problem, select_channels, select_label_values
from factorizer.data.folds import Folds, draw_folds, read_folds, split_fold, write_folds
from factorizer.data.layouts import read_cohort
from factorizer.data.patches import PatchDataset
from factorizer.doctor import cpu_model
from factorizer.files import write_atomically
from factorizer.models.registry import build_model
from factorizer.training.checkpoints import Checkpoints, newest_readable
from factorizer.training.module import PatchStream, Segmentation, WholeCases
from factorizer.training.schedule import warmup_for
from factorizer.training.score import read_scores, score_cases, write_scores

Say = Callable[[str], object]
PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


class RunError(ValueError):
    """A run that cannot start or go on as asked."""


@dataclass(frozen=True)
class Outcome:
    """How a call of `train_fold` ended."""

    folder: Path
    step: int
    finished: bool
    mean_dice: float | None = None


def train_fold(
    preset: Preset,
    *,
    data: Path,
    fold: int,
    out: Path,
    split: Path | None = None,
    resume: bool = False,
    device: str = "auto",
    precision: str = "32",
    accumulate: int = 1,
    workers: int = 2,
    callbacks: Sequence[Callback] = (),
    say: Say = lambda text: None,
) -> Outcome:
    """Train on all folds but one, then score the last weights on that one.

    `precision` is 32, bf16 or 16; `accumulate` splits a step's batch into as many parts, one after the other.
    """
    folder = out / f"fold{fold}"
    check_folder(folder, preset, resume=resume)
    if (folder / "scores.csv").exists():
        say(f"{folder} is finished; its scores are in scores.csv")
        return Outcome(folder, preset.training.max_steps, finished=True)
    cohort = read_cohort(data)
    folds, origin = settle_folds(out / "folds.json", cohort, preset, split)
    training, held_out = split_fold(folds, fold)
    settings = preparation_settings(cohort, preset)
    module = make_module(preset, say)
    store = CaseStore(out / "cache", cohort.cases, settings)
    problems = store.prepare([*training, *held_out])
    for problem in problems:
        say(f"left out: {problem}")
    training, held_out = ([n for n in names if n in store.entries] for names in (training, held_out))
    if not training or not held_out:
        raise RunError(f"no usable case is left {'to train on' if not training else 'in the held-out fold'}")
    write_folds(out / "folds.json", folds, origin=origin)  # from here on the run exists
    write_atomically(folder / "config.yaml", to_yaml(preset))
    (folder / "checkpoints").mkdir(exist_ok=True)
    describe_run(folder, preset, data, {"device": device, "precision": precision, "accumulate": accumulate})
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    checkpoints = Checkpoints(folder / "checkpoints", preset.training.checkpoint_every)
    trainer = make_trainer(
        preset,
        folder,
        [checkpoints, StopOnSigterm(), *callbacks],
        device=device,
        precision=precision,
        accumulate=accumulate,
    )
    start = newest_readable(folder / "checkpoints", say) if resume else None
    say(f"going on from {start}" if start else f"training on {len(training)} cases, {len(held_out)} held out")
    stream = make_stream(preset, store, training, held_out, workers)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"lightning|torch|monai")  # advice that does not apply
        trainer.fit(module, datamodule=stream, ckpt_path=start, weights_only=True)
    if trainer.global_step < preset.training.max_steps:
        checkpoints.save_last(trainer)
        say(f"stopped at step {trainer.global_step} and saved; run the same command with --resume to go on")
        return Outcome(folder, trainer.global_step, finished=False)
    checkpoints.save_last(trainer)
    rows = score_cases(module.network, cohort, held_out, settings, preset, say)
    write_scores(folder / "scores.csv", rows)
    draw_learning_curve(folder)
    dice = [row.value for row in rows if row.metric == "dice"]
    return Outcome(folder, trainer.global_step, finished=True, mean_dice=sum(dice) / len(dice))


def cross_validate(
    preset: Preset, *, data: Path, out: Path, split: Path | None = None, say: Say, **options: Any
) -> Path:
    """Run or go on with every fold, one after the other, then pool their scores in OUT/scores.csv."""
    folds, _ = settle_folds(out / "folds.json", read_cohort(data), preset, split)
    for fold in folds:
        say(f"fold {fold} of {', '.join(map(str, folds))}")
        outcome = train_fold(preset, data=data, fold=fold, out=out, split=split, resume=True, say=say, **options)
        if not outcome.finished:
            raise RunError(f"fold {fold} was stopped; run the same command to go on")
    return pool_scores(out, list(folds))


def pool_scores(out: Path, folds: Sequence[int]) -> Path:
    """One table of all folds, each case from the fold that held it out."""
    missing = [fold for fold in folds if not (out / f"fold{fold}" / "scores.csv").exists()]
    if missing:
        raise RunError(f"the folds {', '.join(map(str, missing))} of {out} are not finished; train them first")
    rows = [row for fold in folds for row in read_scores(out / f"fold{fold}" / "scores.csv")]
    write_scores(out / "scores.csv", sorted(rows, key=lambda row: (row.case, row.region, row.metric)))
    return out / "scores.csv"


def check_folder(folder: Path, preset: Preset, *, resume: bool) -> None:
    """Where the run's folder is there already, it must be this run's and be resumed."""
    file, text = folder / "config.yaml", to_yaml(preset)
    if not file.exists():
        if folder.exists() and any(folder.iterdir()):
            raise RunError(f"{folder} is not empty and no run; give another --out")
        return
    before = file.read_text()
    if before != text:
        changes = unified_diff(before.splitlines(), text.splitlines(), lineterm="", n=0)
        shown = "\n".join(line for line in changes if line[:3] not in ("---", "+++") and line[:2] != "@@")
        raise RunError(f"{folder} is a run with another configuration; give another --out. The difference:\n{shown}")
    if not resume:
        raise RunError(f"{folder} is a run already; go on with --resume, or give another --out")


def settle_folds(file: Path, cohort: Cohort, preset: Preset, split: Path | None) -> tuple[Folds, str]:
    """The folds of this run and where they are from: those written before, those given, or new ones."""
    if file.exists():
        return read_folds(file, cohort.cases), json.loads(file.read_text())["origin"]
    if split is not None:
        return read_folds(split, cohort.cases), f"split {split.name}"
    seed = preset.training.seed
    return draw_folds(cohort.cases, num_folds=preset.training.folds, seed=seed), f"seed {seed}"


def preparation_settings(cohort: Cohort, preset: Preset) -> Settings:
    data = preset.data
    if not cohort.cases:
        raise (
            DataError(*cohort.problems)
            if cohort.problems
            else DataError(Problem("", str(cohort.root), "there is no case", "give the folder of a data set"))
        )
    return Settings(
        select_channels(cohort, data.channels),
        select_label_values(cohort, data.labels),
        data.spacing_mm,
        data.crop_to_nonzero,
        data.normalization,
    )


def make_network(preset: Preset) -> nn.Module:
    """The preset's network with weights drawn from its seed."""
    name = preset.model.name
    torch.manual_seed(preset.training.seed)
    return build_model(name, **build_options(preset, name))


def make_module(preset: Preset, say: Say) -> Segmentation:
    training, inference = preset.training, preset.inference
    warmup = warmup_for(training.max_steps, training.warmup_steps)
    if warmup < training.warmup_steps:
        say(f"warm-up is cut from {training.warmup_steps} to {warmup} steps, a tenth of {training.max_steps}")
    return Segmentation(
        make_network(preset),
        regions=list(preset.data.regions),
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        max_steps=training.max_steps,
        warmup_steps=warmup,
        supervision_weights=training.deep_supervision_weights,
        dice_epsilon=training.dice_epsilon,
        window=preset.data.patch_size,
        overlap=inference.overlap,
        blending=inference.blending,
        threshold=inference.threshold,
        seed=training.seed,
    )


def make_stream(
    preset: Preset, store: CaseStore, training: Sequence[str], held_out: Sequence[str], workers: int
) -> PatchStream:
    data, settings = preset.data, preset.training
    patches = PatchDataset(
        store,
        training,
        length=settings.max_steps * settings.batch_size,
        patch_size=data.patch_size,
        labels=data.labels,
        regions=data.regions,
        seed=settings.seed,
        foreground_fraction=data.foreground_fraction,
        augmentation=data.augmentation,
    )
    whole = WholeCases(store, held_out, data.labels, data.regions)
    return PatchStream(patches, whole, max_steps=settings.max_steps, batch_size=settings.batch_size, workers=workers)


def make_trainer(
    preset: Preset, folder: Path, callbacks: Sequence[Callback], *, device: str, precision: str, accumulate: int
) -> Trainer:
    training = preset.training
    if precision not in PRECISIONS:
        raise RunError(f"precision is {precision!r}; choose {', '.join(PRECISIONS)}")
    return Trainer(
        accelerator={"cuda": "gpu"}.get(device, device),
        devices=1,
        precision=PRECISIONS[precision],
        accumulate_grad_batches=accumulate,
        max_steps=training.max_steps,
        max_epochs=-1,
        val_check_interval=training.validate_every * accumulate,
        check_val_every_n_epoch=None,
        gradient_clip_val=training.gradient_clip,
        callbacks=list(callbacks),
        logger=CSVLogger(folder, name="log", version=""),
        log_every_n_steps=min(10, training.max_steps),
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


class StopOnSigterm(Callback):
    """A polite kill ends training after the step at hand, where a checkpoint is exact.

    It takes the place of Lightning's handler, which may stop anywhere, and which puts back the one before.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        def stop(*_: Any) -> None:
            trainer.should_stop = True

        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, stop)


def describe_run(folder: Path, preset: Preset, data: Path, options: dict[str, Any]) -> None:
    """Append this start to run.json: versions, machine, command and the state of the code."""
    file = folder / "run.json"
    starts = json.loads(file.read_text()) if file.exists() else []
    packages = ("torch", "lightning", "monai", "numpy", "nibabel")
    starts.append(
        {
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": sys.argv,
            "data": str(data),
            "seed": preset.training.seed,
            **options,
            "machine": f"{platform.system()} {platform.machine()}, {cpu_model()}, {torch.get_num_threads()} threads",
            "versions": {
                "factorizer": __version__,
                "python": platform.python_version(),
                **{package: version(package) for package in packages},
            },
            "git": git_state(),
        }
    )
    write_atomically(file, json.dumps(starts, indent=2) + "\n")


def git_state() -> str | None:
    """The commit of the code, if it is a checkout, and whether it was changed."""
    root = Path(__file__).parents[3]
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def draw_learning_curve(folder: Path) -> None:
    from factorizer.training.curve import draw_curve

    log = folder / "log" / "metrics.csv"
    if log.exists():
        write_atomically(folder / "learning_curve.png", draw_curve(log))
