"""Layers turned down after training: settings, measured points, tuning."""

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
from factorizer.data.synthetic import write_synthetic
from factorizer.figures.ablations import pareto
from factorizer.files import FileError, write_atomically
from factorizer.inference.load import load
from factorizer.inspection.settings import (
    Setting,
    applied,
    matrix_sizes,
    nmf_layers,
    paper_settings,
)
from factorizer.nn.blocks import WrappedNMF
from factorizer.preset_files import change_preset, load_preset
from factorizer.studies.ablating import (
    Bench,
    Point,
    Timing,
    check_baseline,
    make_bench,
    make_timing,
    read_points,
    run_ablation,
    write_points,
)
from factorizer.studies.tuning import Tuner, keep_order
from factorizer.training.machine import Machine
from factorizer.training.session import train_fold
from testkit.small import build_small

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "strokes"
    write_synthetic("isles22", folder, cases=6, size=24, seed=0)
    return folder


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    changes = [
        "training.max_steps=2",
        "training.folds=2",
        "model.widths=[8,16]",
        "data.patch_size=[16,16,16]",
    ]
    preset = change_preset(load_preset("isles22"), [*changes, "model.window=4", "model.head_dim=2"])
    out = tmp_path_factory.mktemp("run") / "run"
    return train_fold(
        preset, data=data, fold=0, out=out, machine=Machine(device="cpu", workers=0)
    ).folder


def test_the_papers_settings() -> None:
    settings = paper_settings(9, 8, [8] * 8 + [4], iterations=20)
    studies = {
        study: [s for s in settings if s.study == study]
        for study in dict.fromkeys(s.study for s in settings)
    }
    assert {study: len(own) for study, own in studies.items()} == {
        "first layers kept": 10,
        "layer removed": 9,
        "iterations": 20,
        "rank (HALS)": 8,
        "rank (MU)": 8,
    }
    none, *_, every = studies["first layers kept"]
    assert all(layer == {"bypass": True} for layer in none.layers)
    assert all(layer == {} for layer in every.layers)
    fifth = studies["layer removed"][4]
    assert [index for index, layer in enumerate(fifth.layers) if layer] == [4]
    assert studies["rank (MU)"][7].layers[-1] == {"rank": 4, "solver": "mu"}
    assert studies["rank (MU)"][7].note == "capped in layers 9"


def test_a_setting_is_undone() -> None:
    network = build_small("swin-factorizer").eval()
    x = torch.randn(1, 2, 16, 16, 16)
    with torch.no_grad():
        before = network(x)
        with applied(
            network, [{"bypass": True}, {"num_iters": 1}, {}, {"rank": 2}, {"solver": "mu"}]
        ):
            assert [layer.bypass for layer in nmf_layers(network)] == [
                True,
                False,
                False,
                False,
                False,
            ]
            assert not torch.equal(network(x), before)
        assert torch.equal(network(x), before)
    with pytest.raises(ValueError, match="has no NMF layer"):
        nmf_layers(build_small("nnunet"))


def test_ranks_are_limited_by_the_matrices() -> None:
    network = build_small("swin-factorizer", window=1).eval()
    assert matrix_sizes(network, 2, (16, 16, 16)) == [1] * 5
    assert matrix_sizes(build_small("swin-factorizer").eval(), 2, (16, 16, 16)) == [8] * 5


@pytest.mark.parametrize(("solver", "times"), [("hals", 2), ("joint", 1)])
def test_a_bypassed_layer_takes_every_voxel_once_and_factorizes_nothing(
    solver: str, times: int
) -> None:
    """What it saves in time stands in docs/results: two grids of windows, and the factorization."""
    network = build_small("swin-factorizer", solver=solver).eval()
    wrapped = next(m for m in network.modules() if isinstance(m, WrappedNMF))
    voxels = []
    wrapped.in_proj.register_forward_hook(
        lambda module, inputs, output: voxels.append(inputs[0][..., 0].numel())
    )
    x = torch.randn(1, 2, 16, 16, 16)
    with torch.no_grad():
        network(x)
        assert sum(voxels) == times * 16**3
        voxels.clear()
        wrapped.nmf.bypass, wrapped.nmf.seed = (
            True,
            None,
        )  # there are no first factors: it would fail if it factorized
        network(x)
    assert sum(voxels) == 16**3


