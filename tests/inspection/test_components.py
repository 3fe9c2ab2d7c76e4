"""Components of layers: against the layer's own result, over windows, patches and files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import mannwhitneyu
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.commands.explain import find_references, load_models
from factorizer.data.images import Volume, VoxelGrid
from factorizer.data.inputs import read_inputs
from factorizer.data.layouts import read_cohort
from factorizer.data.preprocess import preprocessing_of
from factorizer.data.synthetic import write_synthetic
from factorizer.evaluation.metrics import dice
from factorizer.inference.load import make_network
from factorizer.inference.predictor import Predictor
from factorizer.inspection.alignment import Alignment, align, best_per_region, summarize
from factorizer.inspection.components import Viewer, choose_layers, factorize, layers_of
from factorizer.inspection.explain import view_layers
from factorizer.inspection.report import Explainer
from factorizer.nn.blocks import ResidualNMF
from factorizer.preset_files import change_preset, load_preset
from factorizer.training.run import train_fold
from factorizer.training.trainer import Machine
from testkit.small import build_small


@pytest.mark.parametrize("name", ["global-factorizer", "local-factorizer", "swin-factorizer"])
@pytest.mark.parametrize(("rank", "solver"), [(1, "hals"), (2, "hals"), (2, "semi")])
def test_factors_give_the_layer_back(name: str, rank: int, solver: str) -> None:
    """F G^T of every window, dematricized and projected, is what the layer adds to its input."""
    torch.manual_seed(0)
    layer = next(
        m
        for m in build_small(name, rank=rank, solver=solver).eval().modules()
        if isinstance(m, ResidualNMF)
    )
    x = torch.randn(1, 8, 16, 16, 16)
    wrapped = layer.wrapped_nmf
    with torch.no_grad():
        f, _, pictures = factorize(layer, x)
        assert pictures.shape == (1, rank * 8 // wrapped.matricize.head_dim, 16, 16, 16)
        torch.testing.assert_close(
            torch.linalg.vector_norm(f, dim=-2), torch.ones_like(f[..., 0, :])
        )
        matricize = wrapped.matricize.fitted(x.shape[2:])
        projected = wrapped.in_proj(layer.norm(x.movedim(1, -1))).movedim(-1, 1)
        projected = projected if solver == "semi" else projected.relu()
        _, g = wrapped.nmf.factorize(matricize.matricize(projected))
        product = matricize.dematricize(f @ g.mT, x.shape[2:])
        rebuilt = x + wrapped.out_proj(product.movedim(1, -1)).movedim(-1, 1)
        torch.testing.assert_close(rebuilt, layer(x), rtol=1e-4, atol=1e-5)


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
    predictor = Predictor(preset, [make_network(preset)])
    image = np.random.default_rng(0).normal(size=(1, 16, 16, 24)).astype(np.float32)
    grid = VoxelGrid((16, 16, 24), np.diag([-1.0, 1.0, 1.0, 1.0]))
    prepared = preprocessing_of(preset.data).apply(Volume(image, grid))
    layers = layers_of(predictor.networks[0])[:1]
    (view,) = view_layers(predictor, prepared, layers)
    expected, count = np.zeros((1, 16, 16, 24)), np.zeros(24)
    with torch.no_grad():
        for start in (0, 8):
            patch = torch.from_numpy(image[None, ..., start : start + 16])
            expected[..., start : start + 16] += Viewer(predictor.networks[0], layers)(patch)[
                0
            ].numpy()
            count[start : start + 16] += 1
    np.testing.assert_allclose(view.pictures, expected / count, rtol=1e-4, atol=1e-5)


def test_layers_are_numbered_along_the_data_path() -> None:
    network = build_small("swin-factorizer").eval()
    layers = layers_of(network)
    assert [layer.number for layer in layers] == [1, 2, 3, 4, 5]  # three levels
    seen: list[int] = []
    for layer in layers:
        layer.part.register_forward_hook(lambda *_, number=layer.number: seen.append(number))
    with torch.no_grad():
        network(torch.randn(1, 2, 16, 16, 16))
    assert seen == [1, 2, 3, 4, 5]
    assert [layer.number for layer in choose_layers(layers, "both")] == [1, 5]
    assert [layer.number for layer in choose_layers(layers, "2,4,2")] == [2, 4]
    with pytest.raises(
        ValueError, match="--layer got '9'; give first, last, both, all, or numbers from 1 to 5"
    ):
        choose_layers(layers, "9")
    with pytest.raises(ValueError, match="no blocks that can be looked at"):
        layers_of(build_small("unetr"))


def test_a_viewer_leaves_the_network_alone_and_takes_convolutions_too() -> None:
    for name, count in (("swin-factorizer", 2), ("nnunet", 16)):
        network = build_small(name).eval()
        x = torch.randn(1, 2, 16, 16, 16)
        with torch.no_grad():
            before = network(x)
            layers = layers_of(network)[1:2]
            pictures = Viewer(network, layers)(x)
            assert torch.equal(network(x), before)
        assert pictures.shape == (1, count, 16, 16, 16)
        assert (pictures >= 0).all() == (name == "swin-factorizer")


def test_alignment_against_others() -> None:
    generator = np.random.default_rng(0)
    mask = generator.random(500) < 0.2
    picture = np.round(generator.normal(mask * 1.0, 1.0), 1)  # with ties
    ((best, chance, auc),) = align(picture, mask[None])
    assert chance == pytest.approx(dice(np.ones(500, bool), mask))
    expected = mannwhitneyu(picture[mask], picture[~mask]).statistic / (mask.sum() * (~mask).sum())
    assert auc == pytest.approx(expected)
    assert best == pytest.approx(max(dice(picture >= cut, mask) for cut in np.unique(picture)))
    ((scaled, _, _),) = align(1000 * picture + 5, mask[None])
    assert scaled == best
    ((dark, _, _),) = align(
        -mask.astype(float), mask[None]
    )  # a picture with a hole where the region is
    assert Alignment("c", 1, 1, "ET", dark, chance, 0.0).gain == pytest.approx(0)
    assert np.isnan(align(picture, np.zeros((1, 500), bool))[0]).all()


def test_a_summary_is_over_the_cases_that_have_the_region() -> None:
    rows = [
        Alignment(f"c{i}", 1, p, "ET", 0.2 * p + 0.01 * i, 0.1, 0.9)
        for i in range(5)
        for p in (1, 2)
    ]
    rows.append(Alignment("c9", 1, 1, "ET", *[float("nan")] * 3))
    first, second = summarize(rows)
    assert (first.cases, second.picture) == (5, 2)
    assert first.dice == pytest.approx(0.22)
    assert first.dice_low <= first.dice <= first.dice_high
    assert best_per_region([first, second]) == [second]


@pytest.mark.slow
def test_the_command_line(tumour_run: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_synthetic("brats", data, cases=4, size=24, seed=0)
    changes = [
        "training.max_steps=2",
        "training.folds=2",
        "model.widths=[8,16]",
        "data.patch_size=[16,16,16]",
    ]
    preset = change_preset(load_preset("brats"), [*changes, "model.name=nnunet"])
    machine = Machine(device="cpu", workers=0)
    train_fold(preset, data=data, fold=0, out=tmp_path / "nnunet", machine=machine)
    command = [
        "explain",
        "--run",
        str(tumour_run / "fold0"),
        "-i",
        str(data),
        "-o",
        str(tmp_path / "out"),
    ]
    command += ["--run", f"u-net={tmp_path / 'nnunet'}", "--device", "cpu", "--json"]
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
    found, _ = find_references(
        None, [first], read_inputs([first], preset.data.channels)[0], preset.data
    )
    assert set(found) == {"BRATS_001"}
    assert set(load_models(["zoo:hippocampus"], "cpu")) == {"swin-factorizer"}
    table = (tmp_path / "out" / "agreement-u-net.csv").read_text().splitlines()
    assert table[0].startswith("layer,picture,region,cases,dice,dice_low,dice_high,chance,auc")
    twice = CliRunner().invoke(
        app, [*command, "--run", str(tumour_run / "fold0"), "-o", str(tmp_path / "two")]
    )
    assert "two runs are named swin-factorizer" in twice.stderr
    again = CliRunner().invoke(app, command)
    assert "is not an empty folder" in again.stderr
    Image.fromarray(np.zeros((8, 8, 4), np.uint8)).save(tmp_path / "flat.png")
    flat = [
        "explain",
        "--run",
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
        found, _ = find_references(given, files, cases, data)
        assert [case.name for case in found.values()] == ["sub-strokecase0002"]
        assert list(found) == [cases[0].name] == ["mine"]
    write_synthetic("isles22", tmp_path / "others", cases=1, size=24, seed=1)
    with pytest.raises(ValueError, match="has a label in"):
        find_references(tmp_path / "others", files, cases, data)


def test_a_case_that_fails_is_in_no_table_and_the_others_go_on(tmp_path: Path, monkeypatch) -> None:
    write_synthetic("brats", tmp_path / "data", cases=2, size=24, seed=0)
    cohort = read_cohort(tmp_path / "data")
    settings = ["model.widths=[8,16]", "data.patch_size=[16,16,16]", "model.window=4"]
    preset = change_preset(load_preset("brats"), settings)
    models = {}
    for name in ("swin-factorizer", "nnunet"):
        own = change_preset(preset, [f"model.name={name}"])
        models[name] = Predictor(own, [make_network(own)])
    references = {case.name: case for case in cohort.cases}
    explainer = Explainer(
        models,
        "last",
        tmp_path / "out",
        references=references,
        label_values=cohort.label_values,
        write_volumes=True,
    )
    need = (
        5 * 4 * 8 * 24**3
    )  # of the U-Net's eight channels; a Factorizer's head of eight has one picture
    monkeypatch.setattr("factorizer.inspection.report.usable_bytes", lambda: need - 1)
    (problem,) = explainer.explain(cohort.cases[0])
    assert "8 pictures of a layer take" in problem.message
    assert explainer.rows == {"swin-factorizer": [], "nnunet": []}
    monkeypatch.setattr("factorizer.inspection.report.usable_bytes", lambda: need)
    assert not explainer.explain(cohort.cases[1])
    assert {row.case for rows in explainer.rows.values() for row in rows} == {cohort.cases[1].name}


def test_one_case_of_a_data_set_has_its_reference_and_two_dimensions_their_pictures(
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
    command = ["explain", "--run", str(tmp_path / "run"), "-i", str(data / "Image_00L.jpg")]
    result = CliRunner().invoke(
        app, [*command, "-o", str(tmp_path / "out"), "--device", "cpu", "--layer", "first"]
    )
    assert result.exit_code == 0, result.output
    assert "vessel" in result.stdout
    pictures = np.load(tmp_path / "out" / "Image_00L" / "swin-factorizer-layer1.npz")["pictures"]
    assert pictures.shape == (32, 32, 1)
