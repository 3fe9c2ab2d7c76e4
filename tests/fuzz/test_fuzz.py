"""Hostile inputs for every reader, from a fixed seed: each gets the right answer. `make fuzz`
tries others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).with_name("fuzz.py")
FEWEST = 500


@pytest.mark.slow
def test_no_hostile_input_is_taken_wrongly(tmp_path: Path) -> None:
    """No traceback, no hang, no more than 2 GiB, and no success where the right answer is a
    refusal."""
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, FUZZ, "--seed", "0", "--json", report], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    tally = json.loads(report.read_text())
    assert tally["failures"] == []
    assert tally["attacks"] >= FEWEST
