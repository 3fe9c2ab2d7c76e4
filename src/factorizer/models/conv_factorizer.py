"""Conv-Factorizer: convolutions for detail, NMF for context. It is ours, not the paper's.

The U-shape is that of Fig. 1. A block sees detail, gathers context, and draws detail again: a
residual convolution, a residual NMF (the first line of Eq. 4), and another residual convolution in
place of the MLP. The norm of a convolution stands after it and over space, as in Res-U-Net. Two
places are lighter, because they cost most and gain least: the finest level has one convolution, and
those of the bridge work in groups of channels. docs/results/design has the measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from factorizer.models.factorizer import make_matricize, nmf_maker
from factorizer.models.nnunet import check_groups
from factorizer.nn.blocks import Adapter, ResidualNMF
from factorizer.nn.resample import CONV
from factorizer.nn.unet import UNet, check_levels, per_level, sizes_of_levels

BRIDGE_GROUPS = 8  # of the convolutions in the bridge


class ResidualConv(nn.Module):
    """Z = LeakyReLU(GroupNorm(Conv(Y)) + Y) with a convolution of 3: (B, C, *spatial) -> same.

    `groups` is the number of groups of GroupNorm. With `conv_groups` above 1 the convolution works
    in groups of channels, and a linear layer mixes them.
    """

    def __init__(self, channels: int, *, dims: int, groups: int, conv_groups: int = 1) -> None:
        super().__init__()
        check_groups(channels, groups)
        conv_groups = gcd(conv_groups, channels)
        self.conv = CONV[dims](channels, channels, 3, padding=1, groups=conv_groups, bias=False)
        self.mix: nn.Module = nn.Identity()
        if conv_groups > 1:
            self.mix = CONV[dims](channels, channels, 1, bias=False)
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(self.norm(self.mix(self.conv(x))) + x, inplace=True)


class ConvFactorizerBlock(nn.Module):
    """A residual convolution, a residual NMF, and perhaps another residual convolution.

    An adapter comes first where the width changes. One or several maps, `in_channels` together,
    give one map (B, out_channels, *spatial).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        before: ResidualConv,
        nmf: ResidualNMF | None,
        after: ResidualConv | None,
    ) -> None:
        super().__init__()
        self.before = before
        self.nmf = nmf or nn.Identity()
        self.after = after or nn.Identity()
        self.adapter: nn.Module = nn.Identity()
        if in_channels != out_channels:
            self.adapter = Adapter(in_channels, out_channels)

    def forward(self, *maps: Tensor) -> Tensor:
        """Maps (B, C_i, *spatial) -> (B, out_channels, *spatial)."""
        return self.after(self.nmf(self.before(self.adapter(*maps))))


def ends_of_path(
    spatial_size: Sequence[int],
    widths: Sequence[int],
    strides: int | Sequence[int | Sequence[int]],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of the finest map and of the map of the bridge."""
    check_levels(spatial_size, widths, (1,) * len(widths))
    level_strides = per_level(strides, len(widths) - 1, len(spatial_size))
    sizes = sizes_of_levels(spatial_size, level_strides)
    return sizes[0], sizes[-1]


def build_conv_factorizer(
    *,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    widths: Sequence[int] = (32, 64, 128, 256, 512),
    depths: Sequence[int] | None = None,
    strides: int | Sequence[int | Sequence[int]] = 2,
    head_dim: int = 8,
    window: int | Sequence[int] | None = None,
    rank: int = 1,
    num_iters: int = 5,
    solver: str = "hals",
    tolerance: float = 0.1,
    mixer: Literal["nmf", "none"] = "nmf",
    groups: int = 8,
    dropout: float = 0.0,
    deep_supervision: bool = True,
    seed: int = 0,
) -> UNet:
    """Build a Conv-Factorizer.

    `window` is 8 unless given, and `groups` is the number of groups of GroupNorm. The initial
    factors follow from `seed` and from the number of the NMF layer along the data path.
    """
    make_nmf = nmf_maker(
        mixer,
        make_matricize("shifted", head_dim, window),
        rank=rank,
        num_iters=num_iters,
        solver=solver,
        tolerance=tolerance,
        dropout=dropout,
        seed=seed,
    )

    finest, coarsest = ends_of_path(spatial_size, widths, strides)

    def make_block(in_width: int, width: int, size: tuple[int, ...]) -> ConvFactorizerBlock:
        def make_conv() -> ResidualConv:
            conv_groups = BRIDGE_GROUPS if size == coarsest else 1
            return ResidualConv(width, dims=len(size), groups=groups, conv_groups=conv_groups)

        before, after = make_conv(), None if size == finest else make_conv()
        nmf = make_nmf(width, size)
        return ConvFactorizerBlock(in_width, width, before=before, nmf=nmf, after=after)

    return UNet(
        in_channels=in_channels,
        out_channels=out_channels,
        spatial_size=spatial_size,
        make_block=make_block,
        widths=widths,
        depths=depths,
        strides=strides,
        deep_supervision=deep_supervision,
        position_embedding=False,
    )
