"""FAVOR+ approximates softmax attention, and its cost is linear in the number of tokens."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from factorizer.models.performer import (
    FavorAttention,
    ResidualAttention,
    draw_projection,
    favor_attention,
    features,
)


def projection(num_features: int, seed: int, head_dim: int = 8) -> torch.Tensor:
    return draw_projection(num_features, head_dim, torch.Generator().manual_seed(seed)).double()


def test_the_error_falls_as_features_grow() -> None:
    q, k, v = torch.randn(3, 2, 64, 8, dtype=torch.float64)
    q, k = q / 2, k / 2  # the variance grows exponentially with their squares
    exact = F.scaled_dot_product_attention(q, k, v)
    errors = []
    for m in (16, 64, 256, 1024, 4096):
        results = [favor_attention(q, k, v, projection(m, seed)) for seed in range(5)]
        misses = [(result - exact).norm() / exact.norm() for result in results]
        errors.append(torch.stack(misses).mean().item())
    assert all(b < 0.8 * a for a, b in pairwise(errors)), errors  # theory: half each time
    assert errors[-1] < 0.1


def test_the_kernel_is_unbiased() -> None:
    q, k = 0.5 * torch.randn(2, 6, 8, dtype=torch.float64)
    exact = (q @ k.mT / 8**0.5).exp()
    kernels = []
    for seed in range(400):
        w = projection(16, seed)
        phi_q, phi_k = (features(x, w, dims=(-1, -2)) for x in (q, k))
        scale = [((x * 8**-0.25) @ w.mT).max().exp() for x in (q, k)]  # subtracted for stability
        kernels.append(phi_q @ phi_k.mT * scale[0] * scale[1])
    mean, spread = torch.stack(kernels).mean(0), torch.stack(kernels).std(0) / 400**0.5
    allowed = 4 * spread + 1e-2 * exact  # the floor of the features biases by 1e-3
    assert ((mean - exact).abs() < allowed).all()


def test_the_cost_is_linear_in_tokens() -> None:
    layer = FavorAttention(32, 8, 16, dropout=0.0, seed=0).to("meta")
    flops = []
    for tokens in (1000, 2000):
        with FlopCounterMode(display=False) as counter:
            layer(torch.empty(1, tokens, 32, device="meta"))
        flops.append(counter.get_total_flops())
    channels, heads, m = 32, 4, 16
    assert flops[0] == 2 * 1000 * (4 * channels**2 + 4 * channels * m + heads * m)
    assert flops[1] == 2 * flops[0]


def test_large_inputs_do_not_overflow() -> None:
    q, k, v = 100 * torch.randn(3, 1, 32, 8)
    y = favor_attention(q, k, v, projection(16, 0).float())
    assert y.isfinite().all()


@pytest.mark.parametrize(("num_features", "head_dim"), [(16, 8), (5, 4)])
def test_directions_are_orthogonal_in_blocks_and_as_long_as_gaussians(
    num_features: int, head_dim: int
) -> None:
    w = projection(num_features, 0, head_dim)
    for block in F.normalize(w, dim=1).split(head_dim):
        torch.testing.assert_close(
            block @ block.mT, torch.eye(len(block)).double(), rtol=0, atol=1e-6
        )
    draws = [projection(num_features, seed, head_dim) for seed in range(500)]
    squares = torch.stack(draws).square().sum(-1)
    # chi-squared with d degrees of freedom: mean d, variance 2 d
    assert abs(squares.mean() / head_dim - 1) < 0.05
    assert abs(squares.var() / (2 * head_dim) - 1) < 0.15


def test_the_projection_follows_the_seed_and_travels_in_the_checkpoint() -> None:
    a, b, c = (FavorAttention(8, 4, 5, dropout=0.0, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(a.projection, b.projection)
    assert not torch.equal(a.projection, c.projection)
    c.load_state_dict(a.state_dict())
    assert torch.equal(a.projection, c.projection)


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="10 channels cannot be cut into heads of head_dim 4"):
        FavorAttention(10, 4, 5, dropout=0.0, seed=0)


def test_the_block_is_wired_as_published() -> None:
    """Pre-norm attention of heads that are runs of channels, again as plain functions."""
    torch.manual_seed(0)
    block = ResidualAttention(16, FavorAttention(16, 8, 12, dropout=0.0, seed=0)).double()
    for p in block.parameters():
        nn.init.normal_(p, std=0.5)
    x = torch.randn(2, 16, 3, 4, dtype=torch.float64)
    part = block.attention
    tokens = x.flatten(2).mT
    normed = F.layer_norm(tokens, (16,), block.norm.weight, block.norm.bias)
    q, k, v = (normed @ linear.weight.mT for linear in (part.query, part.key, part.value))
    heads = [
        favor_attention(q[..., i], k[..., i], v[..., i], part.projection)
        for i in (slice(0, 8), slice(8, 16))
    ]
    expected = tokens + torch.cat(heads, -1) @ part.out_proj.weight.mT + part.out_proj.bias
    torch.testing.assert_close(block(x), expected.mT.unflatten(2, (3, 4)))
