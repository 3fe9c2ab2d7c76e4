"""What `explain` writes: components over whole images, tables and figures."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.config.networks import network_of
from factorizer.data.cases import DataError
from factorizer.data.images import Volume, VoxelGrid
from factorizer.data.inputs import read_inputs
from factorizer.data.layouts import read_cohort
from factorizer.data.preprocess import preprocessing_of
from factorizer.data.synthetic import write_synthetic
from factorizer.errors import FactorizerError
from factorizer.evaluation.references import References
from factorizer.inference.predictor import Predictor
from factorizer.inspection.components import Viewer, choose_layers, layers_of
from factorizer.preset_files import change_preset, load_preset
from factorizer.studies.explaining import Explainer, explain, load_models
from factorizer.studies.true_labels import find_references
from factorizer.studies.views import view_layers
from factorizer.training.machine import Machine
from factorizer.training.session import train_fold


def test_components_of_a_whole_image_are_averaged_over_patches() -> None:
    """An image of two patches and a half, turned in its file: each voxel is the mean of the patches
    that cover it."""
    changes = [
        "model.widths=[8,16]",
        "model.window=4",
        "data.patch_size=[16,16,16]",
        "data.channels=[a]",
    ]
    preset = change_preset(
        load_preset("brats"), [*changes, "data.crop_to_nonzero=false", "data.normalization=none"]
    )
    predictor = Predictor(preset, [network_of(preset)])
    image = np.random.default_rng(0).normal(size=(1, 16, 16, 24)).astype(np.float32)
    grid = VoxelGrid((16, 16, 24), np.diag([-1.0, 1.0, 1.0, 1.0]))
    prepared = preprocessing_of(preset.data).apply(Volume(image, grid))
    layers = layers_of(predictor.networks[0])[:1]
    (view,) = view_layers(predictor, prepared, layers)
    expected, count = np.zeros((1, 16, 16, 24)), np.zeros(24)
    with torch.no_grad():
        for start in (0, 8):
            patch = torch.from_numpy(image[None, ..., start : start + 16])
            seen = Viewer(predictor.networks[0], layers)(patch)
            expected[..., start : start + 16] += seen[0].numpy()
            count[start : start + 16] += 1
    np.testing.assert_allclose(view.components, expected / count, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_command_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_synthetic("brats", data, cases=4, size=24, seed=0)
    changes = [
        "training.max_steps=2",
        "training.folds=2",
        "model.widths=[8,16]",
        "data.patch_size=[16,16,16]",
    ]
    preset = change_preset(load_preset("brats"), [*changes, "model.window=4"])
    machine = Machine(device="cpu", workers=0)
    for name in ("swin-factorizer", "nnunet"):
        system = change_preset(preset, [f"model.name={name}"])
        train_fold(system, data=data, fold=0, out=tmp_path / name, machine=machine)
    command = [
        "explain",
        "--model",
        str(tmp_path / "swin-factorizer"),
        "-i",
        str(data),
        "-o",
        str(tmp_path / "out"),
    ]
    command += ["--model", f"u-net={tmp_path / 'nnunet'}", "--device", "cpu", "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    tables = json.loads(result.stdout)
    assert set(tables) == {"swin-factorizer", "u-net"}
    assert {(row["layer"], row["region"]) for row in tables["swin-factorizer"]} >= {
        (1, "WT"),
        (3, "ET"),
    }
    volume = nibabel.load(tmp_path / "out" / "BRATS_001" / "swin-factorizer-layer1.nii.gz")
    image = nibabel.load(data / "imagesTr" / "BRATS_001.nii.gz")
    assert volume.shape == (24, 24, 24, 1)  # one head of eight channels
    np.testing.assert_array_equal(volume.affine, image.affine)
    with (tmp_path / "out" / "BRATS_001" / "swin-factorizer-layer3-factors.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert {row["picture"] for row in rows} == {"1"}
    assert sum(float(row["value"]) ** 2 for row in rows) == pytest.approx(1, abs=1e-4)
    assert len(rows) == 8
    assert (tmp_path / "out" / "BRATS_004.png").stat().st_size > 10_000
    first = data / "imagesTr" / "BRATS_001.nii.gz"
    cases, _ = read_inputs([first], preset.data.channels)
    assert set(find_references(None, [first], cases, preset.data).cases) == {"BRATS_001"}
    assert set(load_models(["zoo:hippocampus"], "cpu")) == {"swin-factorizer"}
    table = (tmp_path / "out" / "agreement-u-net.csv").read_text().splitlines()
    assert table[0].startswith("layer,picture,region,cases,dice,dice_low,dice_high,chance,auc")
    twice = CliRunner().invoke(
        app, [*command, "--model", str(tmp_path / "swin-factorizer"), "-o", str(tmp_path / "two")]
    )
    assert "two models are named swin-factorizer" in twice.stderr
    again = CliRunner().invoke(app, command)
    assert "is not an empty folder" in again.stderr
    Image.fromarray(np.zeros((8, 8, 4), np.uint8)).save(tmp_path / "flat.png")
    flat = [
        "explain",
        "--model",
        str(tmp_path / "nnunet"),
        "-i",
        str(tmp_path / "flat.png"),
        "-o",
        str(tmp_path / "x"),
    ]
    assert "it is 2D, and the model is for 3D images" in CliRunner().invoke(
        app, flat
    ).stderr.replace("\n", "")


def test_files_deep_in_a_data_set_have_its_reference(tmp_path: Path) -> None:
    """However the case is called."""
    write_synthetic("isles22", tmp_path / "data", cases=2, size=24, seed=0)
    data = load_preset("isles22").data
    files = [
        next((tmp_path / "data").rglob(f"*0002*_{channel}.nii.gz")) for channel in ("dwi", "adc")
    ]
    (tmp_path / "list.json").write_text(
        json.dumps([{"case": "mine", "DWI": str(files[0]), "ADC": str(files[1])}])
    )
    cases, _ = read_inputs([tmp_path / "list.json"], data.channels)
    for given in (None, tmp_path / "data"):
        found = find_references(given, files, cases, data)
        assert [case.name for case in found.cases.values()] == ["sub-strokecase0002"]
        assert list(found.cases) == [cases[0].name] == ["mine"]
    write_synthetic("isles22", tmp_path / "others", cases=1, size=24, seed=1)
    with pytest.raises(ValueError, match="has a label in"):
        find_references(tmp_path / "others", files, cases, data)


@pytest.mark.slow
def test_a_case_that_fails_is_in_no_table_and_the_others_continue(
    tmp_path: Path, monkeypatch
) -> None:
    write_synthetic("brats", tmp_path / "data", cases=2, size=24, seed=0)
    cohort = read_cohort(tmp_path / "data")
    settings = ["model.widths=[8,16]", "data.patch_size=[16,16,16]", "model.window=4"]
    preset = change_preset(load_preset("brats"), settings)
    models = {}
    for name in ("swin-factorizer", "nnunet"):
        own = change_preset(preset, [f"model.name={name}"])
        models[name] = Predictor(own, [network_of(own)])
    layers = {
        name: choose_layers(layers_of(model.networks[0]), "last") for name, model in models.items()
    }
    references = References({case.name: case for case in cohort.cases}, cohort.label_values)
    explainer = Explainer(models, layers, tmp_path / "out", references=references, volumes=True)
    # five copies of the U-Net's eight channels; a Factorizer's head of eight has one component
    need = 5 * 4 * 8 * 24**3
    monkeypatch.setattr("factorizer.data.capacity.usable_bytes", lambda: need - 1)
    with pytest.raises(DataError, match="a layer of 8 components takes"):
        explainer.explain(cohort.cases[0])
    assert explainer.rows == {"swin-factorizer": [], "nnunet": []}
    monkeypatch.setattr("factorizer.data.capacity.usable_bytes", lambda: need)
    explainer.explain(cohort.cases[1])
    assert {row.case for rows in explainer.rows.values() for row in rows} == {cohort.cases[1].name}


@pytest.mark.slow
def test_one_case_of_a_data_set_has_its_reference_and_two_dimensions_their_components(
    tmp_path: Path,
) -> None:
    images = np.random.default_rng(0).integers(1, 255, (4, 32, 32, 3), np.uint8)
    data = tmp_path / "data"
    data.mkdir()
    for index, image in enumerate(images):
        Image.fromarray(image).save(data / f"Image_0{index}L.jpg")
        Image.fromarray((image[..., 0] > 128).astype(np.uint8) * 255).save(
            data / f"Image_0{index}L_1stHO.png"
        )
    changes = [
        "training.max_steps=1",
        "training.folds=2",
        "model.widths=[8,16]",
        "data.patch_size=[16,16]",
    ]
    preset = change_preset(load_preset("chasedb1"), changes)
    train_fold(
        preset, data=data, fold=0, out=tmp_path / "run", machine=Machine(device="cpu", workers=0)
    )
    command = ["explain", "--model", str(tmp_path / "run"), "-i", str(data / "Image_00L.jpg")]
    result = CliRunner().invoke(
        app, [*command, "-o", str(tmp_path / "out"), "--device", "cpu", "--layer", "first"]
    )
    assert result.exit_code == 0, result.output
    assert "vessel" in result.stdout
    components = np.load(tmp_path / "out" / "Image_00L" / "conv-factorizer-layer1.npz")["pictures"]
    assert components.shape == (32, 32, 1)


def test_a_bug_in_one_case_leaves_the_others_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_synthetic("hippocampus", tmp_path / "data", cases=2, size=24, seed=0)
    first, second = sorted(case.name for case in read_cohort(tmp_path / "data").cases)
    settings = ["model.widths=[8,16]", "model.window=4", "data.patch_size=[16,16,16]"]
    preset = change_preset(load_preset("hippocampus"), settings)
    untrained = Predictor(preset, [network_of(preset)])
    monkeypatch.setattr("factorizer.studies.explaining.load", lambda *_, **__: untrained)
    monkeypatch.chdir(tmp_path)  # the report of the bug goes here

    def view_with_a_bug(predictor, prepared, layers):
        return {}[first] if prepared.name == first else view_layers(predictor, prepared, layers)

    monkeypatch.setattr("factorizer.studies.explaining.view_layers", view_with_a_bug)
    out = tmp_path / "out"
    result = explain(["mine=run"], [tmp_path / "data"], out=out, layers="first")
    (problem,) = result.problems
    assert (problem.case, problem.severity) == (first, "bug")
    assert {row.cases for row in result.tables["mine"]} == {1}
    assert set(result.files) == {
        out / f"{second}.png",
        out / second / "mine-layer1-factors.csv",
        out / "alignment-mine.csv",
        out / "agreement-mine.csv",
    }
    assert all(file.is_file() for file in result.files)


def test_what_cannot_be_explained_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FactorizerError, match="is not an empty folder"):
        explain(["zoo:hippocampus"], [tmp_path / "nowhere"], out=tmp_path)
    with pytest.raises(FactorizerError, match="no model is given"):
        explain([], [tmp_path / "nowhere"], out=tmp_path / "out")
    with pytest.raises(FactorizerError, match="give first, last, both, all, or numbers"):
        explain(["zoo:hippocampus"], [tmp_path], out=tmp_path / "out", layers="99", device="cpu")
    assert not (tmp_path / "out").exists()
