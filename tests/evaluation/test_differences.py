"""What differs between runs beside their scores, as the runs wrote it down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.evaluation.compare import Entry, compare_entries
from factorizer.evaluation.differences import find_differences, find_unknown
from factorizer.evaluation.scores import Score, write_scores
from factorizer.files import FileError
from factorizer.preset_files import change_preset, load_preset, to_yaml
from factorizer.reports.comparison import comparison_files
from factorizer.reports.notes import difference_lines
from factorizer.runs.facts import read_facts

START = {
    "data": "/data/strokes",
    "init": None,
    "versions": {"factorizer": "0.1.0", "torch": "2.13.0"},
    "seconds": {"training": 12.0},
}
SMALL = ["data.patch_size=[16,16,16]", "model.widths=[8,16]", "model.window=4"]


def write_run(
    run: Path, *changes: str, fold: int = 0, start: dict[str, Any] | None = None, data: str = "0"
) -> Path:
    """A fold as `train` leaves it, without its weights."""
    folder = run / f"fold{fold}"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        to_yaml(change_preset(load_preset("isles22"), [*SMALL, *changes]))
    )
    (folder / "run.json").write_text(json.dumps([START | (start or {})]))
    (folder / "cases.json").write_text(json.dumps({"a": f"a-{data}", "b": "b-1"}))
    (run / "folds.json").write_text(
        json.dumps({"origin": "seed 0", "folds": {"0": ["a"], "1": ["b"]}})
    )
    write_scores(folder / "scores.csv", [Score("a", "lesion", "dice", 0.5)])
    return folder


def differing(first: Path, second: Path) -> dict[str, list[Any]]:
    found = find_differences({"one": read_facts(first), "two": read_facts(second)})
    return {difference.what: list(difference.values.values()) for difference in found}


def test_runs_that_say_the_same_do_not_differ(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name) for name in ("a", "b")]
    assert differing(*runs) == {}
    assert find_unknown({"one": read_facts(runs[0])}) == []


@pytest.mark.parametrize(
    ("change", "what", "values"),
    [
        ("training.max_steps=60", "training.max_steps", [100_000, 60]),
        ("training.seed=7", "training.seed", [0, 7]),
        ("training.folds=3", "training.folds", [5, 3]),
        ("training.optimizer=muon", "training.optimizer", ["adamw", "muon"]),
        (
            "training.deep_supervision_weights=[1.0]",
            "training.deep_supervision_weights",
            [[1.0, 0.5, 0.25], [1.0]],
        ),
        ("data.spacing_mm=[1,1,1]", "data.spacing_mm", [[2.0, 2.0, 2.0], [1.0, 1.0, 1.0]]),
        ("data.normalization=none", "data.normalization", ["zscore-nonzero", "none"]),
        ("data.augmentation.flip.probability=0", "data.augmentation.flip.probability", [0.5, 0.0]),
        ("inference.blending=gaussian", "inference.blending", ["constant", "gaussian"]),
        ("model.num_iters=2", "model.num_iters", [5, 2]),
    ],
)
def test_settings(tmp_path: Path, change: str, what: str, values: list[Any]) -> None:
    first, second = write_run(tmp_path / "a"), write_run(tmp_path / "b", change)
    assert differing(first, second) == {what: values}


@pytest.mark.parametrize(
    ("start", "what", "value"),
    [
        ({"data": "/other"}, "data folder", "/other"),
        ({"init": "zoo:isles22-stroke"}, "init", "zoo:isles22-stroke"),
        (
            {"versions": {"factorizer": "0.2.0", "torch": "2.13.0"}},
            "version of factorizer",
            "0.2.0",
        ),
        ({"versions": {"factorizer": "0.1.0", "torch": "2.9.0"}}, "version of torch", "2.9.0"),
        ({"seconds": {"training": 99.0}}, "seconds of training", 99.0),
    ],
)
def test_what_the_record_of_a_run_says(
    tmp_path: Path, start: dict[str, Any], what: str, value: Any
) -> None:
    first, second = write_run(tmp_path / "a"), write_run(tmp_path / "b", start=start)
    assert [values[1] for values in differing(first, second).values()] == [value]
    assert list(differing(first, second)) == [what]


def test_data_and_folds_are_told_apart_by_their_content(tmp_path: Path) -> None:
    first, second = write_run(tmp_path / "a"), write_run(tmp_path / "b", data="other")
    (cases,) = differing(first, second).values()
    assert cases[0].startswith("2 (checksum ")
    assert cases[0] != cases[1]
    swapped = {"origin": "seed 0", "folds": {"0": ["b"], "1": ["a"]}}
    (tmp_path / "b" / "folds.json").write_text(json.dumps(swapped))
    assert set(differing(first, second)) == {"cases", "folds"}


def test_a_whole_cross_validation_is_one_run(tmp_path: Path) -> None:
    for fold in (0, 1):
        write_run(tmp_path / "a", fold=fold)
        write_run(tmp_path / "b", f"training.max_steps={60 - fold}", fold=fold)
    found = differing(tmp_path / "a", tmp_path / "b")
    assert found == {"training.max_steps": [100_000, "60 / 59"]}
    assert read_facts(tmp_path / "a")["seconds of training"] == 24
    assert differing(tmp_path / "a", tmp_path / "a" / "fold0")["held out"] == [
        "fold0 / fold1",
        "fold0",
    ]


def test_another_system_is_named_with_the_options_that_both_have(tmp_path: Path) -> None:
    changes = ["model.name=nnunet", "model.widths=[8,32]"]
    first, second = write_run(tmp_path / "a"), write_run(tmp_path / "b", *changes)
    found = differing(first, second)
    assert found == {
        "model.name": ["swin-factorizer", "nnunet"],
        "model.widths": [[8, 16], [8, 32]],
    }
    differences = find_differences({"one": read_facts(first), "two": read_facts(second)})
    assert all(difference.is_the_system for difference in differences)


def test_scores_without_a_run_are_unknown(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    (run / "run.json").unlink()
    write_scores(tmp_path / "bare.csv", [Score("a", "lesion", "dice", 0.5)])
    facts = {"run": read_facts(run), "bare": read_facts(tmp_path)}
    assert find_differences(facts) == []
    assert find_unknown(facts) == [
        "run: unknown: versions and time (no run.json)",
        "bare: unknown, because no run (config.yaml) is beside its scores",
    ]


@pytest.mark.slow
def test_the_command_shows_them_everywhere(tmp_path: Path) -> None:
    write_run(tmp_path / "long")
    write_run(tmp_path / "short", "training.max_steps=30", start={"data": "/a|b"})
    command = ["compare", str(tmp_path / "long" / "fold0"), str(tmp_path / "short" / "fold0"), "-o"]
    result = CliRunner().invoke(app, [*command, str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "- training.max_steps: long = 100000, short = 30" in result.stderr
    page = (tmp_path / "out" / "comparison.md").read_text()
    assert "## What differs between the runs" in page
    assert "| training.max\\_steps | 100000 | 30 |" in page
    assert "| data folder | /data/strokes | /a\\|b |" in page
    as_json = CliRunner().invoke(app, [*command, str(tmp_path / "two"), "--json"])
    assert {"what": "training.max_steps", "values": {"long": 100_000, "short": 30}} in json.loads(
        as_json.stdout
    )["differences"]


def test_runs_that_are_the_same_and_scores_alone_are_said(tmp_path: Path) -> None:
    scores = [Score("a", "lesion", "dice", 0.5)]
    facts = read_facts(write_run(tmp_path / "a"))
    same = compare_entries([Entry("one", scores, facts=facts), Entry("two", scores, facts=facts)])
    assert difference_lines(same) == ["nothing that the runs recorded"]
    assert "Nothing that the runs recorded" in str(comparison_files(same)["comparison.md"])
    alone = compare_entries([Entry("one", scores), Entry("two", scores)])
    assert [line.split(",")[0] for line in difference_lines(alone)] == [
        "one: unknown",
        "two: unknown",
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", "{}"),
        ("run.json", "[1]"),
        ("run.json", '[{"versions": 3}]'),
        ("run.json", '[{"seconds": 3}]'),
        ("run.json", '[{"seconds": {"training": "x"}}]'),
        ("run.json", "[" * 100_000),
        ("cases.json", "[]"),
        ("cases.json", "nothing"),
    ],
)
def test_damaged_files_of_a_run_are_named(tmp_path: Path, name: str, content: str) -> None:
    run = write_run(tmp_path / "a")
    (run / name).write_text(content)
    with pytest.raises(FileError, match=name):
        read_facts(run)
