"""Muon against PyTorch's where that takes the weights, against AdamW for the rest, and by its
mathematics."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from factorizer.models.registry import build_model
from factorizer.training.optimizer import (
    MIN_CHANNELS,
    Muon,
    make_optimizer,
    matrices_of,
    orthogonalize,
)


def train(
    optimizer: torch.optim.Optimizer, parameter: nn.Parameter, grads: torch.Tensor
) -> torch.Tensor:
    for grad in grads:
        parameter.grad = grad.clone()
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("shape", [(8, 8), (12, 30), (30, 12)])
def test_orthogonalize_keeps_directions_and_evens_out_singular_values(
    shape: tuple[int, int],
) -> None:
    generator = torch.Generator().manual_seed(0)
    u, _, v = torch.linalg.svd(
        torch.randn(shape, generator=generator, dtype=torch.float64), full_matrices=False
    )
    values = torch.logspace(
        0, -2, len(v), dtype=torch.float64
    )  # the smallest a hundredth of the largest
    inner = u.mT @ orthogonalize(u @ values.diag() @ v) @ v.mT
    evened = inner.diagonal()
    assert 0.6 < evened.min() <= evened.max() < 1.3
    torch.testing.assert_close(inner, evened.diag(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("smallest", [1e-3, 1e-6, 0])
def test_float32_orthogonalizes_badly_conditioned_matrices_as_float64(smallest: float) -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(24, 200, generator=generator, dtype=torch.float64)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    values = torch.linspace(1, smallest, 24, dtype=torch.float64) ** 4
    matrix = u @ values.diag() @ v
    exact, found = orthogonalize(matrix), orthogonalize(matrix.float())
    assert (found - exact).norm() < 1e-3 * exact.norm()


@pytest.mark.parametrize("scale", [0, 1e-38, 1e-30, 1e-20])
def test_a_momentum_that_has_died_away_moves_nothing(scale: float) -> None:
    matrix = scale * torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    assert orthogonalize(matrix).abs().max() < 1e-9


def test_matrices_step_as_by_pytorchs_muon() -> None:
    """Which orthogonalizes in bfloat16, and scales the step by 0.2 of what we do."""
    generator = torch.Generator().manual_seed(0)
    start, grads = (
        torch.randn(16, 24, generator=generator),
        torch.randn(5, 16, 24, generator=generator),
    )
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    found = train(Muon([ours], {ours}, learning_rate=0.002, weight_decay=0.1), ours, grads)
    reference = torch.optim.Muon(
        [theirs], lr=0.01, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"
    )
    expected = train(reference, theirs, grads)
    change = (expected - start).norm()
    assert (found - expected).norm() < 0.01 * change


def test_the_rest_steps_as_by_adamw() -> None:
    generator = torch.Generator().manual_seed(0)
    start, grads = torch.randn(7, generator=generator), torch.randn(6, 7, generator=generator)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    found = train(Muon([ours], set(), learning_rate=0.05, weight_decay=0.1), ours, grads)
    expected = train(torch.optim.AdamW([theirs], lr=0.05, weight_decay=0.1), theirs, grads)
    torch.testing.assert_close(found, expected)


def test_a_convolution_is_a_matrix_of_what_each_channel_sees() -> None:
    conv = nn.Conv3d(8, 16, 2, bias=False)
    before = conv.weight.detach().clone()
    optimizer = make_optimizer("muon", conv, learning_rate=0.01, weight_decay=0.0)
    conv(
        torch.randn(2, 8, 6, 6, 6, generator=torch.Generator().manual_seed(0))
    ).square().sum().backward()
    optimizer.step()
    step = (before - conv.weight.detach()).flatten(1) / 0.01
    values = torch.linalg.svdvals(step) / max(step.shape) ** 0.5
    assert 0.6 < values.min() <= values.max() < 1.3


def test_matrices_are_what_mixes_channels() -> None:
    network = build_model(
        "swin-factorizer",
        in_channels=2,
        out_channels=3,
        spatial_size=(16, 16, 16),
        widths=(8, 16),
        window=4,
        head_dim=4,
    )
    matrices = matrices_of(network)
    names = {name for name, p in network.named_parameters() if p in matrices}
    assert {"down.0.weight", "up.0.weight"} <= {name.replace("conv.", "") for name in names}
    assert not any(
        word in name for name in names for word in ("stem", "heads", "position", "norm", "bias")
    )
    assert all(min(p.shape[:2]) >= MIN_CHANNELS for p in matrices)
    others = {name for name, p in network.named_parameters() if p not in matrices and p.ndim > 1}
    assert {name.split(".")[0] for name in others} == {"stem", "heads", "position"}


def test_frozen_weights_stay_and_a_network_without_matrices_can_train() -> None:
    layer = nn.Linear(8, 8)
    layer.weight.requires_grad_(False)
    before = layer.weight.clone()
    optimizer = make_optimizer("muon", layer, learning_rate=0.1, weight_decay=0.5)
    layer(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    assert torch.equal(layer.weight, before)
    torch.testing.assert_close(optimizer.state[layer.bias]["mean"], torch.full((8,), 0.1))
