"""`factorizer train` and `factorizer cross-validate`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from factorizer.commands.console import print_line, print_table, say, scores_table, track, user_errors

if TYPE_CHECKING:
    from lightning.pytorch import Callback

    from factorizer.config import Preset


PresetName = Annotated[str, typer.Option("--preset", help="A preset's name, or a YAML file.")]
DataFolder = Annotated[Path, typer.Option("--data", help="The folder of the data set.")]
RunFolder = Annotated[
    Path | None,
    typer.Option("--out", help="The folder of the run, runs/PRESET-SYSTEM unless given; fold K goes to OUT/foldK."),
]
ModelName = Annotated[str | None, typer.Option("--model", help="Another system than the preset's.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a field of the preset; may be repeated."),
]
Split = Annotated[
    Path | None, typer.Option("--split", metavar="FILE", help="A split: CSV with case, fold, or nnU-Net's.")
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
Devices = Annotated[
    int | None,
    typer.Option("--devices", min=1, max=1024, help="Devices per node; those of torchrun or SLURM unless given."),
]
Nodes = Annotated[
    int | None, typer.Option("--nodes", min=1, max=10_000, help="Machines; those of torchrun or SLURM unless given.")
]
Precision = Annotated[str, typer.Option("--precision", help="32, bf16 or 16.")]
Accumulate = Annotated[int, typer.Option("--accumulate", min=1, max=4096, help="Split a step's batch, to save memory.")]
Workers = Annotated[int, typer.Option("--workers", min=0, max=256, help="Processes that prepare patches.")]
Recompute = Annotated[
    bool, typer.Option("--checkpoint-activations", help="Compute activations again instead of keeping them.")
]
Init = Annotated[
    str | None, typer.Option("--init", metavar="RUN/foldK|zoo:NAME", help="Start from a trained model where it fits.")
]
LINE_EVERY = 60  # seconds, where progress goes to a file


def train(
    preset: PresetName,
    data: DataFolder,
    out: RunFolder = None,
    fold: Annotated[int, typer.Option(min=0, max=9_999, help="The fold that is held out.")] = 0,
    model: ModelName = None,
    init: Init = None,
    changes: Changes = None,
    split: Split = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False,
    device: Device = "auto",
    devices: Devices = None,
    nodes: Nodes = None,
    precision: Precision = "32",
    accumulate: Accumulate = 1,
    workers: Workers = 2,
    checkpoint_activations: Recompute = False,
) -> None:
    """Train a model on all folds but one and score it on that one."""
    with user_errors():
        settings = settle(preset, model, changes)
        from factorizer.training.run import train_fold
        from factorizer.training.trainer import Machine, is_leader

        outcome = train_fold(
            settings,
            data=data,
            fold=fold,
            out=out or default_folder(preset, settings),
            split=split,
            resume=resume,
            init=init,
            machine=Machine(device, devices, nodes, precision, accumulate, workers, checkpoint_activations),
            callbacks=[make_progress(settings.training.batch_size)],
            say=say,
            track=track,
        )
        if outcome.finished and is_leader():
            print_scores(outcome.folder / "scores.csv")


def cross_validate(
    preset: PresetName,
    data: DataFolder,
    out: RunFolder = None,
    fold: Annotated[int | None, typer.Option(min=0, max=9_999, help="Only this fold, as one job of an array.")] = None,
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
    with user_errors():
        settings = settle(preset, model, changes)
        from factorizer.training.run import cross_validate
        from factorizer.training.trainer import Machine

        scores = cross_validate(
            settings,
            data=data,
            out=out or default_folder(preset, settings),
            fold=fold,
            split=split,
            init=init,
            machine=Machine(device, devices, nodes, precision, accumulate, workers, checkpoint_activations),
            callbacks=[make_progress(settings.training.batch_size)],
            say=say,
            track=track,
        )
        if scores is not None:
            print_scores(scores)


def default_folder(preset: str, settings: Preset) -> Path:
    """runs/PRESET-SYSTEM."""
    return Path("runs") / f"{Path(preset).stem}-{settings.model.name}"


def settle(preset: str, model: str | None, changes: list[str] | None) -> Preset:
    """The preset with the changes asked for."""
    from factorizer.preset_files import change_preset, load_preset, refuse_idle_options

    changed = change_preset(load_preset(preset), [*([f"model.name={model}"] if model else []), *(changes or [])])
    refuse_idle_options(changed, changes or [])
    return changed


def print_scores(file: Path) -> None:
    """Means over cases, and how many values are undefined: HD95 where one of two masks is empty."""
    from factorizer.evaluation.scores import describe_conventions, read_scores

    print_line(escape(str(file)))
    print_table(scores_table(read_scores(file)))
    print_line(escape(describe_conventions("diagonal")))


def make_progress(batch_size: int) -> Callback:
    """A bar with loss, learning rate, samples per second and time left, and one for each validation."""
    from lightning.pytorch import Callback, LightningModule, Trainer
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    class Bar(Callback):
        bar: Progress | None = None

        def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[state]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self.spoken = time.monotonic()
            if self.bar.console.is_terminal:
                self.bar.start()
            self.training = self.bar.add_task(
                "training", total=trainer.max_steps, completed=trainer.global_step, state=""
            )

        def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
            assert self.bar is not None
            metrics = trainer.callback_metrics
            if "learning_rate" not in metrics:  # the first parts of an accumulated batch
                return
            speed = self.bar.tasks[0].speed or 0.0
            state = f"loss {float(metrics['loss']):.4f}  rate {float(metrics['learning_rate']):.2e}  "
            state += f"{speed * batch_size:.2f} samples/s"
            self.bar.update(self.training, completed=trainer.global_step, state=state)
            if not self.bar.console.is_terminal and time.monotonic() > self.spoken + LINE_EVERY:
                say(f"step {trainer.global_step} of {trainer.max_steps}  {state}")
                self.spoken = time.monotonic()

        def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
            assert self.bar is not None
            cases = len(trainer.datamodule.held_out)
            self.validating = self.bar.add_task("validating", total=cases, state="")

        def on_validation_batch_end(self, *args: Any) -> None:
            assert self.bar is not None
            self.bar.advance(self.validating)

        def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            assert self.bar is not None
            self.bar.remove_task(self.validating)

        def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            self.stop()

        def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
            self.stop()

        def stop(self) -> None:
            if self.bar is not None:
                self.bar.stop()

    return Bar()
