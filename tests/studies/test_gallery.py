"""Which cases the qualitative figure shows, from the library and the command line."""

from __future__ import annotations

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
from factorizer.errors import FactorizerError
from factorizer.preset_files import load_preset
from factorizer.studies.gallery import Gallery, draw_gallery
from testkit.writing import write_nifti

pytestmark = pytest.mark.slow  # most of these train, or read real data


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
    with Image.open(tmp_path / "figure.png") as figure:
        assert figure.width > figure.height
    assert "already exists" in CliRunner().invoke(app, command).stderr
    other = [*command[:7], str(tmp_path / "other.png"), *command[8:]]
    wrong = CliRunner().invoke(app, [*other, "--show", "nobody"])
    assert "not every system has a prediction of nobody" in wrong.stderr
    wrong = CliRunner().invoke(app, [*other, "--channel", "CT"])
    assert "there is no channel 'CT'; choose one of FLAIR, T1, T1Gd, T2" in wrong.stderr


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
        with Image.open(file) as figure:
            widths.append(figure.width)
    assert widths[0] < widths[1]  # with references there is a column of them


def test_the_library_returns_the_figure_and_its_cases(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_synthetic("hippocampus", data, cases=3, size=24, seed=0)
    systems = [f"truth={data / 'labelsTr'}"]
    drawn = draw_gallery(data, "hippocampus", systems, rows=2, out=tmp_path / "figure.png")
    assert drawn.png == (tmp_path / "figure.png").read_bytes()
    assert list(drawn.files) == [tmp_path / "figure.png"]
    assert len(drawn.cases) == 2
    assert not drawn.problems
    named = draw_gallery(data, load_preset("hippocampus"), systems, cases=[drawn.cases[1]])
    assert named.cases == [drawn.cases[1]]
    assert not named.files


def test_what_contradicts_itself_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(FactorizerError, match="cases and rows are both given"):
        draw_gallery(nowhere, "brats", ["x"], cases=["a"], rows=2)
    with pytest.raises(FactorizerError, match=r"give a name that ends in \.png"):
        draw_gallery(nowhere, "brats", ["x"], out=tmp_path / "figure.jpg")
    with pytest.raises(FactorizerError, match="two systems are named x"):
        draw_gallery(nowhere, "brats", ["x", "x=y"])
