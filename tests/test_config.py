"""Presets: typed, complete, and with clear errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from factorizer.config import Preset, Section, model_options
from factorizer.models.registry import SYSTEMS, options_of
from factorizer.preset_files import (
    PresetError,
    change_preset,
    load_preset,
    parse_preset,
    preset_names,
    to_yaml,
)

MINIMAL = (
    "title: t\n"
    "data: {channels: [T1], labels: {a: 1}, regions: {A: [a]}, patch_size: [32, 32, 32]}\n"
)


def with_change(text: str) -> str:
    """The minimal preset, changed by YAML with the same sections."""
    values, change = yaml.safe_load(MINIMAL), yaml.safe_load(text)
    for section, fields in change.items():
        values[section] = values.get(section, {}) | fields if isinstance(fields, dict) else fields
    return yaml.safe_dump(values)


def sections(section: type[Section]) -> list[type[Section]]:
    found = [section]
    for field in section.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found += sections(field.annotation)
    return found


def test_every_preset_loads_and_is_the_same_after_to_yaml() -> None:
    assert {"brats", "isles22"} <= set(preset_names())
    for name in preset_names():
        preset = load_preset(name)
        assert parse_preset(to_yaml(preset), name) == preset
        assert preset.title
        assert preset.source


def test_every_field_is_documented_and_shown_with_its_text() -> None:
    lines = to_yaml(load_preset("brats")).splitlines()
    for section in sections(Preset):
        for name, field in section.model_fields.items():
            assert field.description, name
            shown = [line for line in lines if line.strip().startswith(f"{name}:")]
            assert any(field.description in line for line in shown)


def test_the_papers_setup() -> None:
    """Presets have the values of Sec. 4.2 and App. A."""
    brats, isles = load_preset("brats"), load_preset("isles22")
    assert brats.data.channels == ("FLAIR", "T1", "T1Gd", "T2")
    assert list(brats.data.regions) == ["ET", "TC", "WT"]
    assert (brats.data.patch_size, isles.data.patch_size) == ((128,) * 3, (64,) * 3)
    assert isles.data.spacing_mm == (2.0, 2.0, 2.0)
    assert isles.data.channels == ("DWI", "ADC")
    assert [(p.model.window, p.model.head_dim, p.model.mlp_ratio) for p in (brats, isles)] == [
        (8, 8, 2),
        (4, 4, 4),
    ]
    for preset in (brats, isles):
        model, training, inference = preset.model, preset.training, preset.inference
        assert (model.name, model.rank, model.num_iters, model.solver) == (
            "swin-factorizer",
            1,
            5,
            "hals",
        )
        assert model.widths == (32, 64, 128, 256, 512)
        assert (training.max_steps, training.batch_size, training.warmup_steps) == (
            100_000,
            2,
            2_000,
        )
        assert (training.learning_rate, training.weight_decay, training.dice_epsilon) == (
            1e-4,
            1e-2,
            1e-5,
        )
        assert training.deep_supervision_weights == (1, 0.5, 0.25)
        assert training.gradient_clip is None
        assert training.folds == 5
        assert preset.data.foreground_fraction == 0
        assert (inference.overlap, inference.blending, inference.threshold) == (
            0.5,
            "constant",
            0.5,
        )
        changes = preset.data.augmentation.model_dump()
        for further in ("elastic", "low_resolution", "inverted_contrast", "channel_dropout"):
            assert changes.pop(further)["probability"] == 0
        assert list(changes) == [
            "affine",
            "flip",
            "gaussian_noise",
            "gaussian_smoothing",
            "scale_intensity",
            "shift_intensity",
            "adjust_contrast",
        ]
        assert [change.pop("probability") for change in changes.values()] == [
            0.15,
            0.5,
            0.15,
            0.15,
            0.15,
            0.15,
            0.15,
        ]
        assert changes == {
            "affine": {"rotation_degrees": (-30, 30), "axes": None, "scale": (0.7, 1.3)},
            "flip": {"axes": None},
            "gaussian_noise": {"variance": (0, 0.1)},
            "gaussian_smoothing": {"sigma_voxels": (0.5, 1.5)},
            "scale_intensity": {"factor": (0.7, 1.3)},
            "shift_intensity": {"offset": (-0.1, 0.1)},
            "adjust_contrast": {"gamma": (0.7, 1.5)},
        }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "training: {max_stps: 3}",
            r"training\.max_stps: there is no such field; did you mean 'max_steps'",
        ),
        ("dataa: {}", r"dataa: there is no such field; did you mean 'data'"),
        (
            "data: {augmentation: {affine: {scal: 1}}}",
            r"data\.augmentation\.affine\.scal: .* did you mean 'scale'",
        ),
        ("data: {regions: {A: [b]}}", "region A names b; it must list some of the labels a"),
        ("data: {regions: {A: []}}", "region A is empty"),
        ("data: {labels: {a: 0}}", r"data\.labels\.a: .*greater than or equal to 1 .*got 0"),
        (
            "data: {labels: {a: 1, b: 1}}",
            r"labels have the values \[1, 1\]; give each its own value from 1 to 255",
        ),
        ("data: {labels: {a: 300}}", r"data\.labels\.a: .*less than or equal to 255 .*got 300"),
        ("data: {channels: [T1, T1]}", "channels are T1, T1; name each once"),
        (
            "data: {spacing_mm: [.inf, 1, 1]}",
            r"data\.spacing_mm\.0: .*less than or equal to 100 .*got inf",
        ),
        (
            "data: {augmentation: {affine: {scale: [fast, 1]}}}",
            r"data\.augmentation\.affine\.scale\.0: .*number",
        ),
        (
            "data: {augmentation: {gaussian_noise: {variance: [-1, 1]}}}",
            r"gaussian_noise\.variance\.0: .*greater than",
        ),
        ("model: {window: 0}", r"model\.window"),
        (
            "model: {extra: {spatial_size: [8, 8, 8]}}",
            "extra sets spatial_size, which follow from the data section",
        ),
        ("data: {spacing_mm: [1, 1]}", "spacing_mm has 2 numbers, patch_size 3"),
        ("data: {patch_size: [32]}", r"data\.patch_size: .*at least 2 items"),
        ("data: {augmentation: {affine: {scale: [2, 1]}}}", "give the lower end first"),
        (
            "data: {augmentation: {flip: {probability: 1.5}}}",
            r"data\.augmentation\.flip\.probability: .*(got 1\.5)",
        ),
        (
            "data: {augmentation: {flip: {axes: [3]}}}",
            r"data\.augmentation\.flip\.axes\.0: .*(got 3)",
        ),
        (
            "data: {patch_size: [8, 8], augmentation: {flip: {axes: [2]}}}",
            r"flip\.axes is \[2\]; patches have the axes 0",
        ),
        (
            "data: {augmentation: {flip: {axes: [0, 0]}}}",
            r"flip\.axes is \[0, 0\]; name each axis once",
        ),
        (
            "data: {augmentation: {elastic: {axes: [1, 1]}}}",
            r"elastic\.axes is \[1, 1\]; name each axis once",
        ),
        ("data: {augmentation: {elastic: {axes: []}}}", r"elastic\.axes: .*at least 1 item"),
        (
            "data: {patch_size: [8, 8], augmentation: {affine: {axes: [0]}}}",
            r"affine\.axes is for 3D; .* leave it out",
        ),
        (
            "data: {augmentation: {elastic: {displacement_voxels: [0, 9]}}}",
            "may move by 4 before tissue folds",
        ),
        ("training: {batch_size: 0}", r"training\.batch_size: .*greater than 0"),
        ("training: {learning_rate: fast}", r"training\.learning_rate: .*number.*got 'fast'"),
        ("model: {name: swin-factoriser}", "did you mean 'swin-factorizer'"),
        ("model: {solver: als}", r"model\.solver: .*'hals', 'mu', 'semi'"),
        ("title: null", "title"),
    ],
)
def test_errors_name_the_field_and_the_fix(change: str, message: str) -> None:
    with pytest.raises(PresetError, match=message) as refusal:
        parse_preset(with_change(change), "mine.yaml")
    assert len(str(refusal.value)) < 600, "a whole section is no message"


@pytest.mark.parametrize("text", ["", "just words", "a: [1", "- 1"])
def test_a_file_that_is_not_a_preset_is_refused(text: str) -> None:
    with pytest.raises(PresetError, match=r"mine\.yaml"):
        parse_preset(text, "mine.yaml")


def test_presets_are_found_by_name_and_by_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(MINIMAL)
    assert load_preset(file).training.max_steps == 100_000
    assert load_preset(str(file)).data.channels == ("T1",)
    with pytest.raises(PresetError, match="did you mean 'brats'"):
        load_preset("brat")
    with pytest.raises(PresetError, match="there is no preset file"):
        load_preset(tmp_path / "other.yaml")


@pytest.mark.parametrize(
    "name", ["../..", "../presets", "", ".", "hippocampus/../hippocampus", "/etc", "hippocampu"]
)
def test_only_models_of_the_zoo_are_read(name: str) -> None:
    with pytest.raises(PresetError, match="there is no model zoo:"):
        load_preset(f"zoo:{name}")
    assert load_preset("zoo:hippocampus").data.channels == ("MRI",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x [1]\nb: *x", "aliases"),
        ("[" * 40 + "]" * 40, "nested too deep"),
        ("title: a\0b", "not YAML"),
        ("title: 2001-99-99", "not YAML"),
        ("1: x\ntitle: t", "1: "),
        ("null: x\ntitle: t", "cannot be used"),
        ("? [a, b]\n: x", "not YAML"),
        ("title: t\ndata: {1: 2}", r"data\.1"),
        (MINIMAL.replace("{a: 1}", "{1: 1}"), r"data\.labels\.1"),
        (MINIMAL.replace("title: t", "title: 5"), r"title: .*string.*got 5"),
        (MINIMAL.replace("title: t", "title: 2001-01-01"), "title: .*string"),
        (MINIMAL + f"training: {{batch_size: 0x{'f' * 6000}}}", "batch_size"),
        (MINIMAL + f"training: {{learning_rate: 1{'0' * 400}}}", "learning_rate"),
        (MINIMAL + f"training: {{seed: 1{'0' * 5000}}}", "not YAML"),
        (MINIMAL + "".join(f"x{i}: 1\n" for i in range(500)), "and 480 more"),
    ],
)
def test_hostile_presets_are_refused_with_a_short_message(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(PresetError, match=message) as refusal:
        load_preset(file)
    assert "mine.yaml" in str(refusal.value)
    assert len(str(refusal.value)) < 5000


def test_a_pipe_or_a_folder_is_not_a_preset(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(PresetError, match="not a regular file"):
        load_preset(tmp_path / "pipe.yaml")
    with pytest.raises(PresetError, match="not a regular file"):
        load_preset(f"{tmp_path}/")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.widths=8,16", r"a list needs brackets: 'model\.widths=\[8,16\]'"),
        ("data.spacing_mm=1, 1.5, 2e0", r"'data\.spacing_mm=\[1,1\.5,2e0\]'"),
        ("max_steps=5", r"there is no field 'max_steps'; did you mean training\.max_steps=5\?$"),
        ("flip.probability=0", r"did you mean data\.augmentation\.flip\.probability=0"),
        ("model.max_steps=5", r"did you mean training\.max_steps=5"),
        ("traning.max_steps=5", r"there is no section 'traning'; did you mean 'training'"),
        (
            "training.max_step=5",
            r"training\.max_step: there is no such field; did you mean 'max_steps'",
        ),
        ("training.max_steps=*a", "aliases"),
    ],
)
def test_changes_suggest_the_right_form(change: str, message: str) -> None:
    with pytest.raises(PresetError, match=message):
        change_preset(load_preset("isles22"), [change])


def test_names_that_users_choose_are_not_fields() -> None:
    changed = change_preset(
        load_preset("isles22"), ["data.labels={name: 1}", "data.regions={name: [name]}"]
    )
    assert change_preset(changed, ["data.labels.seed=2"]).data.labels == {"name": 1, "seed": 2}
    assert change_preset(changed, ["title=1,2"]).title == "1,2"


def test_a_preset_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_preset("brats").training.max_steps = 3


def test_each_system_gets_the_fields_it_has() -> None:
    model = load_preset("isles22").model
    chosen = {name: model_options(model, name, options_of(name)) for name in SYSTEMS}
    assert chosen["swin-factorizer"]["window"] == 4
    assert "window" not in chosen["global-factorizer"]
    assert set(chosen["nnunet"]) == {"widths", "depths", "strides", "deep_supervision"}
    assert chosen["performer"]["head_dim"] == 4
    assert chosen["unetr"] == chosen["swin-unetr"] == chosen["transbts"] == {}
    extra = model.model_copy(update={"name": "unetr", "extra": {"feature_size": 12}})
    assert model_options(extra, "unetr", options_of("unetr")) == {"feature_size": 12}
    assert "feature_size" not in model_options(
        extra, "nnunet", options_of("nnunet")
    )  # it is for the preset's system


@pytest.mark.parametrize("package", ["torch", "numpy"])
def test_the_schema_needs_no_slow_package(package: str) -> None:
    code = (
        "import factorizer.preset_files as files, sys; files.load_preset('brats'); "
        f"print({package!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
