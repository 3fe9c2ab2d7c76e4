"""The contracts on a CUDA device: what is computed there is what the CPU computes. `make test-gpu`
runs these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from factorizer import NMF
from factorizer.inference.load import load
from factorizer.models.registry import SYSTEMS
from factorizer.preset_files import change_preset, load_preset
from factorizer.training.machine import Machine
from factorizer.training.session import train_fold
from testkit.small import SMALL, build_small

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
GPU = Machine(device="cuda", workers=0)
PRESET = change_preset(
    load_preset("isles22"),
    [
        "training.max_steps=6",
        "training.checkpoint_every=2",
        "training.validate_every=3",
        "training.folds=3",
        "model.widths=[8,16]",
        "model.window=4",
        "data.patch_size=[16,16,16]",
    ],
)


@pytest.mark.parametrize("solver", ["hals", "mu"])
@pytest.mark.parametrize("rank", [1, 3])
def test_factorizations_and_their_gradients(solver: str, rank: int) -> None:
    results = []
    for device in ("cpu", "cuda"):
        x = torch.rand(
            4, 8, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64
        ).to(device)
        x.requires_grad_()
        y = NMF(rank=rank, num_iters=5, solver=solver).to(device)(x)
        y.square().sum().backward()
        results.append((y.detach().cpu(), x.grad.cpu()))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_computes_the_same(name: str) -> None:
    x = torch.randn(1, 2, *SMALL[name]["spatial_size"], generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = build_small(name).eval()
    with torch.no_grad():
        expected = model(x)
        found = model.cuda()(x.cuda()).cpu()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("precision", ["32", "bf16", "16"])
def test_training_and_resuming(strokes: Path, tmp_path: Path, precision: str) -> None:
    machine = replace(GPU, precision=precision)
    outcome = train_fold(PRESET, data=strokes, fold=0, out=tmp_path / "run", machine=machine)
    assert outcome.finished
    weights = torch.load(
        outcome.folder / "checkpoints" / "last.ckpt", map_location="cpu", weights_only=True
    )
    assert all(value.isfinite().all() for value in weights["state_dict"].values())
    (outcome.folder / "scores.csv").unlink()
    assert train_fold(
        PRESET, data=strokes, fold=0, out=tmp_path / "run", machine=machine, resume=True
    ).finished


def test_predictions(strokes: Path, tmp_path: Path) -> None:
    run = train_fold(PRESET, data=strokes, fold=0, out=tmp_path / "run", machine=GPU).folder
    image = np.random.default_rng(0).normal(size=(2, 24, 24, 24)).astype(np.float32)
    ours, theirs = (
        load(run, device=device).predict(image, spacing_mm=(2.0, 2.0, 2.0))
        for device in ("cpu", "cuda")
    )
    assert (ours != theirs).mean() < 1e-3
