"""The zoo: how a run becomes a model of it, what is listed, and that every model that ships does
its work."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from factorizer import preset_files
from factorizer.cli import app
from factorizer.data.images import canonical_grid, open_image, read_label
from factorizer.data.layouts import read_cohort
from factorizer.data.matching import select_label_values
from factorizer.evaluation.label_maps import score_label_maps
from factorizer.inference.load import load
from factorizer.preset_files import PresetError, load_preset
from factorizer.runs import zoo
from factorizer.runs.fold import Fold
from factorizer.runs.weights import read_weights, verify_checksum
from testkit.places import REAL_DATA, needs_real_data


@pytest.fixture
def fold(stroke_fold: Path) -> Path:
    return stroke_fold


@pytest.fixture
def small(fold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo with one model, zoo:small."""
    folder = tmp_path / "zoo" / "small"
    zoo.write_model(Fold(fold), read_weights(Fold(fold)), folder)
    (folder / "card.md").write_text("# A card\n")
    monkeypatch.setattr(preset_files, "ZOO_FOLDER", tmp_path / "zoo")
    return folder


@pytest.mark.slow
def test_a_model_is_its_run_in_half_precision(fold: Path, small: Path) -> None:
    ours, theirs = (
        load(source, device="cpu").networks[0].state_dict() for source in ("zoo:small", fold)
    )
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype
        torch.testing.assert_close(ours[name], value, rtol=1e-3, atol=1e-4)
    assert (small / "scores.csv").read_text() == (fold / "scores.csv").read_text()
    assert (small / "weights.safetensors").stat().st_size < 3 * sum(
        v.numel() for v in theirs.values()
    ) + 10_000


def test_weights_beyond_half_precision_are_refused(fold: Path, tmp_path: Path) -> None:
    weights = {**read_weights(Fold(fold)), "extra": torch.tensor([1e6])}
    with pytest.raises(zoo.ModelError, match="beyond half precision"):
        zoo.write_model(Fold(fold), weights, tmp_path / "zoo")


def test_messages_name_a_model_of_the_zoo_and_not_where_it_is_installed(small: Path) -> None:
    def refused(*options: str, source: str = "zoo:small") -> str:
        with pytest.raises(ValueError, match="zoo:small") as caught:
            load(source, device="cpu", **dict(zip(options[::2], options[1::2], strict=True)))
        assert str(small.parent) not in str(caught.value)
        return str(caught.value)

    assert "zoo:small has the speeds best, not fast" in refused("speed", "fast")
    (small / "speeds.json").write_text("[]")
    refused("speed", "fast")
    content = (small / "weights.safetensors").read_bytes()
    (small / "weights.safetensors").write_bytes(content[:-1] + b"?")
    assert "install the package again" in refused()
    (small / "weights.safetensors").write_bytes(content)
    config = (small / "config.yaml").read_text()
    (small / "config.yaml").write_text(config.replace("widths: [8, 16]", "widths: [8, 24]"))
    assert "the weights of zoo:small do not fit its config.yaml" in refused()
    (small / "config.yaml").write_text(config.replace("rank: 1", "rank: 0"))
    refused()
    with pytest.raises(ValueError, match=r"zoo:small has no postprocessing.json"):
        Fold(small).rules(["lesion"])


def test_a_model_names_its_preset(small: Path) -> None:
    assert load_preset("zoo:small") == load_preset(small / "config.yaml")
    with pytest.raises(PresetError, match=r"there is no model zoo:smal; did you mean 'small'"):
        load_preset("zoo:smal")


def test_the_list_and_the_card(small: Path) -> None:
    result = CliRunner().invoke(app, ["zoo"])
    assert "zoo:small" in result.stdout
    assert "lesion 0." in result.stdout
    assert "Not for clinical use" in result.stderr
    (model,) = json.loads(CliRunner().invoke(app, ["zoo", "--json"]).stdout)
    assert model["channels"] == ["DWI", "ADC"]
    (dice,) = model["dice"]
    assert dice["low"] <= dice["mean"] <= dice["high"]
    assert CliRunner().invoke(app, ["zoo", "show", "zoo:small"]).stdout == "# A card\n"
    wrong = CliRunner().invoke(app, ["zoo", "show", "smal"])
    assert wrong.exit_code == 2
    assert "did you mean 'small'? It has small" in wrong.stderr
    assert CliRunner().invoke(app, ["zoo", "--json", "show", "small"]).exit_code == 2


SHIPPED = {"hippocampus": "Task04_Hippocampus", "isles22-stroke": "ISLES-2022"}


def test_what_ships_is_complete_and_small() -> None:
    assert set(zoo.zoo_names()) == set(SHIPPED)
    for name in SHIPPED:
        model = zoo.describe_model(name)
        verify_checksum(zoo.zoo_model(name))
        assert "not for clinical use" in model.card.lower()
        assert "CC BY" in model.card
        assert "CC BY" in (zoo.zoo_model(name).path / "LICENSE.txt").read_text()
        for dice in model.dice:
            assert f"{dice.mean:.3f} [{dice.low:.3f}, {dice.high:.3f}]" in model.card
    package = Path(zoo.__file__).parents[1]
    assert sum(file.stat().st_size for file in package.rglob("*") if file.is_file()) < 25e6


@pytest.mark.slow
@needs_real_data
@pytest.mark.parametrize("name", SHIPPED)
def test_held_out_scans_are_segmented_as_the_card_says(name: str, tmp_path: Path) -> None:
    """By the command line, on the files as they were downloaded: the scores are those that ship
    with the model."""
    cohort = read_cohort(REAL_DATA / SHIPPED[name])
    rows = [row for row in zoo.zoo_model(name).scores() if row.metric == "dice"]
    case = cohort.case(rows[0].case)
    files = dict.fromkeys(source.file for source in case.channels.values())
    inputs = [part for file in files for part in ("-i", str(file))]
    result = CliRunner().invoke(
        app, ["predict", "--model", f"zoo:{name}", *inputs, "-o", str(tmp_path), "--json"]
    )
    assert result.exit_code == 0, result.output
    (written,) = json.loads(result.stdout)["written"].values()
    data = zoo.describe_model(name).preset.data
    grid = open_image(case.name, Path(written), as_label=True).grid
    ours = read_label(
        replace(case, label=Path(written)), {v: v for v in (0, *data.labels.values())}, grid
    )
    theirs = read_label(case, select_label_values(cohort, data.labels), grid)
    scores = score_label_maps(
        case.name,
        ours,
        theirs,
        targets=data.targets,
        spacing_mm=canonical_grid(grid).spacing_mm,
    )
    found = {row.region: row.value for row in scores if row.metric == "dice"}
    assert found == pytest.approx(
        {row.region: row.value for row in rows if row.case == case.name}, abs=0.005
    )
