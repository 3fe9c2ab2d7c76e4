"""Layers turned down after training, measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.files import FileError, write_atomically
from factorizer.inspection.settings import Point, Setting
from factorizer.preset_files import change_preset
from factorizer.studies.ablating import check_baseline, read_points, run_ablation, write_points
from factorizer.studies.bench import make_bench

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)


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
