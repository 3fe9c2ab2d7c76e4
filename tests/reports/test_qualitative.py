"""Segmentations side by side, and the page."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.data.cases import DataError
from factorizer.data.layouts import read_cohort
from factorizer.data.outputs import write_labels
from factorizer.data.synthetic import write_synthetic
from factorizer.figures.contact_sheet import label_colors
from factorizer.figures.qualitative import Example, draw_examples, mean_dice, paint, spread
from factorizer.preset_files import load_preset
from factorizer.reports import page
from factorizer.studies.gallery import Gallery
from factorizer.targets import Targets
from testkit.writing import write_nifti

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


def test_the_picture_shows_what_differs() -> None:
    image = np.random.default_rng(0).uniform(1, 2, (16, 16, 8)).astype(np.float32)
    truth = np.zeros((16, 16, 8), np.uint8)
    truth[4:9, 4:9, 5] = 1
    example = Example("case", image, truth, {"same": truth, "nothing": np.zeros_like(truth)})
    png = draw_examples([example], targets=BRATS.targets)
    picture = np.asarray(Image.open(BytesIO(png)).convert("RGB")).astype(int)
    green = (picture[..., 1] > picture[..., 0] + 30) & (picture[..., 1] > picture[..., 2] + 30)
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


def test_the_command_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_synthetic("brats", data, cases=3, size=24, seed=0)
    for case in read_cohort(data).cases:
        empty = np.zeros((24, 24, 24), np.uint8)
        write_labels(tmp_path / "empty" / f"{case.name}.nii.gz", empty, case, binary=False)
    command = [
        "figure",
        "qualitative",
        "--data",
        str(data),
        "--preset",
        "brats",
        "-o",
        str(tmp_path / "figure.png"),
    ]
    command += ["-p", f"truth={data / 'labelsTr'}", "-p", str(tmp_path / "empty")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    with Image.open(tmp_path / "figure.png") as picture:
        assert picture.width > picture.height
    assert "already exists" in CliRunner().invoke(app, command).stderr
    other = [*command[:7], str(tmp_path / "other.png"), *command[8:]]
    wrong = CliRunner().invoke(app, [*other, "--cases", "nobody"])
    assert "not every system has a prediction of nobody" in wrong.stderr
    wrong = CliRunner().invoke(app, [*other, "--channel", "CT"])
    assert "there is no channel 'CT'; choose one of FLAIR, T1, T1Gd, T2" in wrong.stderr


def green(png: bytes, columns: int) -> list[int]:
    """How much of each column of panels is painted in the colour of edema."""
    picture = np.asarray(Image.open(BytesIO(png)).convert("RGB")).astype(int)
    painted = (picture[..., 1] > picture[..., 0] + 30) & (picture[..., 1] > picture[..., 2] + 30)
    return [
        int(part.sum())
        for part in np.array_split(painted[: int(0.8 * len(painted))], columns, axis=1)
    ]


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


def test_hostile_names_are_drawn_as_they_are() -> None:
    label = np.ones((8, 8, 8), np.uint8)
    for name in ("$x", "$x$", "_hidden", "\x1b[31m", "a\nb"):
        example = Example(name, label.astype(np.float32), label, {name: label})
        assert draw_examples([example], targets=Targets({name: 1}, {"all": [name]}))


def test_images_without_references_and_references_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_synthetic("hippocampus", data, cases=5, size=24, seed=0)
    settings = load_preset("hippocampus").data
    alone = Gallery(data / "imagesTr", {"truth": data / "labelsTr"}, settings)
    names = sorted(alone.cases)
    assert len(names) == 5
    assert alone.choose(None, 3) == [names[0], names[2], names[4]]
    example = alone.read(names[0], "MRI")
    assert example.reference is None
    assert example.predictions["truth"].any()
    named = Gallery(
        data / "imagesTr", {"truth": data / "labelsTr"}, settings, references=data / "labelsTr"
    )
    np.testing.assert_array_equal(
        named.read(names[0], "MRI").reference, example.predictions["truth"]
    )
    own = Gallery(data, {"truth": data / "labelsTr"}, settings)
    np.testing.assert_array_equal(own.read(names[0], "MRI").reference, example.predictions["truth"])
    small = np.zeros((4, 4, 4), np.uint8)
    for case in names:
        write_nifti(tmp_path / "small" / f"{case}.nii.gz", small)
        write_nifti(tmp_path / "other" / f"other_{case}.nii.gz", small)
    wrong = Gallery(data / "imagesTr", {"small": tmp_path / "small"}, settings)
    with pytest.raises(DataError, match="the prediction is not on the grid of its image"):
        wrong.read(names[0], "MRI")
    other = Gallery(
        data / "imagesTr", {"small": tmp_path / "small"}, settings, references=tmp_path / "other"
    )
    with pytest.raises(DataError, match=r"no case \(.*\) has a reference \(other_"):
        other.choose(None, 3)


def test_the_command_line_on_scans_without_references(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_synthetic("hippocampus", data, cases=2, size=24, seed=0)
    command = ["figure", "qualitative", "--data", str(data / "imagesTr"), "--preset", "hippocampus"]
    command += ["-p", f"truth={data / 'labelsTr'}"]
    widths = []
    for extra in ([], ["-r", str(data)]):
        file = tmp_path / f"figure{len(extra)}.png"
        result = CliRunner().invoke(app, [*command, "-o", str(file), *extra])
        assert result.exit_code == 0, result.output
        with Image.open(file) as picture:
            widths.append(picture.width)
    assert widths[0] < widths[1]  # with references there is a column of them


@pytest.mark.parametrize("text", ["<b>", "a & b", '"><script>'])
def test_a_page_escapes_what_it_is_given(text: str) -> None:
    html = page.make_page(
        text, [page.paragraph(text), page.table([text], [[text]]), page.picture(b"png", text)]
    )
    assert text not in html.replace("<body>", "")
    assert "data:image/png;base64,cG5n" in html
