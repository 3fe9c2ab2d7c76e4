"""Times are measured in turn, memory in fresh processes, also where memory does not suffice."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from factorizer.preset_files import load_preset
from factorizer.profiling import measure
from factorizer.profiling.table import count_rows, measure_memory, measure_time
from factorizer.progress import Progress, Task

SMALL = {"in_channels": 1, "out_channels": 1, "spatial_size": (32, 32, 32), "widths": (8, 16)}


def test_steps_are_timed_in_turn_after_a_warm_up() -> None:
    order: list[str] = []
    steps = {name: lambda name=name: order.append(name) for name in "ab"}
    advanced: list[int] = []
    seconds = measure.time_interleaved(steps, 2, lambda: advanced.append(1))
    assert order == ["a", "b"] * 3
    assert len(advanced) == 6
    assert [len(values) for values in seconds.values()] == [2, 2]


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    assert measure.ratio({"a": [2.0, 9.0, 3.0], "b": [1.0, 3.0, 2.0]}, "a", "b") == 2.0


def test_a_forward_step_evaluates_and_a_training_step_reaches_the_parameters() -> None:
    layer, modes, grads = nn.Linear(2, 2), [], []
    layer.register_forward_hook(lambda m, *_: modes.append((m.training, torch.is_grad_enabled())))
    layer.weight.register_hook(lambda grad: grads.append(grad))
    for mode in measure.MODES:
        measure.make_step(layer, torch.ones(1, 2), mode)()
    assert modes == [(False, False), (True, True)]
    assert len(grads) == 1
    assert grads[0].any()


@pytest.mark.slow
def test_memory_is_that_of_the_network_and_grows_with_training() -> None:
    forward, training = (
        measure.peak_mib_of_system("nnunet", SMALL, mode) for mode in measure.MODES
    )
    assert forward is not None
    assert training is not None
    assert 1 < forward < training < 1000


@pytest.mark.slow
def test_what_lies_in_the_working_directory_is_not_run(tmp_path: Path, monkeypatch) -> None:
    for name in ("factorizer", "torch", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('run from the working directory')")
    monkeypatch.chdir(tmp_path)
    assert measure.peak_mib_of_system("nnunet", SMALL, "forward") is not None


def test_a_killed_measurement_is_out_of_memory_and_another_failure_is_an_error(monkeypatch) -> None:
    def fake(returncode: int, stderr: str):
        done = SimpleNamespace(returncode=returncode, stderr=stderr, stdout="")
        return lambda *_, **__: done

    monkeypatch.setattr(subprocess, "run", fake(-9, ""))
    assert measure.peak_mib_of_system("nnunet", SMALL, "training") is None
    monkeypatch.setattr(subprocess, "run", fake(1, "DefaultCPUAllocator: can't allocate memory"))
    assert measure.peak_mib_of_system("nnunet", SMALL, "training") is None
    monkeypatch.setattr(subprocess, "run", fake(1, "TypeError: x"))
    with pytest.raises(RuntimeError, match="TypeError: x"):
        measure.peak_mib_of_system("nnunet", SMALL, "training")


class Counted(Progress, Task):
    """Counts the steps that are done."""

    steps = 0

    @contextmanager
    def task(self, label: str, total: int | None = None):
        yield self

    def advance(self, steps: int = 1) -> None:
        self.steps += steps


def test_a_system_that_does_not_fit_is_not_timed_and_says_so(monkeypatch) -> None:
    preset = load_preset("isles22")
    small = preset.model_copy(
        update={
            "data": preset.data.model_copy(update={"patch_size": (16, 16, 16)}),
            "model": preset.model.model_copy(update={"widths": (8, 16)}),
        }
    )
    peaks = {"nnunet": 1.0, "res-unet": None, "performer": 1e9}
    monkeypatch.setattr(measure, "peak_mib_of_system", lambda name, *_: peaks[name])
    rows = count_rows(small, "isles22", list(peaks))
    counted = Counted()
    rows = measure_memory(rows, small, progress=counted)
    assert counted.steps == 6
    fits, *others = measure_time(rows, small, 1, progress=counted)
    assert counted.steps == 6 + 4  # two rounds of two modes for the one that fits
    assert fits.forward_s is not None
    assert fits.training_s is not None
    assert fits.training_s > 0
    assert not fits.note
    for row in others:
        assert row.training_s is None
        assert "does not fit" in row.note


@pytest.mark.slow
def test_a_system_that_cannot_be_built_says_why_and_the_others_are_counted() -> None:
    preset = load_preset("isles22")
    odd = preset.model_copy(
        update={"data": preset.data.model_copy(update={"patch_size": (48, 48, 48)})}
    )
    rows = count_rows(odd, "isles22", ["swin-factorizer", "nnformer"])
    assert rows[0].params == 7371523 - 512 * (4**3 - 3**3)  # a smaller position embedding
    assert rows[1].params is None
    assert "not a multiple of 32 as nnFormer needs" in rows[1].note
    assert measure_memory(rows[1:], odd)[0].training_mib is None
