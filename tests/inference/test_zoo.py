"""The zoo: how a run becomes a model of it, what is listed, and that every model that ships does its work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from runs import run as train
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.inference import zoo
from factorizer.inference.load import load, read_weights

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def fold(strokes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(strokes, tmp_path_factory.mktemp("runs") / "run").folder


@pytest.fixture
def small(fold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo with one model, zoo:small."""
    folder = tmp_path / "zoo" / "small"
    zoo.write_model(fold, read_weights(fold), folder)
    (folder / "card.md").write_text("# A card\n")
    monkeypatch.setattr(zoo.resources, "files", lambda package: tmp_path)
    return folder


def test_a_model_is_its_run_in_half_precision(fold: Path, small: Path) -> None:
    ours, theirs = (load(source, device="cpu").networks[0].state_dict() for source in ("zoo:small", fold))
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype
        torch.testing.assert_close(ours[name], value, rtol=1e-3, atol=1e-4)
    assert (small / "scores.csv").read_text() == (fold / "scores.csv").read_text()
    assert (small / "weights.safetensors").stat().st_size < 3 * sum(v.numel() for v in theirs.values()) + 10_000


def test_weights_beyond_half_precision_are_refused(fold: Path, tmp_path: Path) -> None:
    weights = {**read_weights(fold), "extra": torch.tensor([1e6])}
    with pytest.raises(zoo.ModelError, match="beyond half precision"):
        zoo.write_model(fold, weights, tmp_path / "zoo")


def test_the_list_and_the_card(small: Path) -> None:
    result = CliRunner().invoke(app, ["zoo"])
    assert "zoo:small" in result.stdout
    assert "lesion 0." in result.stdout
    assert "Not for clinical use" in result.stderr
    (model,) = json.loads(CliRunner().invoke(app, ["zoo", "--json"]).stdout)
    assert model["channels"] == ["DWI", "ADC"]
    (dice,) = model["dice"]
    assert dice["low"] <= dice["mean"] <= dice["high"]
    assert CliRunner().invoke(app, ["zoo", "show", "zoo:small"]).stdout == "# A card\n"
    wrong = CliRunner().invoke(app, ["zoo", "show", "smal"])
    assert wrong.exit_code == 2
    assert "did you mean 'small'; it has small" in wrong.stderr
    assert CliRunner().invoke(app, ["zoo", "--json", "show", "small"]).exit_code == 2
