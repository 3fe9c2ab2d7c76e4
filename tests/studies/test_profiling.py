"""The profile of systems as a library function."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from factorizer.errors import FactorizerError
from factorizer.profiling.table import Row
from factorizer.studies import profiling
from factorizer.studies.profiling import profile


def test_memory_is_saved_before_the_times_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> list[Row]:
        raise MemoryError

    out = tmp_path / "rows.json"
    row = Row("nnunet", forward_mib=1.0, training_mib=2.0)
    monkeypatch.setattr(profiling, "measure_memory", lambda *_, **__: [row])
    monkeypatch.setattr(profiling, "measure_time", fail)
    with pytest.raises(MemoryError):
        profile("isles22", systems=["nnunet"], measure=True, out=out)
    assert json.loads(out.read_text())[0]["training_mib"] == 2.0


def test_a_single_system_that_cannot_be_built_is_an_error(tmp_path: Path) -> None:
    from factorizer.preset_files import change_preset, load_preset, to_yaml

    preset = tmp_path / "odd.yaml"
    changes = ["data.patch_size=[48,48,48]"]
    preset.write_text(to_yaml(change_preset(load_preset("isles22"), changes)))
    with pytest.raises(FactorizerError, match="nnformer cannot be built"):
        profile(preset, systems=["nnformer"])
    built, not_built = profile(preset, systems=["nnunet", "nnformer"]).rows
    assert built.params
    assert not_built.note.startswith("cannot be built")


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({"unetr": Path("x")}, "scores has the system 'unetr'; it must be one of nnunet"),
        ({"nnunet": Path("nowhere")}, "scores has nowhere for nnunet, which does not exist"),
    ],
)
def test_scores_of_other_systems_or_places_are_refused(
    scores: dict[str, Path], message: str
) -> None:
    with pytest.raises(FactorizerError, match=message):
        profile("isles22", systems=["nnunet"], scores=scores)
