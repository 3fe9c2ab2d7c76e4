"""The ablations that need training."""

from __future__ import annotations

import csv
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
from factorizer.training.ablation import POSITIONS, SOLVERS, SUBBLOCKS

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


@pytest.mark.slow
def test_the_command_trains_and_compares(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_synthetic("isles22", data, cases=4, size=24, seed=0)
    settings = [*SMALL, "training.max_steps=1", "training.folds=2"]
    command = [
        "ablate",
        "training",
        "--preset",
        "isles22",
        "--data",
        str(data),
        "--out",
        str(tmp_path / "out"),
    ]
    command += [
        "--device",
        "cpu",
        "--workers",
        "0",
        *(part for s in settings for part in ("--set", s)),
    ]
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
    taken = CliRunner().invoke(app, [*command, "--set", "model.name=local-factorizer"])
    assert (
        "--set model.name has no effect: the table subblocks sets it itself"
        in taken.stderr.replace("\n", "")
    )
    same = CliRunner().invoke(app, [*command, "--set", "model.mlp_ratio=0"])
    assert "'swin, NMF and MLP' is the same as 'swin, NMF only'" in same.stderr.replace("\n", "")
    assert (
        "choose both, or one of subblocks, position, solvers"
        in CliRunner().invoke(app, [*command, "--table", "x"]).stderr
    )
