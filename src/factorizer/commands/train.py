"""`factorizer train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from factorizer.commands.console import print_line, user_errors

if TYPE_CHECKING:
    from lightning.pytorch import Callback


def train(
    preset: Annotated[str, typer.Option(help="A preset's name, or a YAML file.")],
    data: Annotated[Path, typer.Option(help="The folder of the data set.")],
    out: Annotated[Path, typer.Option(help="The folder of the run; fold K goes to OUT/foldK.")],
    fold: Annotated[int, typer.Option(help="The fold that is held out.")] = 0,
    model: Annotated[str | None, typer.Option(help="Another system than the preset's.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a field of the preset; may be repeated."),
    ] = None,
    split: Annotated[Path | None, typer.Option(metavar="CSV", help="A given split: columns case, fold.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    workers: Annotated[int, typer.Option(min=0, help="Processes that prepare patches.")] = 2,
) -> None:
    """Train a model on all folds but one and score it on that one."""
    with user_errors():
        from factorizer.config import change_preset, load_preset

        if device not in ("auto", "cpu", "cuda", "mps"):
            raise ValueError(f"--device got {device!r}; choose auto, cpu, cuda or mps")
        changes = [*([f"model.name={model}"] if model else []), *(set_ or [])]
        settings = change_preset(load_preset(preset), changes)
        from factorizer.training.run import train_fold

        outcome = train_fold(
            settings,
            data=data,
            fold=fold,
            out=out,
            split=split,
            resume=resume,
            device=device,
            workers=workers,
            callbacks=[make_progress(settings.training.batch_size)],
            say=lambda text: Console(stderr=True).print(escape(text), soft_wrap=True, highlight=False),
        )
    if outcome.mean_dice is not None:
        print_line(f"{escape(str(outcome.folder))}: mean Dice {outcome.mean_dice:.4f} on the held-out fold")


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
