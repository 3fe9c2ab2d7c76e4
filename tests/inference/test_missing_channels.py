"""Cases without a channel: models that lost channels in training take them, others refuse them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import nibabel
import numpy as np
import pytest
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.data.cases import Case, DataError, missing_channels
from factorizer.data.images import Volume, VoxelGrid, turn_to_canonical
from factorizer.data.layouts import read_cohort
from factorizer.data.preprocess import preprocessing_of
from factorizer.errors import FactorizerError
from factorizer.inference.load import load
from factorizer.inference.predictor import Predictor
from factorizer.preset_files import change_preset
from testkit.runs import PRESET, run

pytestmark = pytest.mark.slow  # most of these train, or read real data


WARNING = "sub-strokecase0002: ADC is missing; it is taken as zero, which the model was trained for"
DROPOUT = "data.augmentation.channel_dropout.probability="
CASE = "sub-strokecase0002"


@pytest.fixture(scope="module")
def tolerant(strokes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fold that was trained with lost channels."""
    changes = [f"{DROPOUT}0.3", "training.max_steps=2", "training.validate_every=2"]
    preset = change_preset(PRESET, changes)
    return run(strokes, tmp_path_factory.mktemp("runs") / "tolerant", preset).folder


@pytest.fixture
def data(strokes: Path, tmp_path: Path) -> Path:
    """Two cases, of which the second has no ADC."""
    for place in ("rawdata", "derivatives"):
        for name in ("sub-strokecase0001", CASE):
            shutil.copytree(strokes / place / name, tmp_path / "data" / place / name)
    adc_of(tmp_path / "data").unlink()
    return tmp_path / "data"


def adc_of(data: Path) -> Path:
    """The file that is missing."""
    folder = data / "rawdata" / CASE / "ses-0001" / "dwi"
    return folder / f"{CASE}_ses-0001_adc.nii.gz"


def dwi_of(data: Path) -> Path:
    return Path(str(adc_of(data)).replace("_adc", "_dwi"))


def invoke(*command: object):
    return CliRunner().invoke(app, [str(part) for part in command])


def predict(*options: object):
    return invoke("predict", "--device", "cpu", *options)


def zero_after_normalization(predictor: Predictor, dwi: Path) -> np.ndarray:
    """The probabilities for a prepared volume whose normalized ADC is zero."""
    scan = nibabel.load(dwi)
    grid = VoxelGrid(scan.shape, scan.affine)
    image = np.asarray(scan.dataobj, np.float32)
    twice = Volume(turn_to_canonical(np.stack([image, image]), grid), grid)
    prepared = preprocessing_of(predictor.preset.data).apply(twice)
    prepared.image[1] = 0
    probabilities = predictor.segment(prepared, keep_probabilities=True).probabilities
    assert probabilities is not None
    return np.moveaxis(probabilities, 0, -1)


def read(file: Path) -> np.ndarray:
    return np.asarray(nibabel.load(file).dataobj)


