"""A fold on disk: names, presets, cases, scores, speeds and rules, and when it is finished."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from factorizer import preset_files
from factorizer.errors import ModelError
from factorizer.evaluation.scores import Score
from factorizer.files import FileError
from factorizer.preset_files import change_preset, load_preset
from factorizer.runs import zoo
from factorizer.runs.fold import ALL, Fold, fold_name, parse_fold_name
from factorizer.runs.rules import Cleaning, write_rules
from factorizer.runs.run import Run

PRESET = change_preset(load_preset("isles22"), ["training.max_steps=10"])
SCORES = [Score("a", "lesion", "dice", 0.5), Score("a", "lesion", "hd95_mm", 3.0)]
REGIONS = ["lesion"]


def write_fold(path: Path) -> Fold:
    """A fold that was begun."""
    fold = Fold(path)
    fold.write_preset(PRESET)
    return fold


def split(run: Path, **folds: list[str]) -> None:
    """fold0=["a"] holds out the case a."""
    numbers = {name.removeprefix("fold"): names for name, names in folds.items()}
    Run(run).folds_file.write_text(json.dumps({"origin": "seed 0", "folds": numbers}))


@pytest.fixture
def fold(tmp_path: Path) -> Fold:
    """The first of three folds. It was begun with four cases."""
    fold = write_fold(tmp_path / "run" / "fold0")
    fold.write_cases({name: Path(f"cache/{name}-1") for name in "dbca"})
    split(tmp_path / "run", fold0=["a"], fold1=["b", "c"], fold2=["d", "gone"])
    return fold


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fold:
    """zoo:small, without weights."""
    monkeypatch.setattr(preset_files, "ZOO_FOLDER", tmp_path / "zoo")
    model = write_fold(tmp_path / "zoo" / "small")
    model.card_file.write_text("# A card\n")
    return zoo.zoo_model("small")


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("fold0", 0),
        ("fold12", 12),
        ("foldall", ALL),
        ("fold", None),
        ("fold-1", None),
        ("fold0.old", None),
        ("myfold0", None),
        ("Fold0", None),
        ("small", None),
    ],
)
def test_the_number_is_in_the_name(tmp_path: Path, name: str, number: object) -> None:
    assert Fold(tmp_path / name).number == number
    assert parse_fold_name(name) == number
    if number is not None:
        assert fold_name(number) == name


def test_messages_name_its_path_or_its_name_in_the_zoo(fold: Fold, shipped: Fold) -> None:
    assert fold.name == str(fold.path)
    assert not fold.is_in_zoo
    assert shipped.name == "zoo:small"
    assert shipped.is_in_zoo
    assert shipped.number is None


def test_folds_of_one_path_are_equal(fold: Fold) -> None:
    assert Fold(fold.path) == fold
    assert len({Fold(fold.path), fold}) == 1
    assert fold != fold.path
    assert repr(fold) == f"Fold({str(fold.path)!r})"


def test_the_working_folder_is_a_fold_too(fold: Fold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fold.path)
    here = Fold(Path("."))
    assert here.number == 0
    assert here.held_out() == {"a"}
    assert here.trained_on() == {"b", "c", "d"}


def test_it_exists_with_its_preset(tmp_path: Path) -> None:
    fold = Fold(tmp_path / "fold0")
    assert not fold.exists
    assert fold.max_steps is None
    fold.write_preset(PRESET)
    assert fold.exists
    assert fold.max_steps == 10
    assert fold.preset == PRESET
    assert fold.has_preset(PRESET)
    longer = change_preset(PRESET, ["training.max_steps=20"])
    assert not fold.has_preset(longer)
    fold.write_preset(longer)
    assert fold.preset == longer


def test_cases_are_written_once(fold: Fold) -> None:
    assert list(fold.cases().items()) == [(name, f"{name}-1") for name in "abcd"]
    fold.write_cases({"other": Path("cache/other")})
    assert "other" not in fold.cases()


def test_it_is_trained_on_the_cases_that_it_does_not_hold_out(fold: Fold) -> None:
    assert fold.held_out() == {"a"}
    assert fold.trained_on() == {"b", "c", "d"}
    second = write_fold(fold.path.with_name("fold2"))
    assert second.held_out() == {"d", "gone"}
    assert second.trained_on() == set()  # no case was written down yet
    everything = write_fold(fold.path.with_name("foldall"))
    everything.write_cases({name: Path(name) for name in "abcd"})
    assert everything.held_out() == set()
    assert everything.trained_on() == set("abcd")


def test_a_fold_without_its_run_does_not_know_its_cases(fold: Fold, shipped: Fold) -> None:
    fold.run.folds_file.unlink()
    assert fold.trained_on() == set()
    assert shipped.trained_on() == set()
    shipped.write_trained_on({"b", "a"})
    assert json.loads(shipped.trained_on_file.read_text()) == ["a", "b"]
    assert shipped.trained_on() == {"a", "b"}


def test_a_fold_is_finished_with_its_scores(fold: Fold) -> None:
    assert not fold.is_finished
    fold.write_starts([{"step": 10}])
    assert not fold.is_finished
    fold.write_scores(SCORES)
    assert fold.is_finished
    assert fold.scores() == SCORES
    assert fold.is_finished_for(10)
    assert not fold.is_finished_for(11)


def test_a_fold_of_all_cases_is_finished_after_its_last_step(tmp_path: Path) -> None:
    fold = Fold(tmp_path / "foldall")
    assert not fold.is_finished
    fold.write_preset(PRESET)
    assert not fold.is_finished
    for starts, finished in (
        ([{}], False),
        ([{"step": 9}], False),
        ([{"step": 10}, {"step": 4}], False),
        ([{"step": 4}, {"step": 10}], True),
    ):
        fold.write_starts(starts)
        assert fold.is_finished == finished
    assert fold.is_finished_for(10)
    assert not fold.is_finished_for(11)


def test_a_model_of_the_zoo_is_finished(shipped: Fold) -> None:
    assert shipped.is_finished
    assert shipped.preset == PRESET


def test_the_first_start_names_the_first_weights(fold: Fold) -> None:
    assert fold.starts() == []
    assert fold.first_weights() is None
    fold.write_starts([{"init": "zoo:small"}, {"init": None}])
    assert fold.first_weights() == "zoo:small"


def test_speeds_are_found_by_name(fold: Fold) -> None:
    with pytest.raises(ModelError, match=r"fold0 has the speeds best, not fast"):
        fold.speed("fast")
    fold.write_speeds({"fast": [{"num_iters": 1}, {}]})
    assert fold.speed("fast") == [{"num_iters": 1}, {}]
    with pytest.raises(ModelError, match=r"has the speeds best, fast, not balanced"):
        fold.speed("balanced")


def test_its_own_rules_come_before_those_of_its_run(fold: Fold) -> None:
    with pytest.raises(ModelError, match=r"fold0 has no postprocessing.json"):
        fold.rules(REGIONS)
    of_run = {"lesion": Cleaning(largest=True)}
    assert fold.run.write_rules(of_run) == fold.run.rules_file
    assert fold.rules(REGIONS) == of_run
    own = {"lesion": Cleaning(min_volume_ml=0.5)}
    write_rules(fold.path / fold.run.rules_file.name, own)
    assert fold.rules(REGIONS) == own
    assert Fold(fold.path.with_name("fold1")).rules(REGIONS) == of_run


@pytest.mark.parametrize("text", ["{", '{"a": 1}', "[1]"])
def test_damaged_files_of_a_shipped_model_are_named_by_the_zoo(shipped: Fold, text: str) -> None:
    shipped.trained_on_file.write_text(text)
    with pytest.raises(FileError) as caught:
        shipped.trained_on()
    assert str(caught.value).startswith("zoo:small/trained_on.json: ")
    assert str(caught.value).endswith("; install the package again")
    assert str(shipped.path) not in str(caught.value)


def test_every_damaged_file_of_a_shipped_model_is_named_by_the_zoo(shipped: Fold) -> None:
    rules_file = shipped.path / shipped.run.rules_file.name
    for file in (shipped.scores_file, shipped.speeds_file, rules_file):
        file.write_text("{")
    for read, file in (
        (shipped.scores, "scores.csv"),
        (lambda: shipped.speed("fast"), "speeds.json"),
        (lambda: shipped.rules(REGIONS), "postprocessing.json"),
    ):
        with pytest.raises(FileError) as caught:
            read()
        assert str(caught.value).startswith(f"zoo:small/{file}: ")
        assert str(shipped.path) not in str(caught.value)


def test_damaged_files_of_a_run_keep_their_path_and_remedy(fold: Fold) -> None:
    fold.trained_on_file.write_text("[1]")
    message = f"{fold.trained_on_file}: it does not list names of cases; restore it, or remove it"
    with pytest.raises(FileError) as caught:
        fold.trained_on()
    assert str(caught.value) == message


def test_traces_of_a_killed_training_are_removed(tmp_path: Path) -> None:
    fold = Fold(tmp_path / "fold0")
    fold.write_cases({"a": Path("a")})
    half_written = fold.path / ".config.yaml.abcdefgh"
    half_written.touch()
    assert all(fold.is_trace(path) for path in fold.path.iterdir())
    fold.remove_traces()
    assert list(fold.path.iterdir()) == []
    fold.write_preset(PRESET)
    fold.write_cases({"a": Path("a")})
    fold.remove_traces()
    assert fold.cases() == {"a": "a"}
    assert not fold.is_trace(fold.config_file)
