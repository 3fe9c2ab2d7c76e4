"""Conv-Factorizer: NMF for context, convolutions for detail. It is ours, not the paper's.

The U-shape is that of Fig. 1. A block mixes voxels twice: a residual NMF (the first line of Eq. 4)
brings in what lies far away, and one residual convolution, in place of the MLP, draws the outlines.
Its norm stands after the convolution and over space, as in Res-U-Net. docs/results/design has the
measurements behind each choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from factorizer.models.factorizer import make_matricize, nmf_maker
from factorizer.models.nnunet import check_groups
from factorizer.nn.blocks import Adapter, ResidualNMF
from factorizer.nn.resample import CONV
from factorizer.nn.unet import UNet


class ResidualConv(nn.Module):
    """Z = LeakyReLU(GroupNorm(Conv(Y)) + Y) with a convolution of 3: (B, C, *spatial) -> same."""

    def __init__(self, channels: int, *, dims: int, groups: int) -> None:
        super().__init__()
        check_groups(channels, groups)
        self.conv = CONV[dims](channels, channels, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(self.norm(self.conv(x)) + x, inplace=True)


class ConvFactorizerBlock(nn.Module):
    """A residual NMF, then a residual convolution. An adapter comes first where the width changes.

    One or several maps, `in_channels` together, give one map (B, out_channels, *spatial). Without
    `nmf` only the convolution is left.
    """

    def __init__(
        self, in_channels: int, out_channels: int, *, nmf: ResidualNMF | None, conv: ResidualConv
    ) -> None:
        super().__init__()
        self.adapter: nn.Module = nn.Identity()
        if in_channels != out_channels:
            self.adapter = Adapter(in_channels, out_channels)
        self.nmf = nmf or nn.Identity()
        self.conv = conv

    def forward(self, *maps: Tensor) -> Tensor:
        """Maps (B, C_i, *spatial) -> (B, out_channels, *spatial)."""
        return self.conv(self.nmf(self.adapter(*maps)))


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

    def make_block(in_width: int, width: int, size: tuple[int, ...]) -> ConvFactorizerBlock:
        conv = ResidualConv(width, dims=len(size), groups=groups)
        return ConvFactorizerBlock(in_width, width, nmf=make_nmf(width, size), conv=conv)

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
