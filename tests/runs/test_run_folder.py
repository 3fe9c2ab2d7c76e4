"""A run on disk: its folds, the split of its cases, its scores, and its locks."""

from __future__ import annotations

from pathlib import Path

import pytest

from factorizer.data.cases import Case, DataError
from factorizer.errors import ModelError, RunError
from factorizer.evaluation.scores import Score
from factorizer.preset_files import load_preset
from factorizer.runs.find import find_fold, find_folds
from factorizer.runs.fold import ALL
from factorizer.runs.run import Run

PRESET = load_preset("isles22")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with the folds 0, 2 and 10, one on all cases, and folders that are no folds."""
    run = Run(tmp_path / "run")
    for number in (10, 0, 2, ALL):
        run.fold(number).write_preset(PRESET)
    (run.path / "fold1").mkdir()  # not begun
    for other in ("fold0.old", "folders", "cache"):
        (run.path / other).mkdir()
        (run.path / other / "config.yaml").write_text("title: x")
    return run


def score(case: str, value: float = 0.5) -> Score:
    return Score(case, "lesion", "dice", value)


def test_folds_are_those_that_were_begun_in_the_order_of_their_numbers(run: Run) -> None:
    assert [fold.number for fold in run.folds()] == [0, 2, 10]
    assert [fold.number for fold in run.everything()] == [0, 2, 10, ALL]
    run.fold(ALL).config_file.unlink()
    assert [fold.number for fold in run.everything()] == [0, 2, 10]
    assert run.fold(7).path == run.path / "fold7"
    assert not run.fold(7).exists
    assert run.fold(0).run.path == run.path


def test_a_folder_that_does_not_exist_has_no_folds(tmp_path: Path) -> None:
    run = Run(tmp_path / "nowhere")
    assert run.everything() == []
    assert run.scores() == []
    assert repr(run) == f"Run({str(run.path)!r})"


def test_the_split_is_written_once(run: Run) -> None:
    run.write_split({0: ["a"], 1: ["b", "c"]}, "seed 0")
    run.write_split({0: ["c"]}, "seed 1")
    assert run.fold_of_case() == {"a": 0, "b": 1, "c": 1}
    assert "seed 0" in run.folds_file.read_text()
    cases = [Case(name, {}) for name in ("b", "a", "new")]
    assert {number: list(names) for number, names in run.split(cases).items()} == {
        0: ["a"],
        1: ["b"],
    }
    with pytest.raises(DataError, match=r"folds.json: none of the 1 case is in it"):
        run.split([Case("new", {})])


def test_scores_are_those_of_the_folds_until_they_are_pooled(run: Run) -> None:
    assert run.scores() == []
    run.fold(2).write_scores([score("b"), score("a")])
    run.fold(10).write_scores([score("c")])
    run.fold(ALL).write_scores([score("not counted")])
    assert [row.case for row in run.scores()] == ["b", "a", "c"]
    assert run.pool_scores([10, 2]) == run.scores_file
    assert [row.case for row in run.scores()] == ["a", "b", "c"]
    run.fold(10).write_scores([score("later")])
    assert [row.case for row in run.scores()] == ["a", "b", "c"]


def test_a_fold_is_held_by_one_process_at_a_time(run: Run) -> None:
    with run.hold(0):
        with pytest.raises(RunError, match=r"another process trains .*fold0 now"), run.hold(0):
            pytest.fail("it was held twice")
        with run.hold(2), run.hold(ALL):
            pass
    with run.hold(0):
        pass


def test_a_fold_is_free_again_after_an_error(run: Run) -> None:
    with pytest.raises(KeyError), run.hold(0):
        raise KeyError
    with run.hold(0):
        pass


def test_a_user_names_one_fold_or_some_of_a_run(run: Run) -> None:
    assert find_folds(run.path / "fold2") == [run.fold(2)]
    assert find_folds(run.path, "all") == run.folds()
    assert find_folds(run.path, [10, 0]) == [run.fold(10), run.fold(0)]
    with pytest.raises(ModelError, match=r"has the folds 0, 2, 10; give one of them as"):
        find_fold(run.path)
    with pytest.raises(ModelError, match=r"has the folds 0, 2, 10, not 1, 7"):
        find_folds(run.path, [0, 1, 7])
    for wrong in ([], [0, 0]):
        with pytest.raises(ModelError, match=r"give all, or different numbers of 0, 2, 10"):
            find_folds(run.path, wrong)
    with pytest.raises(ModelError, match=r"fold0 is one fold; leave out the folds"):
        find_folds(run.path / "fold0", "all")
    with pytest.raises(ModelError, match=r"zoo:x is one model; leave out the folds"):
        find_folds("zoo:x", [0])


def test_the_only_fold_needs_no_number(run: Run) -> None:
    for number in (2, 10):
        run.fold(number).config_file.unlink()
    assert find_fold(run.path) == run.fold(0)
    run.fold(0).config_file.unlink()
    assert find_fold(run.path) == run.fold(ALL)
    with pytest.raises(ModelError, match=r"run/foldall is its only fold; leave out the folds"):
        find_folds(run.path, "all")
    run.fold(ALL).config_file.unlink()
    with pytest.raises(ModelError, match=r"run is not a run; give a folder"):
        find_fold(run.path)
