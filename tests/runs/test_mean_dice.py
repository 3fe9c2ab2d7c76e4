"""The mean Dice of a run, a fold or a table of scores."""

from __future__ import annotations

from pathlib import Path

import pytest

from factorizer.errors import FactorizerError
from factorizer.runs.run_scores import mean_dice

HEADER = "case,region,metric,value\n"


def test_dice_is_the_mean_over_cases_of_the_mean_over_regions(tmp_path: Path) -> None:
    folds = ["a,ET,dice,0.5\na,TC,dice,1.0\na,ET,hd95_mm,3\n", "b,ET,dice,0.25\n"]
    for number, text in enumerate(folds):
        (tmp_path / f"fold{number}").mkdir()
        (tmp_path / f"fold{number}" / "config.yaml").touch()
        (tmp_path / f"fold{number}" / "scores.csv").write_text(HEADER + text)
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "scores.csv").write_text(HEADER + "c,ET,dice,0.0\n")  # of other data
    assert mean_dice(tmp_path) == (0.75 + 0.25) / 2
    assert mean_dice(tmp_path / "fold1" / "scores.csv") == 0.25


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("case,value\na,1\n", "not region, metric"),
        (HEADER + "a,ET,hd95_mm,1\n", "no row"),
        (HEADER + "a,ET,dice,\n", "line 2: the value is '', not a number"),
        (HEADER + "a,ET,dice,nan\n", "from 0 to 1"),
    ],
)
def test_scores_without_a_mean_dice_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "scores.csv"
    file.write_text(text)
    with pytest.raises(FactorizerError, match=message):
        mean_dice(file)


def test_a_run_without_scores_is_named(tmp_path: Path) -> None:
    with pytest.raises(FactorizerError, match=r"there is no scores\.csv in"):
        mean_dice(tmp_path)
