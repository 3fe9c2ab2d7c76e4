"""`factorizer train` and `factorizer cross-validate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from factorizer.bars import ConsoleProgress
from factorizer.commands import options
from factorizer.commands.console import print_line, print_table, scores_table
from factorizer.commands.stopping import stoppable
from factorizer.terminal import say
from factorizer.training.signals import Interrupted

if TYPE_CHECKING:
    from factorizer.training.train import CrossValidation


def train(
    preset: options.Preset,
    data: options.Data,
    output: options.RunFolder = None,
    fold: options.HeldOutFoldOrAll = "0",
    system: options.System = None,
    init: options.Init = None,
    changes: options.Changes = None,
    split: options.Split = None,
    resume: options.Resume = False,
    device: options.Device = "auto",
    devices: options.Devices = None,
    nodes: options.Nodes = None,
    precision: options.Precision = "32",
    accumulate: options.Accumulate = 1,
    workers: options.Workers = 2,
    checkpoint_activations: options.Recompute = False,
) -> None:
    """Train a model on all folds except one, and score it on that one."""
    with stoppable("stopped; run the same command with --resume to resume"):
        from factorizer.training import train as training

        outcome = training.train(
            preset,
            data=data,
            out=output,
            fold=training.parse_fold(fold),
            system=system,
            changes=changes or (),
            split=split,
            resume=resume,
            init=init,
            machine=training.Machine(
                device, devices, nodes, precision, accumulate, workers, checkpoint_activations
            ),
            progress=ConsoleProgress(),
        )
        raise_if_stopped(outcome.signal)
        if outcome.scores_file is not None:
            print_scores(outcome.scores_file)


def cross_validate(
    preset: options.Preset,
    data: options.Data,
    output: options.RunFolder = None,
    fold: options.HeldOutFoldOrEach = None,
    system: options.System = None,
    init: options.Init = None,
    changes: options.Changes = None,
    split: options.Split = None,
    device: options.Device = "auto",
    devices: options.Devices = None,
    nodes: options.Nodes = None,
    precision: options.Precision = "32",
    accumulate: options.Accumulate = 1,
    workers: options.Workers = 2,
    checkpoint_activations: options.Recompute = False,
) -> None:
    """Train or resume every fold, and score it. Then pool the scores in RUN/scores.csv."""
    with stoppable("stopped; run the same command to resume"):
        from factorizer.training import train as training

        result = training.cross_validate(
            preset,
            data=data,
            out=output,
            fold=fold,
            system=system,
            changes=changes or (),
            split=split,
            init=init,
            machine=training.Machine(
                device, devices, nodes, precision, accumulate, workers, checkpoint_activations
            ),
            progress=ConsoleProgress(),
        )
        print_cross_validation(result)


def print_cross_validation(result: CrossValidation) -> None:
    """Print the pooled scores, or which folds are missing."""
    raise_if_stopped(result.signal)
    if result.missing:
        say_missing(result.missing, result.run.scores_file)
    if result.scores_file is not None:
        print_scores(result.scores_file)


def raise_if_stopped(number: int) -> None:
    """End as a signal ends a command, if a training saved and stopped because of one."""
    if number:
        raise Interrupted(number)


def say_missing(folds: Sequence[int], file: Path) -> None:
    listed = ", ".join(map(str, folds))
    say(f"not finished yet: fold {listed}; {file} is written when all are finished")


def print_scores(file: Path) -> None:
    """Print the means over cases, and how many values are undefined."""
    from factorizer.evaluation.scores import describe_conventions, read_scores

    print_line(escape(str(file)))
    print_table(scores_table(read_scores(file)))
    print_line(escape(describe_conventions("diagonal")))
