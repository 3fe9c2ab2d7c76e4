"""Scores beside costs, and the figure of both."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.image import imread

from factorizer.figures.costs import draw_profile
from factorizer.preset_files import change_preset, load_preset
from factorizer.profiling.table import Row, add_scores, cost_of_network


def test_scores_stand_beside_the_systems_that_have_some() -> None:
    first, second = add_scores([Row("nnunet"), Row("unetr")], {"nnunet": 0.5})
    assert (first.dice, second.dice) == (0.5, None)


@pytest.mark.slow
def test_the_figure_shows_what_is_known(tmp_path: Path) -> None:
    plain = [Row("nnunet", 28_000_000, 143.0, 71.0), Row("swin-factorizer", 7_000_000, 29.0, 14.0)]
    full = [
        Row("nnunet", 28_000_000, 143.0, 71.0, None, None, 1.0, 3.0, 500.0, 900.0, dice=0.7),
        Row(
            "swin-factorizer", 7_000_000, 29.0, 14.0, None, None, None, None, 400.0, None, dice=0.75
        ),
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


@pytest.mark.slow
def test_a_network_that_cannot_be_built_has_no_cost() -> None:
    for size, known in ((64, True), (48, False)):
        changes = ["model.name=nnformer", f"data.patch_size=[{size},{size},{size}]"]
        preset = change_preset(load_preset("isles22"), changes)
        assert (cost_of_network(preset) is not None) == known
