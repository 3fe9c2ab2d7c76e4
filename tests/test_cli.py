"""The command line, run as users run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
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
    assert {"Python", "cores", "memory", "CUDA", "MPS", "C++ compiler", "Python headers"} <= set(
        rows
    )
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
    heavy = ("torch", "monai", "numpy", "matplotlib", "pydantic")
    code = f"import factorizer.cli, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_presets_are_listed_and_shown() -> None:
    names = [line.split()[0] for line in runner.invoke(app, ["presets"]).output.splitlines()]
    assert {"brats", "isles22"} <= set(names)
    assert [
        row["name"] for row in json.loads(runner.invoke(app, ["presets", "--json"]).output)
    ] == names
    assert (
        "learning_rate: 0.0001  # peak learning rate"
        in runner.invoke(app, ["presets", "show", "brats"]).output
    )
    shown = json.loads(runner.invoke(app, ["presets", "show", "isles22", "--json"]).output)
    assert shown["data"]["spacing_mm"] == [2.0, 2.0, 2.0]
    assert (
        runner.invoke(app, ["presets", "--json", "show", "brats"]).exit_code == 2
    )  # it would be ignored
    wrong = runner.invoke(app, ["presets", "show", "brat"])
    assert wrong.exit_code == 2
    assert "did you mean 'brats'" in wrong.stderr


def test_a_shown_preset_can_be_used(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(runner.invoke(app, ["presets", "show", "isles22"]).output)
    result = runner.invoke(app, ["profile", "--preset", str(file), "--system", "nnunet", "--json"])
    (row,) = json.loads(result.stdout)
    assert row["params"] == 28702723
    assert row["paper_gflops"] is None  # the paper's figures are for its own presets


@pytest.mark.slow
def test_profile_prints_a_table_and_writes_rows_and_a_figure(tmp_path: Path) -> None:
    rows_file, figure, scores = (
        tmp_path / "new" / "rows.json",
        tmp_path / "cost.png",
        tmp_path / "scores.csv",
    )
    scores.write_text("case,region,metric,value\na,lesion,dice,0.75\n")
    names = ("swin-factorizer", "nnunet")
    command = ["profile", "--preset", "isles22", "--scores", f"nnunet={scores}"]
    command += ["-o", str(rows_file), "--figure", str(figure)]
    for name in names:
        command += ["--system", name]
    result = runner.invoke(app, command)
    assert result.exit_code == 0, result.output
    line = next(line for line in result.stdout.splitlines() if "swin-factorizer" in line)
    assert [cell.strip() for cell in line.split("│")[2:-1]] == [
        "7.372",
        "7.4",
        "29.07",
        "29.1",
        "14.27",
        "-",
    ]
    rows = json.loads(rows_file.read_text())
    assert [row["model"] for row in rows] == list(names)
    assert (
        rows[0].items()
        >= {"params": 7371523, "paper_params_m": 7.4, "paper_gflops": 29.1, "dice": None}.items()
    )
    assert abs(rows[0]["gflops"] - 29.07) < 0.01
    assert rows[1]["dice"] == 0.75
    assert figure.read_bytes().startswith(b"\x89PNG")
    again = runner.invoke(app, command)
    assert again.exit_code == 2
    assert f"{rows_file} already exists" in again.stderr


@pytest.mark.slow
def test_profile_measures_in_one_run(tmp_path: Path) -> None:
    preset = yaml.safe_load(runner.invoke(app, ["presets", "show", "isles22"]).output)
    preset["data"]["patch_size"], preset["model"]["widths"] = [16, 16, 16], [8, 16]
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(preset))
    command = [
        "profile",
        "--preset",
        str(file),
        "--system",
        "nnunet",
        "--measure",
        "--rounds",
        "1",
        "--json",
    ]
    result = runner.invoke(app, command)
    (row,) = json.loads(result.stdout)
    assert all(row[name] > 0 for name in ("forward_s", "training_s", "forward_mib", "training_mib"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "bratz"], "did you mean 'brats'"),
        (["--preset", "brats", "--system", "nnunett"], "did you mean 'nnunet'"),
        (["--preset", "brats", "--scores", "nnunet"], "give NAME=PATH"),
        (
            ["--preset", "brats", "--scores", "nnunet=nowhere.csv"],
            "nowhere.csv for nnunet, which does not exist",
        ),
        (["--preset", "brats", "--figure", "cost.bmp"], "give a name that ends in .png"),
        (["--preset", "brats", "--rounds", "2"], "rounds is for measure"),
        (["--preset", "brats", "--scores", "nnunet=tests"], "there is no scores.csv in"),
    ],
)
def test_profile_says_what_is_wrong_before_it_works(arguments: list[str], message: str) -> None:
    result = runner.invoke(app, ["profile", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
