"""The ablations that need training."""

from __future__ import annotations

import csv
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.config import build_options
from factorizer.data.synthetic import write_synthetic
from factorizer.models.registry import build_model
from factorizer.nn.blocks import ResidualMLP, ResidualNMF
from factorizer.nn.nmf import NMF
from factorizer.preset_files import change_preset, load_preset
from factorizer.runs.fold import Fold
from factorizer.studies.training_variants import POSITIONS, SOLVERS, SUBBLOCKS
from factorizer.training.session import Outcome

SMALL = ["model.widths=[8,16]", "model.window=4", "data.patch_size=[16,16,16]"]


@pytest.mark.parametrize("variant", [*SUBBLOCKS, *POSITIONS], ids=lambda variant: variant.name)
def test_variants_have_what_they_say(variant) -> None:
    preset = change_preset(load_preset("brats"), [*SMALL, *variant.changes])
    model = build_model(preset.model.name, **build_options(preset, preset.model.name))
    nmf, mlp = (
        any(isinstance(m, kind) for m in model.modules()) for kind in (ResidualNMF, ResidualMLP)
    )
    assert nmf == ("MLP only" not in variant.name)
    assert mlp == ("NMF only" not in variant.name)
    assert (model.position is not None) == ("without position" not in variant.name)


@pytest.mark.parametrize("variant", SOLVERS, ids=lambda variant: variant.name)
def test_solvers_have_the_terms_they_say(variant) -> None:
    preset = change_preset(load_preset("brats"), [*SMALL, *variant.changes])
    model = build_model(preset.model.name, **build_options(preset, preset.model.name))
    layers = [m for m in model.modules() if isinstance(m, NMF)]
    assert {m.terms for m in layers} == {1 if variant.name.endswith(", 1 term") else 2}
    assert all(m.solver[:3] in variant.name.lower().replace("multiplicative", "mu") for m in layers)


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """An ablation of tiny networks, without a table."""
    data, out = tmp_path / "data", tmp_path / "out"
    write_synthetic("isles22", data, cases=4, size=24, seed=0)
    words = ["ablate", "training", "--preset", "isles22", "--data", str(data), "-o", str(out)]
    words += ["--device", "cpu", "--workers", "0"]
    for change in [*SMALL, "training.max_steps=1", "training.folds=2"]:
        words += ["--set", change]
    return words


@pytest.mark.slow
def test_the_command_trains_and_compares(command: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*command, "--table", "position"])
    assert result.exit_code == 0, result.output
    for kind in ("global", "local", "swin"):
        with (tmp_path / "out" / "position" / kind / "tests.csv").open() as lines:
            pairs = {(row["model"], row["other"]) for row in csv.DictReader(lines)}
        assert pairs == {(f"{kind}, with position", f"{kind}, without position")}
    assert (tmp_path / "out" / "position" / "table.tex").read_text().count("position &") == 6
    again = CliRunner().invoke(app, [*command, "--table", "position"])
    assert again.exit_code == 0
    assert again.stderr.count("is finished") == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--set", "model.name=local-factorizer"],
            "the change of model.name has no effect: the table subblocks sets it itself",
        ),
        (["--set", "model.mlp_ratio=0"], "'swin, NMF and MLP' is the same as 'swin, NMF only'"),
        (["--table", "x"], "there is no table 'x'; choose from subblocks, position, solvers"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_before_training(
    command: list[str], tmp_path: Path, words: list[str], message: str
) -> None:
    result = CliRunner().invoke(app, [*command, *words])
    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", "")
    assert not (tmp_path / "out").exists()


def test_a_stopped_training_ends_the_command_and_says_how_to_resume(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = Outcome(Fold(tmp_path / "fold0"), step=1, finished=False, signal=signal.SIGTERM)
    monkeypatch.setattr("factorizer.studies.training_variants.train_fold", lambda *_, **__: stopped)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 128 + signal.SIGTERM
    assert "run the same command to resume" in result.stderr