def test_points_are_cached_and_gone_on_with(run: Path, data: Path, tmp_path: Path) -> None:
    bench = make_bench(run, data, device="cpu", limit=1)
    settings = [Setting("iterations", t, ({"num_iters": t},) * 3) for t in (1, 2, 3)]
    file = tmp_path / "points.csv"
    first = run_ablation(bench, settings[:2], file, lambda items, label: items)
    assert read_points(file) == first
    done: list[Setting] = []

    def watch(items, label):
        done.extend(items)
        return items

    points = run_ablation(bench, settings, file, watch)
    assert done == settings[2:]
    assert points[:2] == first
    assert all(0 <= point.dice <= 1 and point.gflops > 0 for point in points)
    assert points[0].gflops < points[2].gflops
    with pytest.raises(ValueError, match="was begun with other cases"):
        run_ablation(make_bench(run, data, device="cpu", limit=2), settings, file, watch)
    file.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="is not a table of an ablation"):
        read_points(file)


def test_numbers_survive_the_file(tmp_path: Path) -> None:
    point = Point("rank (MU)", 3, 1 / 3, 7.1234567890123, 12.5, 0.9, 1e-3, 4, "capped in layers 9")
    write_points(tmp_path / "points.csv", [point])
    assert read_points(tmp_path / "points.csv") == [point]


def test_the_ablation_command(run: Path, data: Path, tmp_path: Path) -> None:
    command = [
        "ablate",
        "inference",
        "--run",
        str(run),
        "--data",
        str(data),
        "-o",
        str(tmp_path / "out"),
    ]
    command += [
        "--iterations",
        "3",
        "--cases",
        "1",
        "--device",
        "cpu",
        "--json",
        "--baseline",
        str(run),
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    points = json.loads(result.stdout)
    assert len(points) == 1 + 4 + 3 + 3 + 2 * 2 + 1
    trained, baseline = points[0], points[-1]
    assert baseline["study"] == "baseline (swin-factorizer)"
    assert baseline["dice"] == trained["dice"]
    (file,) = (tmp_path / "out").glob("baseline-*.csv")
    assert read_points(file)[0].time_ratio == baseline["time_ratio"]
    same = next(p for p in points if p["study"] == "first layers kept" and p["value"] == 3)
    assert (same["dice"], same["hd95_mm"], same["gflops"]) == (
        trained["dice"],
        trained["hd95_mm"],
        trained["gflops"],
    )
    assert (tmp_path / "out" / "ablation.png").stat().st_size > 20_000
    other = shutil.copytree(run, run.parent / "fold1")
    refused = CliRunner().invoke(app, [*command[:-1], str(other)])
    assert "holds out other cases than" in refused.stderr
    ours, theirs = (make_bench(run, data, device="cpu") for _ in range(2))
    theirs.predictor.preset = change_preset(theirs.predictor.preset, ["data.patch_size=[16,16,24]"])
    with pytest.raises(ValueError, match=r"has the patch_size \(16, 16, 24\), not \(16, 16, 16\)"):
        check_baseline(ours, theirs)


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


@pytest.mark.parametrize("content", ["[]", "nothing", "[" * 100_000])
def test_damaged_files_of_a_run_or_of_an_ablation_are_named(
    run: Path, data: Path, tmp_path: Path, content: str
) -> None:
    damaged = shutil.copytree(run.parent, tmp_path / "run") / run.name
    (damaged / "cases.json").write_text(content)
    with pytest.raises(FileError, match=r"cases\.json"):
        make_bench(damaged, data, device="cpu")
    (tmp_path / "points.json").write_text(content)
    with pytest.raises(FileError, match=r"points\.json"):
        run_ablation(
            make_bench(run, data, device="cpu"),
            [],
            tmp_path / "points.csv",
            lambda items, label: items,
        )


@pytest.mark.parametrize("content", ["study\n" + "x" * 200_000, "study,value\na,b\n", b"\xff\xfe"])
def test_a_table_of_points_that_cannot_be_read_is_named(
    tmp_path: Path, content: str | bytes
) -> None:
    write_atomically(tmp_path / "points.csv", content)
    with pytest.raises(ValueError, match=r"points\.csv is not a table of an ablation"):
        read_points(tmp_path / "points.csv")


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


def test_times_are_compared_round_by_round() -> None:
    """Rounds that are slow for both do not matter; the interval says how certain a saving is."""
    slow = np.array([1.0, 5.0, 1.0, 2.0, 1.0, 1.0])
    timing = make_timing(0.8 * slow, slow)
    assert (timing.ratio, timing.low, timing.high) == pytest.approx((0.8, 0.8, 0.8))
    noisy = make_timing(0.97 * slow, slow[::-1])
    assert noisy.low < 0.97 < 1 < noisy.high


def test_the_front() -> None:
    points = [(1.0, 0.8, "a"), (0.5, 0.7, "b"), (0.6, 0.6, "c"), (0.7, 0.9, "d")]
    assert [name for _, _, name in pareto(points)] == ["b", "d"]


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
