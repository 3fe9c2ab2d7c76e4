"""`factorizer train` and `factorizer cross-validate`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from factorizer.commands.bars import ConsoleProgress
from factorizer.commands.console import (
    print_line,
    print_table,
    say,
    scores_table,
)
from factorizer.errors import FactorizerError
from factorizer.training.environment import check_environment
from factorizer.training.signals import Interrupted

if TYPE_CHECKING:
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
            progress=ConsoleProgress(),
        )
        if outcome.signal:
            say("run the same command with --resume to resume")
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

        result = cross_validate(
            settings,
            data=data,
            out=out or default_folder(preset, settings),
            fold=fold,
            split=split,
            init=init,
            machine=Machine(
                device, devices, nodes, precision, accumulate, workers, checkpoint_activations
            ),
            progress=ConsoleProgress(),
        )
        if result.signal:
            say("run the same command to resume")
            raise typer.Exit(128 + result.signal)
        if result.missing:
            listed = ", ".join(map(str, result.missing))
            say(
                f"not finished yet: fold {listed}; when all are, {result.run.scores_file} is "
                "written"
            )
        if result.scores_file is not None:
            print_scores(result.scores_file)


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
