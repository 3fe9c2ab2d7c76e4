"""The memory that training takes, told before."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from factorizer.errors import RunError
from factorizer.hardware import available_cores
from factorizer.models.registry import SYSTEMS
from factorizer.preset_files import change_preset, load_preset
from factorizer.training import memory_need
from factorizer.training.machine import Machine
from factorizer.training.memory_need import Need, check_memory, estimate
from testkit.runs import CPU

pytestmark = pytest.mark.slow  # most of these train, or read real data


GIB = 2**30
ISLES = load_preset("isles22")


def need(*changes: str, machine: Machine = CPU, patches: int = 1) -> Need:
    return estimate(change_preset(ISLES, changes), machine, patches, torch.device(machine.device))


@pytest.mark.parametrize(
    ("changes", "machine", "patches", "measured"),
    [
        ([], CPU, 2, 1.75),
        (["model.name=nnunet"], CPU, 2, 2.09),
        (["model.name=nnunet"], CPU, 1, 1.57),
        (["model.name=nnunet"], replace(CPU, checkpoint_activations=True), 2, 1.84),
        (["model.name=nnunet"], replace(CPU, precision="bf16"), 2, 1.53),
        (["model.name=nnunet", "data.patch_size=[96,96,96]"], CPU, 2, 4.69),
        (["data.patch_size=[96,96,96]"], CPU, 4, 6.05),
        (["model.solver=joint"], CPU, 1, 5.85),
        ([], replace(CPU, precision="bf16"), 2, 3.29),
        (["model.name=swin-unetr"], CPU, 2, 5.01),
        (["model.name=nnformer"], CPU, 2, 4.68),
        (["model.widths=[8,16]", "data.patch_size=[16,16,16]"], CPU, 2, 1.06),
    ],
)
def test_the_estimate_is_near_what_was_measured(
    changes: list[str], machine: Machine, patches: int, measured: float
) -> None:
    """Peak resident memory, GiB, of `factorizer train` for two steps on synthetic scans, November
    2026."""
    ratio = need(*changes, machine=machine, patches=patches).total / GIB / measured
    assert 0.8 < ratio < 1.5


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_can_be_estimated(name: str) -> None:
    one, two = (need(f"model.name={name}", patches=patches) for patches in (1, 2))
    assert one.weights > 0
    assert two.total - one.total == pytest.approx(one.maps)


@pytest.mark.parametrize(
    ("changes", "machine", "named"),
    [
        (["model.name=nnformer", "training.batch_size=1"], CPU, "lower model.widths"),
        (
            ["training.batch_size=8"],
            CPU,
            "lower training.batch_size, now 8, or raise accumulate, now 1",
        ),
        (
            ["model.name=nnunet", "training.batch_size=1"],
            CPU,
            "lower data.patch_size, now .* checkpoint_activations",
        ),
    ],
)
def test_what_cannot_fit_is_refused_with_the_field_to_change(
    monkeypatch: pytest.MonkeyPatch, changes: list[str], machine: Machine, named: str
) -> None:
    preset = change_preset(ISLES, changes)
    wanted = check_memory(preset, machine).total
    monkeypatch.setattr(memory_need, "device_bytes", lambda device: wanted * 0.99)
    with pytest.raises(
        RunError, match=rf"training needs about .* GiB, and .* GiB are free; {named}"
    ):
        check_memory(preset, machine)
    monkeypatch.setattr(memory_need, "device_bytes", lambda device: wanted * 1.01)
    assert check_memory(preset, machine).total == wanted
    two = change_preset(preset, [f"training.batch_size={2 * preset.training.batch_size}"])
    with pytest.raises(
        RunError, match="in each of 2 processes"
    ):  # which share the memory of the machine
        check_memory(two, replace(machine, devices=2))


@pytest.mark.parametrize("field", ["workers", "devices"])
def test_more_processes_than_the_machine_can_feed_are_refused(field: str) -> None:
    with pytest.raises(RunError, match=f"{field} is 100000; give . to "):
        replace(CPU, **{field: 100_000}).check()
    replace(CPU, workers=available_cores(), devices=1).check()
