"""The example scripts run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testkit.places import ROOT


@pytest.mark.slow
def test_the_python_api(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "python_api.py"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "swin-factorizer against nnunet: dice" in done.stdout
