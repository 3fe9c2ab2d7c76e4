"""`factorizer train` and `factorizer cross-validate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from factorizer.commands.console import print_line, print_table, user_errors

if TYPE_CHECKING:
    from lightning.pytorch import Callback

    from factorizer.config import Preset


PresetName = Annotated[str, typer.Option("--preset", help="A preset's name, or a YAML file.")]
DataFolder = Annotated[Path, typer.Option("--data", help="The folder of the data set.")]
RunFolder = Annotated[Path, typer.Option("--out", help="The folder of the run; fold K goes to OUT/foldK.")]
ModelName = Annotated[str | None, typer.Option("--model", help="Another system than the preset's.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a field of the preset; may be repeated."),
]
Split = Annotated[Path | None, typer.Option("--split", metavar="CSV", help="A given split: columns case, fold.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
Precision = Annotated[str, typer.Option("--precision", help="32, bf16 or 16.")]
Accumulate = Annotated[int, typer.Option("--accumulate", min=1, help="Split a step's batch, to save memory.")]
Workers = Annotated[int, typer.Option("--workers", min=0, help="Processes that prepare patches.")]


def train(
    preset: PresetName,
    data: DataFolder,
    out: RunFolder,
    fold: Annotated[int, typer.Option(help="The fold that is held out.")] = 0,
    model: ModelName = None,
    changes: Changes = None,
    split: Split = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False,
    device: Device = "auto",
    precision: Precision = "32",
    accumulate: Accumulate = 1,
    workers: Workers = 2,
) -> None:
    """Train a model on all folds but one and score it on that one."""
    with user_errors():
        settings = settle(preset, model, changes, device)
        from factorizer.training.run import train_fold

        outcome = train_fold(
            settings,
            data=data,
            fold=fold,
            out=out,
            split=split,
            resume=resume,
            device=device,
            precision=precision,
            accumulate=accumulate,
            workers=workers,
            callbacks=[make_progress(settings.training.batch_size)],
            say=say,
        )
        if outcome.finished:
            print_scores(outcome.folder / "scores.csv")


def cross_validate(
    preset: PresetName,
    data: DataFolder,
    out: RunFolder,
    model: ModelName = None,
    changes: Changes = None,
    split: Split = None,
    device: Device = "auto",
    precision: Precision = "32",
    accumulate: Accumulate = 1,
    workers: Workers = 2,
) -> None:
    """Train and score every fold, or go on with it, then pool the scores in OUT/scores.csv."""
    with user_errors():
        settings = settle(preset, model, changes, device)
        from factorizer.training.run import cross_validate

        scores = cross_validate(
            settings,
            data=data,
            out=out,
            split=split,
            device=device,
            precision=precision,
            accumulate=accumulate,
            workers=workers,
            callbacks=[make_progress(settings.training.batch_size)],
            say=say,
        )
        print_scores(scores)


def settle(preset: str, model: str | None, changes: list[str] | None, device: str) -> Preset:
    """The preset with the changes asked for."""
    from factorizer.config import change_preset, load_preset

    if device not in ("auto", "cpu", "cuda", "mps"):
        raise ValueError(f"--device got {device!r}; choose auto, cpu, cuda or mps")
    return change_preset(load_preset(preset), [*([f"model.name={model}"] if model else []), *(changes or [])])


def say(text: str) -> None:
    Console(stderr=True).print(escape(text), soft_wrap=True, highlight=False)


def print_scores(file: Path) -> None:
    """Means over cases, and how many values are undefined: HD95 where one of two masks is empty."""
    from rich.table import Table

    from factorizer.training.score import read_scores, summarize_scores

    print_line(escape(str(file)))
    table = Table("region", "metric", "mean", "cases", "undefined")
    for region, metric, mean, defined, undefined in summarize_scores(read_scores(file)):
        table.add_row(region, metric, f"{mean:.4f}", str(defined), str(undefined))
    print_table(table)


def make_progress(batch_size: int) -> Callback:
    """A bar with loss, learning rate, samples per second and time left."""
    from lightning.pytorch import Callback, LightningModule, Trainer
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    class Bar(Callback):
        def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
            self.bar = Progress(
                TextColumn("training"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[state]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self.bar.start()
            self.task = self.bar.add_task("", total=trainer.max_steps, completed=trainer.global_step, state="")

        def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
            metrics = trainer.callback_metrics
            speed = self.bar.tasks[0].speed or 0.0
            state = f"loss {float(metrics['loss']):.4f}  rate {float(metrics['learning_rate']):.2e}  "
            state += f"{speed * batch_size:.2f} samples/s"
            self.bar.update(self.task, completed=trainer.global_step, state=state)

        def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            self.bar.stop()

        def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
            if hasattr(self, "bar"):
                self.bar.stop()

    return Bar()
