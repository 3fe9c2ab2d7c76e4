"""nnU-Net and Res-U-Net: the shared U-shape with blocks of two convolutions (Sec. 4.2, baselines).

F. Isensee et al., "nnU-Net: a self-configuring method for deep learning-based biomedical image
segmentation", Nature Methods 18 (2021) 203-211; the residual form after K. He et al., "Deep
residual learning for image recognition", CVPR 2016.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorizer.errors import FactorizerError
from factorizer.nn.resample import CONV
from factorizer.nn.unet import UNet


class ConvBlock(nn.Module):
    """Convolution of 3, GroupNorm and LeakyReLU, twice. Several maps are joined first."""

    def __init__(self, in_channels: int, out_channels: int, *, dims: int, groups: int) -> None:
        super().__init__()
        check_groups(out_channels, groups)
        self.conv1 = CONV[dims](in_channels, out_channels, 3, padding=1)
        self.norm1 = nn.GroupNorm(groups, out_channels)
        self.conv2 = CONV[dims](out_channels, out_channels, 3, padding=1)
        self.norm2 = nn.GroupNorm(groups, out_channels)

    def forward(self, *maps: Tensor) -> Tensor:
        return F.leaky_relu(self.convolve(join(maps)), inplace=True)

    def convolve(self, x: Tensor) -> Tensor:
        """Everything except the last activation."""
        return self.norm2(self.conv2(F.leaky_relu(self.norm1(self.conv1(x)), inplace=True)))


class ResidualConvBlock(ConvBlock):
    """A `ConvBlock` that adds its input before the last activation.

    The input is projected if the width changes.
    """

    def __init__(self, in_channels: int, out_channels: int, *, dims: int, groups: int) -> None:
        super().__init__(in_channels, out_channels, dims=dims, groups=groups)
        self.shortcut: nn.Module = nn.Identity()
        if in_channels != out_channels:
            self.shortcut = CONV[dims](in_channels, out_channels, 1, bias=False)

    def forward(self, *maps: Tensor) -> Tensor:
        x = join(maps)
        return F.leaky_relu(self.convolve(x) + self.shortcut(x), inplace=True)


def check_groups(channels: int, groups: int) -> None:
    """Raise an error unless so many groups of equal size can be formed."""
    if channels % groups:
        raise FactorizerError(
            f"{channels} channels cannot be normalized in {groups} groups; use a multiple"
        )


def join(maps: Sequence[Tensor]) -> Tensor:
    """Several maps joined along the channels. A single map is not copied."""
    return maps[0] if len(maps) == 1 else torch.cat(tuple(maps), 1)


def build_nnunet(
    *,
    residual: bool,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    widths: Sequence[int] = (32, 64, 128, 256, 512),
    depths: Sequence[int] | None = None,
    strides: int | Sequence[int | Sequence[int]] = 2,
    groups: int = 8,
    deep_supervision: bool = True,
) -> UNet:
    """Build nnU-Net, or Res-U-Net with `residual`; the defaults are the paper's.

    `groups` is the number of groups of GroupNorm.
    """
    block = ResidualConvBlock if residual else ConvBlock

    def make_block(in_width: int, width: int, size: tuple[int, ...]) -> ConvBlock:
        return block(in_width, width, dims=len(size), groups=groups)

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
