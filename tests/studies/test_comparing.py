"""Comparisons of runs and tables of scores, from the library and the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.data.layouts import read_cohort
from factorizer.errors import FactorizerError
from factorizer.evaluation.scores import Score, write_scores
from factorizer.preset_files import change_preset, load_preset, to_yaml
from factorizer.studies.comparing import compare, find_source
from factorizer.studies.named import split_name
from testkit.invented import scores
from testkit.writing import write_pairs


def test_patients_are_read_from_the_data_set(tmp_path: Path) -> None:
    write_pairs(tmp_path / "eyes")  # Image_01L, Image_01R, Image_02L
    names = [case.name for case in read_cohort(tmp_path / "eyes").cases]
    for system, shift in (("a", 0.1), ("b", 0.0)):
        rows = [
            Score(name, "vessel", "dice", shift + 0.1 * index) for index, name in enumerate(names)
        ]
        write_scores(tmp_path / f"{system}.csv", rows)
    command = [
        "compare",
        str(tmp_path / "a.csv"),
        str(tmp_path / "b.csv"),
        "--data",
        str(tmp_path / "eyes"),
        "--json",
    ]
    result = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["patients"] == ["Image_01", "Image_02"]
    write_scores(tmp_path / "a.csv", [Score("Image_09", "vessel", "dice", 1.0)])
    result = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "other")])
    assert "Image_09 is not in" in " ".join(result.stderr.split())


@pytest.mark.slow
def test_names_of_sources(tmp_path: Path) -> None:
    for folder in ("lr=0.01/fold0", "folder1"):
        (tmp_path / folder).mkdir(parents=True)
        write_scores(tmp_path / folder / "scores.csv", scores(0.8, 1))
    assert find_source(tmp_path / "lr=0.01" / "fold0").name == "lr=0.01"
    assert find_source(tmp_path / "folder1").name == "folder1"
    command = [
        "compare",
        f"net[v2]={tmp_path / 'folder1'}",
        f"b[/x]={tmp_path / 'folder1'}",
        "-o",
        str(tmp_path / "o"),
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "net[v2]" in result.stdout


@pytest.mark.slow
def test_the_command_line(tmp_path: Path) -> None:
    run = tmp_path / "swin"
    (run / "fold0").mkdir(parents=True)
    preset = change_preset(
        load_preset("isles22"), ["data.patch_size=[32,32,32]", "model.widths=[8,16]"]
    )
    (run / "fold0" / "config.yaml").write_text(to_yaml(preset))
    write_scores(run / "scores.csv", scores(0.85, 1))
    other = tmp_path / "unet" / "fold0"
    other.mkdir(parents=True)
    (other / "config.yaml").write_text(to_yaml(change_preset(preset, ["model.name=nnunet"])))
    write_scores(other / "scores.csv", scores(0.7, 2))
    command = ["compare", str(run), f"other={other}", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    files = {file.name for file in (tmp_path / "out").iterdir()}
    assert files == {
        "table.csv",
        "table.tex",
        "tests.csv",
        "comparison.md",
        "dice.png",
        "hd95_mm.png",
        "cost.png",
    }
    with (tmp_path / "out" / "tests.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert {row["other"] for row in rows} == {"other"}
    assert {row["model"] for row in rows} == {"swin"}
    assert len(rows) == 2 * 3
    assert "****" in result.stdout
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 2
    assert "is not an empty folder" in again.stderr
    as_json = CliRunner().invoke(
        app, [*command[:-1], str(tmp_path / "two"), "--json", "--reference-system", "other"]
    )
    assert json.loads(as_json.stdout)["reference"] == "other"


@pytest.mark.slow
def test_the_library_compares_without_writing(tmp_path: Path) -> None:
    for name, level in (("ours", 0.85), ("theirs", 0.7)):
        write_scores(tmp_path / f"{name}.csv", scores(level, 1))
    sources = [tmp_path / "ours.csv", f"other={tmp_path / 'theirs.csv'}"]
    comparison = compare(sources, reference="other")
    assert comparison.names == ["ours", "other"]
    assert {test.other for test in comparison.tests} == {"ours"}
    assert not comparison.files
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours.csv", "theirs.csv"]
    written = compare(sources, out=tmp_path / "out")
    assert set(written.files) == set((tmp_path / "out").iterdir())


def test_a_folder_that_is_not_empty_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FactorizerError, match="is not an empty folder"):
        compare(["nowhere"], out=tmp_path)
    with pytest.raises(FactorizerError, match="no system is given"):
        compare([])


def test_a_fold_is_named_like_its_run_and_tells_its_cost(tmp_path: Path) -> None:
    fold = tmp_path / "run" / "fold12"
    fold.mkdir(parents=True)
    preset = change_preset(
        load_preset("isles22"), ["data.patch_size=[32,32,32]", "model.widths=[8,16]"]
    )
    (fold / "config.yaml").write_text(to_yaml(preset))
    write_scores(fold / "scores.csv", scores(0.85, 1))
    (entry,) = compare([fold / "scores.csv"]).entries
    assert entry.name == "run"
    assert entry.parameters is not None
    assert entry.facts["model.name"] == "swin-factorizer"


@pytest.mark.parametrize(
    ("text", "name", "path"),
    [("a=b", "a", "b"), ("b", None, "b"), ("a=b=c", "a", "b=c"), ("m=zoo:x", "m", "zoo:x")],
)
def test_a_source_may_have_a_name(text: str, name: str | None, path: str) -> None:
    assert split_name(text) == (name, path)


def test_a_name_may_not_be_empty_and_an_existing_path_has_none(tmp_path: Path) -> None:
    (tmp_path / "lr=1").mkdir()
    assert split_name(tmp_path / "lr=1") == (None, str(tmp_path / "lr=1"))
    with pytest.raises(FactorizerError, match="has no name before the sign ="):
        split_name("=b")
