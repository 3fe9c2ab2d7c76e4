"""The U-shape of Fig. 1. Systems that differ only in the block share it. It knows no NMF.

Maps are (B, C, *spatial), as everywhere in PyTorch. In memory their channels come last: pointwise
layers are then plain matrix products, and the blocks run fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorizer.errors import FactorizerError
from factorizer.nn.matricize import AXES, per_axis
from factorizer.nn.resample import CONV, F_CONV, Downsample, Upsample

MakeBlock = Callable[[int, int, tuple[int, ...]], nn.Module]


class UNet(nn.Module):
    """Encoder, bridge and decoder with skip connections and deep supervision (Fig. 1).

    Images (B, in_channels, *spatial) give logits (B, out_channels, *spatial). In training with
    `deep_supervision` they give a list of logit maps, the full resolution first. Level 0 has the
    full resolution, and the last level is the bridge.

    Args:
        in_channels: The channels of the images.
        out_channels: The maps of logits.
        spatial_size: The size of the images that the network is meant for. Every axis must be a
            multiple of its total stride. Images of other such sizes work too.
        make_block: `make_block(in_channels, out_channels, spatial_size)` makes every block. The
            first block of a decoder level takes the skip and the upsampled map.
        widths: The channels of each level.
        depths: The blocks of each level, 1 unless given.
        strides: The stride from each level to the next: one number, one per level, or one per
            level and axis.
        deep_supervision: Whether the network has heads on up to three levels.
        position_embedding: Whether the bridge adds a learned position embedding.
        dropout: The rate of dropout after the position embedding.

    >>> import torch
    >>> from factorizer import FactorizerBlock, ResidualMLP, UNet
    >>> def make_block(in_channels, out_channels, spatial_size):
    ...     mlp = ResidualMLP(out_channels, 2 * out_channels)
    ...     return FactorizerBlock(in_channels, out_channels, mixer=None, mlp=mlp)
    >>> unet = UNet(
    ...     in_channels=1,
    ...     out_channels=2,
    ...     spatial_size=(16, 16, 16),
    ...     make_block=make_block,
    ...     widths=(8, 16, 32),
    ... )
    >>> [tuple(logits.shape) for logits in unet(torch.rand(1, 1, 16, 16, 16))]
    [(1, 2, 16, 16, 16), (1, 2, 8, 8, 8)]
    >>> tuple(unet.eval()(torch.rand(1, 1, 16, 16, 16)).shape)
    (1, 2, 16, 16, 16)
    """

    def __init__(
        self,
        *,
        in_channels: int,
        out_channels: int,
        spatial_size: Sequence[int],
        make_block: MakeBlock,
        widths: Sequence[int] = (32, 64, 128, 256, 512),
        depths: Sequence[int] | None = None,
        strides: int | Sequence[int | Sequence[int]] = 2,
        deep_supervision: bool = True,
        position_embedding: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        depths = tuple(depths) if depths is not None else (1,) * len(widths)
        check_levels(spatial_size, widths, depths)
        dims = len(spatial_size)
        self.in_channels = in_channels
        self.deep_supervision = deep_supervision
        level_strides = per_level(strides, len(widths) - 1, dims)
        self.total_stride = tuple(prod(axis) for axis in zip(*level_strides, strict=True))
        self.check_size(spatial_size)
        sizes = sizes_of_levels(spatial_size, level_strides)

        def stage(level: int, in_width: int) -> Stage:
            width, size = widths[level], sizes[level]
            first = make_block(in_width, width, size)
            others = [make_block(width, width, size) for _ in range(depths[level] - 1)]
            return Stage([first, *others])

        levels = range(len(widths) - 1)
        self.stem = CONV[dims](in_channels, widths[0], 3, padding=1, bias=False)
        self.encoder = nn.ModuleList(stage(i, widths[i]) for i in levels)
        self.down = nn.ModuleList(
            Downsample(widths[i], widths[i + 1], level_strides[i]) for i in levels
        )
        self.position: nn.Parameter | None = None
        if position_embedding:
            self.position = nn.Parameter(torch.randn(1, widths[-1], *sizes[-1]))
        self.dropout = nn.Dropout(dropout)
        self.bridge = stage(len(widths) - 1, widths[-1])
        self.up = nn.ModuleList(
            Upsample(widths[i + 1], widths[i], level_strides[i]) for i in levels[::-1]
        )
        self.decoder = nn.ModuleList(stage(i, 2 * widths[i]) for i in levels[::-1])
        num_heads = min(3, len(levels)) if deep_supervision else 1
        self.heads = nn.ModuleList(CONV[dims](widths[i], out_channels, 1) for i in range(num_heads))

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        """(B, in_channels, *spatial) -> logits (B, out_channels, *spatial), or a list of them."""
        self.check_input(x)
        x = conv_few_channels(x, self.stem)
        skips = []
        for block, down in zip(self.encoder, self.down, strict=True):
            skips.append(block(x))
            x = down(skips[-1])
        x = self.bridge(self.add_position(x))
        maps = []
        for up, block, skip in zip(self.up, self.decoder, reversed(skips), strict=True):
            x = block(skip, up(x))
            maps.append(x)
        supervised = self.training and self.deep_supervision
        heads = self.heads if supervised else self.heads[:1]
        logits = [head(x).contiguous() for head, x in zip(heads, reversed(maps), strict=False)]
        return logits if supervised else logits[0]

    def add_position(self, x: Tensor) -> Tensor:
        """Add the position embedding, resized if the map has another size than at construction."""
        if self.position is None:
            return x
        return self.dropout(x + resize_position(self.position, x.shape[2:]))

    def check_input(self, x: Tensor) -> None:
        """Raise an error unless x is (B, in_channels, *spatial) of a possible size."""
        dims = len(self.total_stride)
        if x.ndim != dims + 2 or x.shape[1] != self.in_channels:
            expected = ", ".join(AXES[dims])
            raise FactorizerError(
                f"input has shape {tuple(x.shape)}; this model takes (B, {self.in_channels}, "
                f"{expected})"
            )
        self.check_size(x.shape[2:])

    def check_size(self, spatial_size: Sequence[int]) -> None:
        """Raise an error unless every axis is a multiple of its total stride."""
        axes = AXES[len(self.total_stride)]
        for axis, size, total in zip(axes, spatial_size, self.total_stride, strict=True):
            if size < 1 or size % total:
                valid = max(1, -(-size // total)) * total
                raise FactorizerError(
                    f"axis {axis} has {size} voxels, not a multiple of total stride {total}; pad "
                    f"to {valid}"
                )


class Stage(nn.ModuleList):
    """The blocks of one level, one after the other. The first may take several maps."""

    def forward(self, *maps: Tensor) -> Tensor:
        for block in self:
            maps = (block(*maps),)
        return maps[0]


def resize_position(position: Tensor, size: Sequence[int]) -> Tensor:
    """A position embedding (1, C, *spatial), interpolated linearly to a map of another size."""
    if position.shape[2:] == size:
        return position
    mode = {2: "bilinear", 3: "trilinear"}[position.ndim - 2]
    return F.interpolate(position, size, mode=mode, align_corners=False)


def check_levels(spatial_size: Sequence[int], widths: Sequence[int], depths: Sequence[int]) -> None:
    """Raise an error if the numbers of sizes, widths or depths are wrong."""
    if len(spatial_size) not in CONV:
        raise FactorizerError(f"spatial_size is {tuple(spatial_size)}; give 2 or 3 sizes")
    if len(widths) < 2:
        raise FactorizerError(
            f"widths is {tuple(widths)}; give at least 2, the last for the bridge"
        )
    if len(depths) != len(widths) or min(depths) < 1:
        raise FactorizerError(
            f"depths is {depths}; give {len(widths)} positive numbers, one per width"
        )


def sizes_of_levels(
    spatial_size: Sequence[int], level_strides: Sequence[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """The spatial size of every level, from the finest to the bridge."""
    sizes = [tuple(spatial_size)]
    for stride in level_strides:
        sizes.append(tuple(n // s for n, s in zip(sizes[-1], stride, strict=True)))
    return sizes


def per_level(
    strides: int | Sequence[int | Sequence[int]], levels: int, dims: int
) -> list[tuple[int, ...]]:
    """One stride per level and axis, from one for all, one per level, or all of them."""
    values = [strides] * levels if isinstance(strides, int) else list(strides)
    if len(values) != levels:
        raise FactorizerError(
            f"strides is {strides}; give one number, or {levels}, one per downsampling"
        )
    return [per_axis(value, dims, "stride") for value in values]


def conv_few_channels(x: Tensor, conv: nn.Conv2d | nn.Conv3d) -> Tensor:
    """The stem convolution, channels last.

    A convolution on a CPU is several times slower if the input channels do not fill a vector of
    eight, which those of images never do. Channels of zeros are added to fill it.
    """
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}[x.ndim]
    missing = -x.shape[1] % 8 if x.device.type == "cpu" else 0
    pad = (0, 0) * (x.ndim - 2) + (0, missing)
    x = F.pad(x, pad).contiguous(memory_format=layout)
    return F_CONV[x.ndim - 2](x, F.pad(conv.weight, pad), padding=conv.padding)