def test_a_missing_channel_is_zero_and_is_said(
    tolerant: Path, strokes: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ["-i", data, "-o", out, "--model", tolerant, "--save-probabilities"]
    result = predict(*options, "--json")
    assert result.exit_code == 0, result.output
    assert f"warning {WARNING}" in " ".join(result.stderr.split())
    summary = json.loads(result.stdout)
    assert sorted(summary["written"]) == ["sub-strokecase0001", CASE]
    (problem,) = summary["problems"]
    assert (problem["case"], problem["severity"]) == (CASE, "warning")
    assert problem["message"] == "ADC is missing"
    found = read(out / f"{CASE}_probabilities.nii.gz").reshape(*read(dwi_of(data)).shape, -1)
    predictor = load(tolerant, device="cpu")
    expected = zero_after_normalization(predictor, dwi_of(data))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    image = read(dwi_of(data))[None]
    affine = nibabel.load(dwi_of(data)).affine
    with pytest.warns(UserWarning, match="image: ADC is missing; it is taken as zero"):
        labels = predictor.predict(image, affine=affine, channels=["dwi"])
    np.testing.assert_array_equal(labels, read(out / f"{CASE}.nii.gz"))
    again = predict(*options, "--resume", "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["skipped"] == ["sub-strokecase0001", CASE]
    assert json.loads(again.stdout)["problems"] == [problem]
    shutil.copy(adc_of(strokes), adc_of(data))
    later = predict(*options, "--resume")
    assert later.exit_code == 1
    assert "it was made without ADC; remove it to predict it again" in " ".join(
        later.stderr.split()
    )
    adc_of(data).unlink()
    complete = tmp_path / "complete"
    options = ["-i", strokes / "rawdata" / CASE, *options[4:], "-o", complete]
    assert predict(*options).exit_code == 0
    with_adc = read(complete / f"{CASE}_probabilities.nii.gz").reshape(found.shape)
    assert np.abs(with_adc - found).max() > 1e-3
    options[1] = dwi_of(data)
    removed = predict(*options, "--resume")
    assert removed.exit_code == 1
    assert "it was made with ADC, now missing" in " ".join(removed.stderr.split())


def test_dice_on_one_channel_alone(tolerant: Path, strokes: Path, tmp_path: Path) -> None:
    """As the README says: a list whose cells are empty, then evaluate."""
    lines = ["case,DWI,ADC"]
    for case in read_cohort(strokes).cases[:2]:
        lines.append(f"{case.name},{case.channels['DWI'].file},")
    (tmp_path / "dwi.csv").write_text("\n".join(lines))
    out, scores = tmp_path / "out", tmp_path / "scores.csv"
    result = predict("-i", tmp_path / "dwi.csv", "-o", out, "--model", tolerant)
    assert result.exit_code == 0, result.output
    assert result.stderr.count("ADC is missing") == 2
    options = ["-p", out, "-r", strokes, "--preset", tolerant / "config.yaml", "-o", scores]
    assert invoke("evaluate", *options).exit_code in (0, 1)  # the other cases have no prediction
    assert scores.read_text().count(",dice,") == 2


def test_models_that_always_had_all_channels_refuse(
    tolerant: Path, data: Path, tmp_path: Path
) -> None:
    strict = tmp_path / "strict"
    shutil.copytree(tolerant, strict)
    config = strict / "config.yaml"
    before, after = config.read_text().split("channel_dropout:")
    config.write_text(f"{before}channel_dropout:{after.replace('0.3', '0.0', 1)}")
    result = predict("-i", data, "-o", tmp_path / "out", "--model", strict, "--json")
    assert result.exit_code == 1
    assert "_adc.nii.gz: the file is missing (ADC); add it, or remove the case" in " ".join(
        result.stderr.split()
    )
    summary = json.loads(result.stdout)
    assert summary["failed"] == [CASE]
    assert list(summary["written"]) == ["sub-strokecase0001"]
    predictor = load(strict, device="cpu")
    with pytest.raises(FactorizerError, match="channels lacks ADC, and this model was always"):
        predictor.predict(read(dwi_of(data))[None], channels=["DWI"])


def test_training_still_needs_all_channels(data: Path, tolerant: Path) -> None:
    cohort = read_cohort(data)
    assert [case.name for case in cohort.cases] == ["sub-strokecase0001"]
    assert "the file is missing (ADC)" in str(cohort.problems[0])
    (incomplete,) = (case for case in cohort.as_found if missing_channels(case, ["ADC"]))
    predictor = load(tolerant, device="cpu")
    with pytest.raises(DataError, match="channel ADC is missing"):
        predictor.prepare(Case(CASE, incomplete.channels), ["DWI", "ADC"])


@pytest.mark.filterwarnings("ignore:image. ADC is missing")
def test_channels_of_an_array_are_named(tolerant: Path) -> None:
    predictor = load(tolerant, device="cpu")
    image = np.random.default_rng(0).uniform(1, 2, (2, 20, 20, 20)).astype(np.float32)
    image[1] *= image[0]
    settings = {"spacing_mm": (2.0, 2.0, 2.0)}
    expected = predictor.predict(image, **settings)
    turned = predictor.predict(image[::-1], channels=["ADC", "DWI"], **settings)
    np.testing.assert_array_equal(turned, expected)
    for channels, message in (
        ("DWI", "channels is 'DWI'; name some of DWI, ADC, each once"),
        ([], "name some of DWI, ADC"),
        (["DWI", "dwi"], "each once"),
        (["DWI", "T1"], "channels names T1; the model takes DWI, ADC"),
        (["DWI"], r"give 3D images of 1 channel \(DWI\), channels first"),
    ):
        with pytest.raises(FactorizerError, match=message):
            predictor.predict(image, channels=channels, **settings)
    with pytest.raises(FactorizerError, match=r"name channels=\[...\] if some are missing"):
        predictor.predict(image[:1], **settings)
