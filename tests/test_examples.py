"""The example scripts run."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.places import ROOT


def test_the_demo_uses_the_public_library() -> None:
    """A handful of modules, none of them from the commands."""
    tree = ast.parse((ROOT / "examples" / "demo.py").read_text())
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("factorizer."):
            modules.add(node.module)
    assert len(modules) <= 5
    assert not [name for name in modules if name.startswith("factorizer.commands")]


@pytest.mark.slow
def test_the_python_api(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "python_api.py"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "swin-factorizer against nnunet: dice" in done.stdout
