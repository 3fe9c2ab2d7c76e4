"""Down- and upsampling against PyTorch's own convolutions."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from factorizer.nn import resample
from factorizer.nn.resample import Downsample, Upsample


@pytest.mark.parametrize("kind", [Downsample, Upsample])
@pytest.mark.parametrize("stride", [(2, 2, 2), (1, 2, 3), (2, 2)])
@pytest.mark.parametrize("elements", [1, 2**20])
def test_output_and_gradients_are_those_of_the_convolution(
    monkeypatch, kind, stride, elements
) -> None:
    monkeypatch.setattr(resample, "TILE_ELEMENTS", elements)
    layer: nn.Module = kind(3, 5, stride).double()
    x = torch.randn(2, 3, *(4 * s for s in stride), dtype=torch.float64, requires_grad=True)
    expected = layer.conv(x)
    got = layer(x)
    torch.testing.assert_close(got, expected)
    upstream = torch.randn_like(got)
    tensors = [x, *layer.parameters()]
    grads = zip(*(torch.autograd.grad(y, tensors, upstream) for y in (got, expected)), strict=True)
    for grad, grad_expected in grads:
        torch.testing.assert_close(grad, grad_expected)
