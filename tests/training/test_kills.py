"""A run that is killed at any change of its folder: before the first, between each and the next,
after the last."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from factorizer.data.synthetic import write_synthetic
from testkit.places import TESTS


@pytest.mark.slow
def test_a_run_killed_at_any_change_of_its_folder_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    write_synthetic("isles22", tmp_path / "data", cases=3, size=24, seed=0)
    (tmp_path / "work").mkdir()
    command = [sys.executable, "-m", "testkit.kills", str(tmp_path / "data")]
    command.append(str(tmp_path / "work"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=TESTS)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["killed"] > 30
    assert result["wrong"] == {}
