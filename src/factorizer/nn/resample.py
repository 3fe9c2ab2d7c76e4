"""Down- and upsampling by convolutions whose kernel is their stride (Fig. 1).

Such a convolution is a matrix product on windows of the fine map. PyTorch's forward pass and input
gradient are fast on a CPU. Its weight gradient takes five times as long as that product, so the
product is written here.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorizer.nn.matricize import split_windows
from factorizer.nn.nmf import full_precision, widen
from factorizer.nn.tiles import TILE_ELEMENTS, is_eager_cpu

CONV: dict[int, Any] = {2: nn.Conv2d, 3: nn.Conv3d}
CONV_TRANSPOSE: dict[int, Any] = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
F_CONV = {2: F.conv2d, 3: F.conv3d}
F_CONV_TRANSPOSE = {2: F.conv_transpose2d, 3: F.conv_transpose3d}


class Downsample(nn.Module):
    """(B, in, *spatial) -> (B, out, *spatial / stride), without bias."""

    def __init__(self, in_channels: int, out_channels: int, stride: tuple[int, ...]) -> None:
        super().__init__()
        self.conv = CONV[len(stride)](in_channels, out_channels, stride, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if not is_eager_cpu(x):
            return self.conv(x)
        return _Downsample.apply(x, self.conv.weight)


class Upsample(nn.Module):
    """(B, in, *spatial) -> (B, out, *spatial x stride), with bias."""

    def __init__(self, in_channels: int, out_channels: int, stride: tuple[int, ...]) -> None:
        super().__init__()
        self.conv = CONV_TRANSPOSE[len(stride)](in_channels, out_channels, stride, stride)

    def forward(self, x: Tensor) -> Tensor:
        if not is_eager_cpu(x):
            return self.conv(x)
        return _Upsample.apply(x, self.conv.weight, self.conv.bias)


class _Downsample(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F_CONV[x.ndim - 2](x, weight, stride=weight.shape[2:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        with full_precision(dy):
            dx = F_CONV_TRANSPOSE[x.ndim - 2](dy, weight, stride=weight.shape[2:])
            return dx, weight_gradient(fine=x, coarse=dy, weight=weight)


class _Upsample(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F_CONV_TRANSPOSE[x.ndim - 2](x, weight, bias, stride=weight.shape[2:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        with full_precision(dy):
            dx = F_CONV[x.ndim - 2](dy, weight, stride=weight.shape[2:])
            dbias = dy.movedim(1, -1).flatten(0, -2).sum(0)
            return dx, weight_gradient(fine=dy, coarse=x, weight=weight), dbias


def weight_gradient(*, fine: Tensor, coarse: Tensor, weight: Tensor) -> Tensor:
    """Sum over windows of coarse (B, O, ...) x fine (B, I, ...) -> (O, I, *stride).

    It is added up in slices that stay in the cache.
    """
    coarse, fine = coarse.movedim(1, -1), fine.movedim(1, -1)
    windows = split_windows(fine, weight.shape[2:])  # (B, *counts, *stride, I)
    total = widen(weight.new_zeros(weight.shape[0], weight[0].numel()))
    step = max(1, TILE_ELEMENTS * coarse.shape[1] // max(1, fine.numel()))
    for part, other in zip(windows.split(step, 1), coarse.split(step, 1), strict=True):
        total += other.flatten(0, -2).mT @ part.reshape(-1, total.shape[1])
    return total.to(weight.dtype).view(-1, *weight.shape[2:], weight.shape[1]).movedim(-1, 1)
