"""`factorizer train` and `factorizer cross-validate`."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from factorizer.commands.console import (
    print_line,
    print_table,
    say,
    scores_table,
    track,
)
from factorizer.errors import FactorizerError
from factorizer.training.environment import check_environment
from factorizer.training.signals import Interrupted

if TYPE_CHECKING:
    from lightning.pytorch import Callback, Trainer

    from factorizer.config import Preset


PresetName = Annotated[str, typer.Option("--preset", help="A preset's name, or a YAML file.")]
DataFolder = Annotated[
    Path, typer.Option("--data", help="The folder of the data set, or a CSV or JSON list.")
]
RunFolder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="The folder of the run, runs/PRESET-SYSTEM unless given; fold K goes to OUT/foldK.",
    ),
]
ModelName = Annotated[str | None, typer.Option("--model", help="Another system than the preset's.")]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Change a field of the preset; may be repeated."
    ),
]
Split = Annotated[
    Path | None,
    typer.Option("--split", metavar="FILE", help="A split: CSV with case, fold, or nnU-Net's."),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
Devices = Annotated[
    int | None,
    typer.Option(
        "--devices",
        min=1,
        max=1024,
        help="Devices per node; those of torchrun or SLURM unless given.",
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(
        "--nodes", min=1, max=10_000, help="Machines; those of torchrun or SLURM unless given."
    ),
]
Precision = Annotated[str, typer.Option("--precision", help="32, bf16 or 16.")]
Accumulate = Annotated[
    int, typer.Option("--accumulate", min=1, max=4096, help="Split a step's batch, to save memory.")
]
Workers = Annotated[
    int, typer.Option("--workers", min=0, max=256, help="Processes that prepare patches.")
]
Recompute = Annotated[
    bool,
    typer.Option(
        "--checkpoint-activations", help="Compute activations again instead of keeping them."
    ),
]
Init = Annotated[
    str | None,
    typer.Option(
        "--init", metavar="RUN/foldK|zoo:NAME", help="Start from a trained model where it fits."
    ),
]
FIRST_LINE, LINE_EVERY = 15, 60  # seconds, where progress goes to a file


def train(
    preset: PresetName,
    data: DataFolder,
    out: RunFolder = None,
    fold: Annotated[
        str,
        typer.Option(
            help="The fold that is held out; all: none, to train on every case, without scores."
        ),
    ] = "0",
    model: ModelName = None,
    init: Init = None,
    changes: Changes = None,
    split: Split = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was interrupted.")
    ] = False,
    device: Device = "auto",
    devices: Devices = None,
    nodes: Nodes = None,
    precision: Precision = "32",
    accumulate: Accumulate = 1,
    workers: Workers = 2,
    checkpoint_activations: Recompute = False,
) -> None:
    """Train a model on all folds but one and score it on that one."""
    with stoppable("run the same command with --resume to resume"):
        check_environment(devices)
        settings = settle(preset, model, changes)
        say_if_long(settings, data, device, resume)
        from factorizer.training.run import train_fold
        from factorizer.training.trainer import Machine, is_leader

        outcome = train_fold(
            settings,
            data=data,
            fold=parse_fold(fold),
            out=out or default_folder(preset, settings),
            split=split,
            resume=resume,
            init=init,
            machine=Machine(
                device, devices, nodes, precision, accumulate, workers, checkpoint_activations
            ),
            callbacks=[make_progress(settings.training.batch_size)],
            say=say,
            track=track,
        )
        if outcome.signal:
            raise typer.Exit(128 + outcome.signal)
        if is_leader() and fold != "all":
            print_scores(outcome.folder / "scores.csv")
        elif is_leader():
            say(f"trained on all cases; predict with --run {outcome.folder}")


def cross_validate(
    preset: PresetName,
    data: DataFolder,
    out: RunFolder = None,
    fold: Annotated[
        int | None, typer.Option(min=0, max=9_999, help="Only this fold, as one job of an array.")
    ] = None,
    model: ModelName = None,
    init: Init = None,
    changes: Changes = None,
    split: Split = None,
    device: Device = "auto",
    devices: Devices = None,
    nodes: Nodes = None,
    precision: Precision = "32",
    accumulate: Accumulate = 1,
    workers: Workers = 2,
    checkpoint_activations: Recompute = False,
) -> None:
    """Train and score every fold, or go on with it, then pool the scores in OUT/scores.csv."""
    with stoppable("run the same command to resume"):
        check_environment(devices)
        settings = settle(preset, model, changes)
        say_if_long(settings, data, device)
        from factorizer.training.run import cross_validate
        from factorizer.training.trainer import Machine

        scores = cross_validate(
            settings,
            data=data,
            out=out or default_folder(preset, settings),
            fold=fold,
            split=split,
            init=init,
            machine=Machine(
                device, devices, nodes, precision, accumulate, workers, checkpoint_activations
            ),
            callbacks=[make_progress(settings.training.batch_size)],
            say=say,
            track=track,
        )
        if scores is not None:
            print_scores(scores)


@contextmanager
def stoppable(again: str) -> Iterator[None]:
    """End with the exit code of a shell, 130 for Ctrl-C and 143 for SIGTERM, and say how to resume.

    So it is wherever the signal comes: while cases are read or scored too. Training itself saves
    first.
    """

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted(number)

    heard = (
        (signal.SIGINT, signal.SIGTERM)
        if threading.current_thread() is threading.main_thread()
        else ()
    )
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        yield
    except Interrupted as stop:
        if not stop.said:
            say(f"stopped; {again}")
        raise typer.Exit(128 + stop.number) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def default_folder(preset: str, settings: Preset) -> Path:
    """runs/PRESET-SYSTEM."""
    return Path("runs") / f"{Path(preset).stem}-{settings.model.name}"


def parse_fold(text: str) -> int | Literal["all"]:
    """all, or the number of a fold."""
    if text == "all":
        return "all"
    if not (text.isascii() and text.isdigit()):
        raise FactorizerError(f"--fold got {text!r}; give the number of a fold, or all")
    return int(text)


def settle(preset: str, model: str | None, changes: list[str] | None) -> Preset:
    """The preset with the changes asked for."""
    from factorizer.preset_files import change_preset, load_preset, refuse_idle_options

    changed = change_preset(
        load_preset(preset), [*([f"model.name={model}"] if model else []), *(changes or [])]
    )
    refuse_idle_options(changed, changes or [])
    return changed


def say_if_long(settings: Preset, data: Path, device: str, resume: bool = False) -> None:
    """Before anything is done, tell of a training that takes days on a CPU, and what to do
    instead."""
    import torch

    from factorizer.hardware import choose_device
    from factorizer.training.budget import warn_of_long_training
    from factorizer.training.trainer import is_leader

    if resume or not is_leader() or choose_device(device).type != "cpu":
        return
    warning = warn_of_long_training(settings, data, torch.get_num_threads())
    if warning:
        say(warning)


def print_scores(file: Path) -> None:
    """Means over cases, and how many values are undefined: HD95 where one of two masks is empty."""
    from factorizer.evaluation.scores import describe_conventions, read_scores

    print_line(escape(str(file)))
    print_table(scores_table(read_scores(file)))
    print_line(escape(describe_conventions("diagonal")))


def make_progress(batch_size: int) -> Callback:
    """A bar with loss, learning rate, samples per second and time left, and one for each
    validation.

    Where standard error is no terminal there is a line instead, the first within a minute."""
    from lightning.pytorch import Callback, LightningModule
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from factorizer.training.time_left import TimeLeft

    class Bar(Callback):
        bar: Progress | None = None

        def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[state]}"),
                console=Console(stderr=True),
            )
            self.next_line = time.monotonic() + FIRST_LINE
            self.left = TimeLeft(
                step=trainer.global_step,
                max_steps=trainer.max_steps,
                validate_every=max(
                    1, int(trainer.val_check_interval) // trainer.accumulate_grad_batches
                ),
                batch_size=batch_size,
                windows=sum(pl_module.sliding.count(shape) for shape in held_out_shapes(trainer)),
            )
            if self.bar.console.is_terminal:
                self.bar.start()
            self.training = self.bar.add_task(
                "training", total=trainer.max_steps, completed=trainer.global_step, state=""
            )

        def on_train_batch_end(
            self, trainer: Trainer, pl_module: LightningModule, *args: Any
        ) -> None:
            assert self.bar is not None
            metrics = trainer.callback_metrics
            if "learning_rate" not in metrics:  # the first parts of an accumulated batch
                return
            now = time.monotonic()
            self.left.end_step(trainer.global_step, now)
            state = f"loss {float(metrics['loss']):.4f}  rate {float(metrics['learning_rate']):.2e}"
            if self.left.step_seconds is not None:
                state += (
                    f"  {batch_size / self.left.step_seconds:.2f} samples/s  {self.left.text()}"
                )
            self.bar.update(self.training, completed=trainer.global_step, state=state)
            if not self.bar.console.is_terminal and now > self.next_line:
                say(f"step {trainer.global_step:,} of {trainer.max_steps:,}  {state}")
                self.next_line = now + LINE_EVERY

        def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
            assert self.bar is not None
            self.validation_start = time.monotonic()
            cases = len(trainer.datamodule.held_out)
            self.validating = self.bar.add_task("validating", total=cases, state="")

        def on_validation_batch_end(self, *args: Any) -> None:
            assert self.bar is not None
            self.bar.advance(self.validating)

        def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            assert self.bar is not None
            self.left.end_validation(time.monotonic() - self.validation_start)
            self.bar.remove_task(self.validating)

        def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            self.stop()

        def on_exception(
            self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
        ) -> None:
            self.stop()

        def stop(self) -> None:
            if self.bar is not None:
                self.bar.stop()

    return Bar()


def held_out_shapes(trainer: Trainer) -> list[tuple[int, ...]]:
    """The shapes of the images that a validation predicts."""
    held_out = trainer.datamodule.held_out
    return [held_out.store.open(name)[1].shape for name in held_out.names]
