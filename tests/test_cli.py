"""The command line, run as users run it."""

from __future__ import annotations

import json
import subprocess
import sys

from typer.testing import CliRunner

import factorizer
from factorizer.cli import app

runner = CliRunner()


def test_models_lists_every_system_on_one_line() -> None:
    from factorizer.models.registry import SYSTEMS

    lines = runner.invoke(app, ["models"]).output.splitlines()
    assert [line.split()[0] for line in lines] == list(SYSTEMS)
    rows = json.loads(runner.invoke(app, ["models", "--json"]).output)
    assert [row["name"] for row in rows] == list(SYSTEMS)
    assert all(row["summary"] for row in rows)


def test_doctor_reports_versions_devices_cores_memory_and_tools() -> None:
    result = runner.invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert rows["factorizer"]["found"] == factorizer.__version__
    assert rows["torch"]["present"]
    assert {"Python", "cores", "memory", "CUDA", "MPS", "C++ compiler", "Python headers"} <= set(rows)
    text = runner.invoke(app, ["doctor"]).output
    assert all(name in text for name in rows)


def test_doctor_names_a_missing_package_and_its_remedy(monkeypatch) -> None:
    from factorizer import doctor

    monkeypatch.setattr(doctor, "PACKAGES", {"no-such-package": "flying"})
    output = runner.invoke(app, ["doctor"]).output
    line = next(line for line in output.splitlines() if "no-such-package" in line)
    assert "missing" in line
    assert "for flying: run make setup" in line


def test_version() -> None:
    assert runner.invoke(app, ["--version"]).output == f"factorizer {factorizer.__version__}\n"


def test_the_command_line_starts_without_heavy_imports() -> None:
    code = (
        "import factorizer.cli, sys; print([m for m in ('torch', 'monai', 'numpy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
