"""Every number that a user can give has a lower and an upper bound, on the command line and in
presets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.config import Preset
from factorizer.preset_files import (
    PresetError,
    change_preset,
    load_preset,
    preset_names,
    zoo_presets,
)


def options(typer_app: typer.Typer, path: str = "") -> Iterator[tuple[str, set[Any], Any]]:
    """Every option and argument of every command: its place, the types it may have, and typer's
    description."""
    for command in typer_app.registered_commands:
        for name, hint in get_type_hints(command.callback, include_extras=True).items():
            if get_origin(hint) is Annotated:
                kind, info = get_args(hint)
                name_of_command = command.name or command.callback.__name__
                yield f"{path}{name_of_command} {name}", {kind, *get_args(kind)}, info
    for group in typer_app.registered_groups:
        yield from options(group.typer_instance, f"{path}{group.name} ")


def numbers(schema: Any, root: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The integers and floats of a JSON schema, each with its place."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    if schema.get("type") in ("integer", "number"):
        yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from numbers(inner, root, f"{path}.{name}".strip("."))
    parts = [*schema.get("anyOf", []), *schema.get("prefixItems", [])]
    parts += [
        schema[key]
        for key in ("items", "additionalProperties")
        if isinstance(schema.get(key), dict)
    ]
    for part in parts:
        yield from numbers(part, root, path)


def test_every_number_of_the_command_line_is_bounded() -> None:
    found = [(name, info) for name, kinds, info in options(app) if {int, float} & kinds]
    named = {name for name, _ in found}
    assert {
        "train workers",
        "predict batch_size",
        "data synth cases",
        "ablate inference iterations",
    } <= named
    for name, info in found:
        assert info.min is not None, f"{name} has no lower bound"
        assert info.max is not None, f"{name} has no upper bound"


def test_every_number_of_a_preset_is_bounded() -> None:
    schema = Preset.model_json_schema()
    found = list(numbers(schema, schema, ""))
    assert {
        "training.batch_size",
        "data.patch_size",
        "data.labels",
        "data.clip",
        "model.strides",
    } <= {p for p, _ in found}
    for path, own in found:
        assert {"minimum", "exclusiveMinimum"} & set(own), f"{path} has no lower bound"
        assert {"maximum", "exclusiveMaximum"} & set(own), f"{path} has no upper bound"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "training.batch_size=100000000",
            r"training\.batch_size: .*less than or equal to 4096 \(got 100000000\)",
        ),
        ("model.num_iters=1000000000", r"model\.num_iters: .*less than or equal to 1000"),
        ("model.widths=[8,1000000]", r"model\.widths\.1: .*less than or equal to 4096"),
        ("model.depths=[1000000]", r"model\.depths.*less than or equal to 100"),
        ("model.strides=1000000", r"model\.strides.*less than or equal to 64"),
        ("model.window=[100000]", r"model\.window.*less than or equal to 4096"),
        ("model.head_dim=1000000", r"model\.head_dim: .*less than or equal to 4096"),
        ("model.mlp_ratio=.inf", r"model\.mlp_ratio: .*less than or equal to 100"),
        ("data.patch_size=[100000,8,8]", r"data\.patch_size\.0: .*less than or equal to 4096"),
        (
            "data.patch_size=[1024,1024,1024]",
            r"patch_size is 1024 x 1024 x 1024; a patch has at most 134,217,728",
        ),
        (
            "data.spacing_mm=[0.01,0.01,0.01]",
            r"data\.spacing_mm\.0: .*greater than or equal to 0\.05",
        ),
        (
            "training.max_steps=1000000000000",
            r"training\.max_steps: .*less than or equal to 100000000",
        ),
        ("training.folds=1000000", r"training\.folds: .*less than or equal to 10000"),
        ("training.learning_rate=1.0e+30", r"training\.learning_rate: .*less than or equal to 10"),
        ("training.gradient_clip=.nan", r"training\.gradient_clip: .*"),
        ("inference.overlap=0.999999", r"inference\.overlap: .*less than or equal to 0\.95"),
        ("model.extra={feature_size: 1000000}", "extra sets feature_size beyond 65,536"),
        ("model.extra={depths: [2, [1000000]]}", "extra sets depths beyond 65,536"),
    ],
)
def test_what_would_take_the_machine_down_is_refused_with_its_bound(
    change: str, message: str
) -> None:
    with pytest.raises(PresetError, match=message):
        change_preset(load_preset("isles22"), [change])


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(PresetError, match=r"batch_size: .*got a number with thousands of digits"):
        change_preset(load_preset("isles22"), [f"training.batch_size=0x{'f' * 6000}"])


@pytest.mark.parametrize(
    "change",
    [
        "training.batch_size=512",
        "training.max_steps=100000000",
        "model.widths=[64,128,256,512,1024,2048,4096]",
        "model.num_iters=100",
        "data.patch_size=[512,512,512]",
        "data.spacing_mm=[0.1,0.1,0.1]",
        "inference.overlap=0.9",
        "training.folds=100",
        "model.extra={seed: 4000000000}",
    ],
)
def test_sensible_use_is_not_refused(change: str) -> None:
    change_preset(load_preset("isles22"), [change])


def test_what_ships_is_within_the_bounds() -> None:
    for name in [*preset_names(), *(f"zoo:{name}" for name in zoo_presets())]:
        assert load_preset(name).title


def test_the_command_line_says_the_bound() -> None:
    result = CliRunner().invoke(app, ["profile", "--preset", "isles22", "--rounds", "1000000000"])
    assert result.exit_code == 2
    assert "less than or equal to 1000" in result.stderr
