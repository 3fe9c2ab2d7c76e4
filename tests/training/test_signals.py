"""Signals that come at an awkward time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from lightning.pytorch import Callback

from testkit.runs import CPU, At, assert_same, run

pytestmark = pytest.mark.slow  # most of these train, or read real data


class During(Callback):
    """Do something within a step."""

    def __init__(self, step: int, action) -> None:
        self.step, self.action = step, action

    def on_train_batch_start(self, trainer, *_: object) -> None:
        if trainer.global_step == self.step - 1:
            self.action()


def test_a_polite_kill_in_a_step_that_is_validated_comes_after_the_validation(
    strokes: Path, whole: Path, tmp_path: Path
) -> None:
    """Otherwise the log would lack its row: a run that is resumed does not validate the step
    again."""
    stop = During(3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert run(strokes, tmp_path / "run", callbacks=[stop]).step == 3
    outcome = run(strokes, tmp_path / "run", resume=True)
    assert_same(whole, outcome.folder)
    assert (outcome.folder / "log" / "metrics.csv").read_text() == (
        whole / "log" / "metrics.csv"
    ).read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_is_no_less_polite(
    strokes: Path, tmp_path: Path, number: int
) -> None:
    """As a cluster or a terminal sends it."""

    def signal_all() -> None:
        workers = multiprocessing.active_children()
        assert workers
        every = [str(process.pid) for process in workers] + [str(os.getpid())]
        subprocess.run(
            ["kill", f"-{int(number)}", *every], check=True
        )  # by another process than the parent

    two = replace(CPU, workers=2)
    outcome = run(strokes, tmp_path / "run", callbacks=[At(3, signal_all)], machine=two)
    assert not outcome.finished
    assert outcome.step == 4
    assert not multiprocessing.active_children()
