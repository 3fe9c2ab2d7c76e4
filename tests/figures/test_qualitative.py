"""Segmentations side by side."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from factorizer.figures.contact_sheet import label_colors
from factorizer.figures.qualitative import Example, draw_examples, mean_dice, paint, spread
from factorizer.preset_files import load_preset
from factorizer.targets import Targets

BRATS = load_preset("brats").data


def test_colours_are_the_papers() -> None:
    colors = label_colors(BRATS.labels)
    assert colors == {
        "edema": "#2ca02c",  # green
        "necrosis": "#e31a1c",  # red
        "enhancing": "#ffdd33",  # yellow
    }
    painted = paint(np.zeros((2, 2, 3)), np.array([[0, 1], [2, 3]]), BRATS.labels, colors)
    assert not painted[0, 0].any()
    assert painted[0, 1].argmax() == 1
    assert painted[1, 0].argmax() == 0


def test_the_figure_shows_what_differs() -> None:
    image = np.random.default_rng(0).uniform(1, 2, (16, 16, 8)).astype(np.float32)
    truth = np.zeros((16, 16, 8), np.uint8)
    truth[4:9, 4:9, 5] = 1
    example = Example("case", image, truth, {"same": truth, "nothing": np.zeros_like(truth)})
    png = draw_examples([example], targets=BRATS.targets)
    pixels = np.asarray(Image.open(BytesIO(png)).convert("RGB")).astype(int)
    green = (pixels[..., 1] > pixels[..., 0] + 30) & (pixels[..., 1] > pixels[..., 2] + 30)
    quarters = np.array_split(green[: int(0.8 * len(green))], 4, axis=1)
    truth_shown, same, nothing, image_shown = (part.sum() for part in quarters)
    assert truth_shown > 100
    assert abs(truth_shown - same) < 0.2 * truth_shown
    assert nothing < 5
    assert image_shown < 5


def test_dice_and_choice() -> None:
    truth = np.array([[3, 2], [1, 0]])
    assert mean_dice(truth, truth, BRATS.targets) == 1
    scores = {f"c{i}": i / 10 for i in range(10)}
    assert spread(scores, 4) == ["c0", "c3", "c6", "c9"]
    assert spread({"a": 1.0}, 4) == ["a"]


def green(png: bytes, columns: int) -> list[int]:
    """How much of each column of panels is painted in the colour of edema."""
    pixels = np.asarray(Image.open(BytesIO(png)).convert("RGB")).astype(int)
    painted = (pixels[..., 1] > pixels[..., 0] + 30) & (pixels[..., 1] > pixels[..., 2] + 30)
    return [
        int(part.sum())
        for part in np.array_split(painted[: int(0.8 * len(painted))], columns, axis=1)
    ]


@pytest.mark.slow
def test_without_a_reference_the_slice_is_where_something_was_predicted() -> None:
    image = np.random.default_rng(0).uniform(1, 2, (16, 16, 8)).astype(np.float32)
    found, nothing = np.zeros((16, 16, 8), np.uint8), np.zeros((16, 16, 8), np.uint8)
    found[4:9, 4:9, 6] = 1
    style = {"targets": BRATS.targets}
    alone = Example("a", image, None, {"found": found, "nothing": nothing})
    first, second, image_shown = green(draw_examples([alone], **style), 3)
    assert first > 100
    assert second < 5
    assert image_shown < 5
    beside = Example("b", image, found, {"found": found, "nothing": nothing})
    both = green(draw_examples([alone, beside], **style), 4)
    assert both[1] > 1.8 * both[0] > 0  # the reference of one, the predictions of both


@pytest.mark.slow
def test_hostile_names_are_drawn_as_they_are() -> None:
    label = np.ones((8, 8, 8), np.uint8)
    for name in ("$x", "$x$", "_hidden", "\x1b[31m", "a\nb"):
        example = Example(name, label.astype(np.float32), label, {name: label})
        assert draw_examples([example], targets=Targets({name: 1}, {"all": [name]}))
