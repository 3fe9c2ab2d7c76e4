"""Faster settings that cost little Dice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.inference.load import load
from factorizer.inspection.settings import nmf_layers
from factorizer.studies.bench import Bench, Timing
from factorizer.studies.tuning import Tuner, keep_order
from testkit.small import build_small

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)


class Pretend(Bench):
    """A bench whose numbers are known: each layer's bypass costs some Dice and saves some time."""

    def __init__(
        self, costs: list[float], savings: list[float], shares: Sequence[float] = (1,) * 6
    ) -> None:
        self.costs, self.savings, self.shares = costs, savings, shares
        self.network = torch.nn.Sequential(*(m for m in build_small("swin-factorizer").encoder))

    def scores(self, layers, track=None):
        from factorizer.evaluation.scores import Score

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
    assert [option for _, option, _ in singles] == [
        {"bypass": True}
    ] * 2  # fewer iterations save nothing
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
    quick, slow = (trial for _, _, trial in tuner.singles())
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


def test_the_tune_command_and_predict(
    run: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With times that do not depend on what else the machine does."""
    saved = {True: 0.9, False: 0.99}
    command = [
        "tune",
        "--run",
        str(run),
        "--data",
        str(data),
        "--max-loss",
        "50%",
        "--device",
        "cpu",
        "--json",
    ]
    assert (
        "a loss of Dice cannot be judged by 2 held-out cases"
        in CliRunner().invoke(app, [*command, "--cases", "2"]).stderr
    )
    unfinished = shutil.copytree(run, tmp_path / "run" / "fold0")
    (unfinished / "scores.csv").unlink()
    assert (
        "is not finished; train it"
        in CliRunner().invoke(app, [*command, "--run", str(unfinished)]).stderr
    )
    monkeypatch.setattr(Bench, "time", lambda self, layers, rounds=5: Timing(100.0, 1.0, 0.9, 1.1))
    assert json.loads(CliRunner().invoke(app, command).stdout)["speeds"] == []
    assert (run / "speeds.png").exists()
    assert not (run / "speeds.json").exists()

    def ratio(layers: Any) -> float:
        return float(np.prod([saved[bool(layer.get("bypass"))] for layer in layers if layer]))

    monkeypatch.setattr(
        Bench,
        "time",
        lambda self, layers, rounds=5: Timing(100.0, ratio(layers), 0.1, ratio(layers)),
    )
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["speeds"]
    assert {row["speed"] for row in found} == {"balanced", "fast"}
    assert all(row["time_ratio"] < 1 for row in found)
    assert (run / "speeds.png").exists()
    before = [layer.num_iters for layer in nmf_layers(load(run, device="cpu").networks[0])]
    assert before == [5, 5, 5]  # best is as trained
    image = [
        "predict",
        "-i",
        str(data),
        "-o",
        str(tmp_path / "out"),
        "--run",
        str(run),
        "--speed",
        "fast",
    ]
    assert CliRunner().invoke(app, image).exit_code == 0
    assert "already exists" in CliRunner().invoke(app, command).stderr
    assert "--max-loss got 'x'" in CliRunner().invoke(app, [*command[:6], "x"]).stderr
    assert np.isfinite([row["dice"] for row in found]).all()
