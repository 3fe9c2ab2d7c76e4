"""The fast path of R = 1 and its written-out gradients, against the loop of Eq. 14."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from factorizer.nn.rank_one import rank_one_mix
from testkit import textbook


def loop_mix(
    x: Tensor, g0: Tensor, weight: Tensor, bias: Tensor, *, head_dim: int, num_iters: int
) -> Tensor:
    """What `rank_one_mix` computes, written with the loop: x (windows, N, C)."""
    heads = x.unflatten(-1, (-1, head_dim)).permute(0, 2, 3, 1)  # (windows, heads, E, N)
    f, g = textbook.rank_one(heads, g0, num_iters)
    return F.linear((f @ g.mT).permute(0, 3, 1, 2).flatten(2), weight, bias)


def outputs_and_gradients(
    mix, x: Tensor, weight: Tensor, bias: Tensor, g0: Tensor, **options
) -> list[Tensor]:
    inputs = [t.clone().requires_grad_() for t in (x, weight, bias)]
    y = mix(inputs[0], g0, *inputs[1:], **options)
    generator = torch.Generator().manual_seed(1)
    upstream = torch.rand(y.shape, generator=generator, dtype=torch.float64) - 0.3
    return [y, *torch.autograd.grad(y, inputs, upstream.to(y.dtype))]


def example(
    windows: int, n: int, channels: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, ...]:
    x = torch.randn(windows, n, channels, dtype=dtype).relu()
    weight = torch.randn(channels, channels, dtype=dtype)
    return x, weight, torch.randn(channels, dtype=dtype), torch.rand(n, 1, dtype=dtype)


@pytest.mark.parametrize("num_iters", [1, 2, 5, 6, 20])
@pytest.mark.parametrize(
    ("head_dim", "channels"), [(1, 4), (3, 12), (4, 32), (8, 8), (8, 24), (8, 64), (32, 64)]
)
def test_agrees_with_the_loop(num_iters: int, head_dim: int, channels: int) -> None:
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        tensors = example(3, 60, channels, dtype)
        options = {"head_dim": head_dim, "num_iters": num_iters}
        got = outputs_and_gradients(rank_one_mix, *tensors, **options)
        doubles = [t.double() for t in tensors]
        expected = outputs_and_gradients(loop_mix, *doubles, **options)
        for a, b in zip(got, expected, strict=True):
            assert (a.double() - b).norm() <= tolerance * b.norm()


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e2, 1e4])
def test_commutes_with_scaling_in_float32(scale: float) -> None:
    x, weight, bias, g0 = example(4, 64, 16, torch.float32)
    bias = torch.zeros_like(bias)
    y = rank_one_mix(x, g0, weight, bias, head_dim=8, num_iters=20)
    scaled = rank_one_mix(scale * x, g0, weight, bias, head_dim=8, num_iters=20)
    assert (scaled - scale * y).norm() <= 1e-5 * (scale * y).norm()


@pytest.mark.parametrize("num_iters", [1, 5, 20])
@pytest.mark.parametrize("entry", [0.0, 1e-38, 1e-20])
def test_a_zero_head_among_live_ones_stays_harmless(num_iters: int, entry: float) -> None:
    x, _, bias, g0 = example(2, 64, 16, torch.float32)
    x[0, :, 8:] = 0
    x[0, 5, 9] = entry
    y, dx, *_ = outputs_and_gradients(
        rank_one_mix, x, torch.eye(16), 0 * bias, g0, head_dim=8, num_iters=num_iters
    )
    assert y[0, :, 8:].abs().max() <= 2 * entry
    assert dx.isfinite().all()
    assert dx[0, :, 8:].abs().max() <= 10
    live = outputs_and_gradients(
        rank_one_mix, x[..., :8], torch.eye(8), 0 * bias[:8], g0, head_dim=8, num_iters=num_iters
    )
    torch.testing.assert_close(y[0, :, :8], live[0][0])


def test_backward_inside_autocast_stays_in_float32() -> None:
    x, weight, bias, g0 = example(2, 64, 16, torch.float32)
    inputs = [t.clone().requires_grad_() for t in (x, weight, bias)]
    y = rank_one_mix(inputs[0], g0, *inputs[1:], head_dim=8, num_iters=5)
    expected = torch.autograd.grad(y, inputs, torch.ones_like(y), retain_graph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = torch.autograd.grad(y, inputs, torch.ones_like(y))
    for a, b in zip(got, expected, strict=True):
        assert torch.equal(a, b)
