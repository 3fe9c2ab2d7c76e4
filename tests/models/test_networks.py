"""The network of a preset: whose fault it is if it cannot be built."""

from __future__ import annotations

import pytest

from factorizer.config import Preset, networks
from factorizer.config.networks import build_system, network_of
from factorizer.errors import FactorizerError
from factorizer.preset_files import change_preset, load_preset
from factorizer.profiling.table import count_rows

SMALL = ["model.name=nnunet", "model.widths=[8,16]", "data.patch_size=[16,16,16]"]


def small_preset(*changes: str) -> Preset:
    return change_preset(load_preset("isles22"), [*SMALL, *changes])


@pytest.mark.parametrize("groups", ["a", "0", "[1]"])
def test_wrong_values_in_extra_are_the_users(groups: str) -> None:
    preset = small_preset(f"model.extra={{groups: {groups}}}")
    with pytest.raises(FactorizerError, match=r"model.extra, which sets groups .*; correct"):
        network_of(preset)
    (row,) = count_rows(preset, "", ["nnunet"])
    assert row.note.startswith("cannot be built: nnunet cannot be built with model.extra")


def test_extra_is_not_to_blame_for_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    preset = small_preset("model.extra={groups: 4}")
    monkeypatch.setattr(networks, "build_model", fail)
    with pytest.raises(ValueError, match="zip") as caught:
        build_system(preset, "res-unet")
    assert not isinstance(caught.value, FactorizerError)


def test_any_other_error_of_building_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "build_model", fail)
    monkeypatch.setattr(networks, "build_network", fail)
    for build in (
        lambda: network_of(small_preset()),
        lambda: count_rows(small_preset(), "", ["nnunet"]),
    ):
        with pytest.raises(ValueError, match="zip") as caught:
            build()
        assert not isinstance(caught.value, FactorizerError)


def test_a_network_without_room_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise RuntimeError("can't allocate memory: you tried to allocate 10 bytes")

    monkeypatch.setattr(networks, "build_network", no_room)
    with pytest.raises(FactorizerError, match="too large to be computed; lower them"):
        network_of(small_preset())


def fail(*_: object, **__: object) -> None:
    raise ValueError("zip() argument 2 is longer than argument 1")
