"""Activations computed again: the same gradients, from less memory, in every system."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from factorizer.models.registry import SYSTEMS
from factorizer.training.activations import checkpoint_activations
from testkit.small import SMALL, build_small

PEAK = """
import sys, torch
from factorizer.models.registry import build_model
from factorizer.profiling.measure import make_step, peak_mib
from factorizer.training.activations import checkpoint_activations

def build():
    sizes = dict(in_channels=2, out_channels=1, spatial_size=(96, 96, 96), widths=(16, 32, 64))
    model = build_model(sys.argv[1], **sizes)
    if sys.argv[2] == "again":
        checkpoint_activations(model)
    return make_step(model, torch.randn(1, 2, 96, 96, 96), "training")

print(peak_mib(build))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_gradients_and_names_stay(name: str) -> None:
    x = torch.randn(1, 2, *SMALL[name]["spatial_size"])
    results = []
    for again in (False, True):
        torch.manual_seed(0)
        model = build_small(name).train()
        if again:
            checkpoint_activations(model)
        torch.manual_seed(1)
        outputs = model(x)
        outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
        sum(y.square().mean() for y in outputs).backward()
        results.append(
            (outputs, {n: p.grad for n, p in model.named_parameters()}, list(model.state_dict()))
        )
    (plain, expected, names), (again_outputs, got, same_names) = results
    assert names == same_names
    for a, b in zip(plain, again_outputs, strict=True):
        torch.testing.assert_close(a, b)
    for key, gradient in expected.items():
        if gradient is None:
            assert got[key] is None
        else:
            torch.testing.assert_close(got[key], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nnunet"])
def test_memory_is_saved(name: str) -> None:
    kept, again = (
        float(
            subprocess.run(
                [sys.executable, "-c", PEAK, name, how], capture_output=True, check=True, text=True
            ).stdout
        )
        for how in ("keep", "again")
    )
    assert again < 0.9 * kept, f"{again:.0f} of {kept:.0f} MiB"
