"""The layers of a trained model turned down and measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.errors import FactorizerError
from factorizer.files import FileError, write_atomically
from factorizer.inspection.settings import Point, Setting
from factorizer.preset_files import change_preset
from factorizer.progress import Progress
from factorizer.studies.ablating import (
    ablate,
    check_baseline,
    measure_points,
    read_points,
    write_points,
)
from factorizer.studies.bench import make_bench


class Watch(Progress):
    """Keeps the items that are tracked."""

    def __init__(self) -> None:
        self.items: list[object] = []

    def track(self, items: Sequence, label: str):
        self.items += items
        return iter(items)


@pytest.mark.slow
def test_points_that_are_measured_are_kept_and_the_rest_resumed(
    stroke_run: Path, strokes: Path, tmp_path: Path
) -> None:
    bench = make_bench(stroke_run / "fold0", strokes, device="cpu", limit=1)
    settings = [Setting("iterations", t, ({"num_iters": t},) * 3) for t in (1, 2, 3)]
    file = tmp_path / "points.csv"
    first = measure_points(bench, settings[:2], file)
    assert read_points(file) == first
    watch = Watch()
    points = measure_points(bench, settings, file, progress=watch)
    assert watch.items == settings[2:]
    assert points[:2] == first
    assert all(0 <= point.dice <= 1 and point.gflops > 0 for point in points)
    assert points[0].gflops < points[2].gflops
    more = make_bench(stroke_run / "fold0", strokes, device="cpu", limit=2)
    with pytest.raises(FactorizerError, match="was started with different cases"):
        measure_points(more, settings, file)


def test_numbers_survive_the_file(tmp_path: Path) -> None:
    point = Point("rank (MU)", 3, 1 / 3, 7.1234567890123, 12.5, 0.9, 1e-3, 4, "capped in layers 9")
    write_points(tmp_path / "points.csv", [point])
    assert read_points(tmp_path / "points.csv") == [point]


@pytest.mark.slow
def test_the_ablation_command(stroke_run: Path, strokes: Path, tmp_path: Path) -> None:
    model, out = stroke_run / "fold0", tmp_path / "out"
    command = ["ablate", "inference", "--model", str(model), "--data", str(strokes), "-o", str(out)]
    command += ["--iterations", "3", "--limit", "1", "--device", "cpu", "--json"]
    result = CliRunner().invoke(app, [*command, "--baseline", str(model)])
    assert result.exit_code == 0, result.output
    points = json.loads(result.stdout)
    assert len(points) == 1 + 4 + 3 + 3 + 2 * 2 + 1
    trained, baseline = points[0], points[-1]
    assert baseline["study"] == "baseline (swin-factorizer)"
    assert baseline["dice"] == trained["dice"]
    (file,) = out.glob("baseline-*.csv")
    assert read_points(file)[0].time_ratio == baseline["time_ratio"]
    same = next(p for p in points if p["study"] == "first layers kept" and p["value"] == 3)
    for name in ("dice", "hd95_mm", "gflops"):
        assert same[name] == trained[name]
    assert (out / "ablation.png").stat().st_size > 20_000
    for written in (out / "points.csv", file, out / "ablation.png"):
        assert f"written: {written}" in result.stderr
    refused = CliRunner().invoke(app, [*command, "--baseline", str(stroke_run / "fold1")])
    assert "hold out different cases" in refused.stderr


@pytest.mark.slow
def test_a_baseline_with_other_patches_is_refused(stroke_run: Path, strokes: Path) -> None:
    ours, theirs = (make_bench(stroke_run / "fold0", strokes, device="cpu") for _ in range(2))
    theirs.predictor.preset = change_preset(theirs.predictor.preset, ["data.patch_size=[16,16,24]"])
    with pytest.raises(
        FactorizerError, match=r"has the patch_size \(16, 16, 24\), not \(16, 16, 16\)"
    ):
        check_baseline(ours, theirs)


def test_nothing_is_written_for_iterations_that_cannot_be(
    stroke_run: Path, strokes: Path, tmp_path: Path
) -> None:
    with pytest.raises(FactorizerError, match="iterations is 0; it must be at least 1"):
        ablate(stroke_run / "fold0", strokes, out=tmp_path / "out", iterations=0)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", ["[]", "nothing", "[" * 100_000])
def test_damaged_files_of_a_run_or_of_an_ablation_are_named(
    fold: Path, strokes: Path, tmp_path: Path, content: str
) -> None:
    bench = make_bench(fold, strokes, device="cpu")
    (fold / "cases.json").write_text(content)
    with pytest.raises(FileError, match=r"cases\.json"):
        make_bench(fold, strokes, device="cpu")
    (tmp_path / "points.json").write_text(content)
    with pytest.raises(FileError, match=r"points\.json"):
        measure_points(bench, [], tmp_path / "points.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("study\n" + "x" * 200_000, "it is not a table"),
        ("study,value\na,b\n", "line 2 is not a point of an ablation .value: invalid"),
        ("a,b\n1,2\n", "line 2 is not a point of an ablation"),
        (b"\xff\xfe", "it is not text in UTF-8"),
    ],
)
def test_a_table_of_points_that_cannot_be_read_is_named(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    write_atomically(tmp_path / "points.csv", content)
    with pytest.raises(FileError, match=rf"points\.csv: {message}"):
        read_points(tmp_path / "points.csv")
