"""Scores beside costs, and the picture of both."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.image import imread

from factorizer.profiling.figure import draw_profile
from factorizer.profiling.table import Row, add_scores, mean_dice

HEADER = "case,region,metric,value\n"


def test_dice_is_the_mean_over_cases_of_the_mean_over_regions(tmp_path: Path) -> None:
    folds = ["a,ET,dice,0.5\na,TC,dice,1.0\na,ET,hd95_mm,3\n", "b,ET,dice,0.25\n"]
    for number, text in enumerate(folds):
        (tmp_path / f"fold{number}").mkdir()
        (tmp_path / f"fold{number}" / "scores.csv").write_text(HEADER + text)
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "scores.csv").write_text(HEADER + "c,ET,dice,0.0\n")  # of other data
    assert mean_dice(tmp_path) == (0.75 + 0.25) / 2
    assert mean_dice(tmp_path / "fold1" / "scores.csv") == 0.25
    first, second = add_scores([Row("nnunet"), Row("unetr")], {"nnunet": mean_dice(tmp_path)})
    assert (first.dice, second.dice) == (0.5, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("case,value\na,1\n", "no column metric, region"),
        (HEADER + "a,ET,hd95_mm,1\n", "no row"),
        (HEADER + "a,ET,dice,\n", "line 2: the Dice is ''"),
        (HEADER + "a,ET,dice,nan\n", "from 0 to 1"),
    ],
)
def test_scores_that_cannot_be_read_are_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "scores.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        mean_dice(file)


def test_a_run_without_scores_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no scores\.csv in"):
        mean_dice(tmp_path)


def test_the_picture_shows_what_there_is(tmp_path: Path) -> None:
    plain = [Row("nnunet", 28_000_000, 143.0, 71.0), Row("swin-factorizer", 7_000_000, 29.0, 14.0)]
    full = [
        Row("nnunet", 28_000_000, 143.0, 71.0, None, None, 1.0, 3.0, 500.0, 900.0, dice=0.7),
        Row("swin-factorizer", 7_000_000, 29.0, 14.0, None, None, None, None, 400.0, None, dice=0.75),
    ]
    heights = []
    for rows in (plain, full):
        file = tmp_path / "figure.png"
        file.write_bytes(draw_profile(rows, "title", "png"))
        image = imread(file)
        assert image.std() > 0.05
        heights.append(image.shape[0])
    assert heights[1] > heights[0]  # a second row of panels for the scores
    assert draw_profile(plain, "title", "svg").startswith(b"<?xml")
