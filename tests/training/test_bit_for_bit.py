"""Runs that were interrupted, and end as if they had not been."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from factorizer.preset_files import change_preset
from testkit.places import TESTS
from testkit.runs import CPU, PRESET, At, Samples, assert_same, crash, run, weights

pytestmark = pytest.mark.slow  # most of these train, or read real data

KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from testkit import runs as t
kill = t.At(5, lambda: os.kill(os.getpid(), signal.SIGKILL))
t.run(t.Path(sys.argv[1]), t.Path(sys.argv[2]), callbacks=[kill])
"""


def test_a_run_of_muon_goes_on_bit_for_bit(strokes: Path, tmp_path: Path) -> None:
    preset = change_preset(PRESET, ["training.optimizer=muon", "training.learning_rate=0.002"])
    whole = run(strokes, tmp_path / "whole", preset).folder
    with pytest.raises(RuntimeError, match="power cut"):
        run(strokes, tmp_path / "run", preset, callbacks=[At(3, crash)])
    assert_same(whole, run(strokes, tmp_path / "run", preset, resume=True).folder)


def test_a_run_that_was_killed_goes_on_bit_for_bit(
    strokes: Path, whole: Path, tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-c",
        KILLED,
        str(strokes),
        str(tmp_path / "run"),
        str(TESTS),
    ]
    assert subprocess.run(command, capture_output=True, timeout=300).returncode == -signal.SIGKILL
    seen = Samples()
    outcome = run(strokes, tmp_path / "run", resume=True, callbacks=[seen])
    assert seen.indices == [8, 9, 10, 11]  # steps 4 and 5, from the checkpoint of step 4
    assert_same(whole, outcome.folder)


@pytest.mark.parametrize(("before", "after"), [(2, 2), (1, 2), (2, 1)])
def test_a_run_goes_on_with_batches_split_in_another_way(
    strokes: Path, tmp_path: Path, before: int, after: int
) -> None:
    still = change_preset(PRESET, ["model.dropout=0.0", "training.checkpoint_every=3"])
    expected = weights(
        run(strokes, tmp_path / "whole", still, machine=replace(CPU, accumulate=after)).folder
    )
    with pytest.raises(RuntimeError, match="power cut"):
        run(
            strokes,
            tmp_path / "run",
            still,
            machine=replace(CPU, accumulate=before),
            callbacks=[At(4, crash)],
        )
    seen = Samples()
    outcome = run(
        strokes,
        tmp_path / "run",
        still,
        resume=True,
        machine=replace(CPU, accumulate=after),
        callbacks=[seen],
    )
    assert seen.indices == [6, 7, 8, 9, 10, 11]
    found = weights(outcome.folder)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-3, atol=1e-5)
    steps = [
        int(row["step"])
        for row in csv.DictReader((outcome.folder / "log" / "metrics.csv").read_text().splitlines())
        if row["val_dice"]
    ]
    assert steps == [2, 5]


def test_the_log_of_before_is_kept(strokes: Path, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="power cut"):
        run(strokes, tmp_path / "run", callbacks=[At(5, crash)])
    log = tmp_path / "run" / "fold1" / "log" / "metrics.csv"
    log.write_text(log.read_text() + "0,0.5")  # a line cut short
    run(strokes, tmp_path / "run", resume=True)
    steps = [
        (row["step"], bool(row["val_dice"])) for row in csv.DictReader(log.read_text().splitlines())
    ]
    assert steps == [("2", True), ("5", False), ("5", True)]
