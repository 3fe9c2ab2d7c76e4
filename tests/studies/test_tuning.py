"""Speeds: settings that save time and cost little Dice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.errors import FactorizerError
from factorizer.evaluation.scores import Score
from factorizer.inference.load import load
from factorizer.inspection.settings import settable_layers
from factorizer.studies.bench import Bench, Timing
from factorizer.studies.tuning import Tuner, keep_order, tune
from testkit.small import build_small


class Pretend(Bench):
    """A bench whose numbers are known: each layer's bypass costs some Dice and saves some time."""

    def __init__(
        self, costs: list[float], savings: list[float], shares: Sequence[float] = (1,) * 6
    ) -> None:
        self.costs = costs
        self.savings = savings
        self.shares = shares
        self.network = torch.nn.Sequential(*(m for m in build_small("swin-factorizer").encoder))

    def scores(self, layers):
        lost = sum(
            cost for cost, layer in zip(self.costs, layers, strict=True) if layer.get("bypass")
        )
        return [
            Score(f"c{i}", "x", "dice", 0.8 - lost * share + 0.001 * i)
            for i, share in enumerate(self.shares)
        ]

    def time(self, layers, rounds=5):
        saved = sum(
            saving
            for saving, layer in zip(self.savings, layers, strict=True)
            if layer.get("bypass")
        )
        return Timing(100.0, 1 - saved, 0.98 - saved, 1.02 - saved)


def test_tuning_stays_within_the_bound_and_takes_what_is_cheap() -> None:
    tuner = Tuner(Pretend(costs=[0.004, 0.001], savings=[0.2, 0.1]))
    singles = tuner.singles()
    changes = [change.setting for change in singles]
    assert changes == [{"bypass": True}] * 2  # fewer iterations save nothing
    fast = tuner.combine(singles, 0.005)
    assert fast is not None
    assert [layer.get("bypass") for layer in fast.layers] == [True, True]
    assert fast.time_ratio == pytest.approx(0.7)
    balanced = tuner.combine(singles, 0.0025)
    assert balanced is not None
    assert [layer.get("bypass") for layer in balanced.layers] == [None, True]
    assert tuner.combine(singles, 0.0) is None
    slower = Tuner(Pretend([0.0, 0.0], [-0.1, 0.01]))  # and one that saves less than can be timed
    assert slower.combine(slower.singles(), 0.5) is None


def test_what_tuning_chose_is_timed_afresh() -> None:
    tuner = Tuner(Pretend(costs=[0.0, 0.0], savings=[0.2, 0.1]))
    chosen = tuner.combine(tuner.singles(), 0.005)
    assert tuner.confirm(chosen) == chosen
    tuner.bench.savings = [-0.05, 0.0]
    assert tuner.confirm(chosen) == chosen  # once for all
    tuner.confirmed.clear()
    assert tuner.confirm(chosen) is None  # it was luck


def test_fast_is_never_slower_than_balanced() -> None:
    tuner = Tuner(Pretend(costs=[0.0, 0.0], savings=[0.2, 0.1]))
    quick, slow = (change.trial for change in tuner.singles())
    assert keep_order({"balanced": slow, "fast": quick}) == {"balanced": slow, "fast": quick}
    assert keep_order({"balanced": quick, "fast": slow}) == {"balanced": quick, "fast": quick}
    assert keep_order({"balanced": quick, "fast": None}) == {"balanced": quick, "fast": quick}
    assert keep_order({"balanced": None, "fast": slow}) == {"fast": slow}
    assert keep_order({"balanced": None, "fast": None}) == {}


def test_tuning_does_not_trust_a_mean_that_one_case_decides() -> None:
    """Both lose 0.004 on average: in one, every case loses as much; in the other, one loses it
    all."""
    for shares, found in (((1,) * 6, True), ((6, 0, 0, 0, 0, 0), False)):
        tuner = Tuner(Pretend(costs=[0.004, 0.004], savings=[0.2, 0.2], shares=shares))
        assert (tuner.combine(tuner.singles(), 0.005) is not None) == found


@pytest.fixture
def steady_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times that do not depend on what else the machine does."""

    def ratio(layers: Any) -> float:
        factors = [0.9 if layer.get("bypass") else 0.99 for layer in layers if layer]
        return float(np.prod(factors))

    def time(self: Bench, layers: Any, rounds: int = 5) -> Timing:
        return Timing(100.0, ratio(layers), 0.1, ratio(layers))

    monkeypatch.setattr(Bench, "time", time)


def tune_command(fold: Path, data: Path) -> list[str]:
    command = ["tune", "--model", str(fold), "--data", str(data), "--device", "cpu", "--json"]
    return [*command, "--max-loss", "50%"]


@pytest.mark.slow
@pytest.mark.usefixtures("steady_times")
def test_the_tune_command_and_predict(fold: Path, strokes: Path, tmp_path: Path) -> None:
    command = tune_command(fold, strokes)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["speeds"]
    assert {row["speed"] for row in found} == {"balanced", "fast"}
    assert all(row["time_ratio"] < 1 for row in found)
    assert np.isfinite([row["dice"] for row in found]).all()
    for name in ("speeds.png", "speeds.json"):
        assert f"written: {fold / name}" in result.stderr
    as_trained = settable_layers(load(fold, device="cpu").networks[0])
    assert [layer.num_iters for layer in as_trained] == [5, 5, 5]
    fast = load(fold, device="cpu", speed="fast").predict(
        np.zeros((2, 24, 24, 24)), spacing_mm=(2,) * 3
    )
    assert fast.shape == (24, 24, 24)
    assert "already exists; remove it to tune again" in CliRunner().invoke(app, command).stderr


def test_a_model_that_cannot_be_made_faster_stays_as_it_is(
    fold: Path, strokes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bench, "time", lambda self, layers, rounds=5: Timing(100.0, 1.0, 0.9, 1.1))
    tuning = tune(fold, strokes, max_loss=0.5, device="cpu")
    assert not tuning.speeds
    assert tuning.files == [fold / "speeds.png"]
    assert not (fold / "speeds.json").exists()


def test_what_cannot_be_tuned_is_refused(fold: Path, strokes: Path) -> None:
    with pytest.raises(FactorizerError, match="cannot be judged by 2 held-out cases"):
        tune(fold, strokes, limit=2, device="cpu")
    for loss in (-0.1, 1.0):
        with pytest.raises(FactorizerError, match="it must be at least 0 and less than 1"):
            tune(fold, strokes, max_loss=loss)
    command = [*tune_command(fold, strokes), "--max-loss", "x"]
    assert "--max-loss got 'x'" in CliRunner().invoke(app, command).stderr
    (fold / "scores.csv").unlink()
    with pytest.raises(FactorizerError, match="is not finished; resume its training"):
        tune(fold, strokes)
