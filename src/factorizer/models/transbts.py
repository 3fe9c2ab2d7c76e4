"""TransBTS: a convolutional U-shape with a transformer over its coarsest grid.

W. Wang et al., "TransBTS: Multimodal brain tumor segmentation using transformer", MICCAI 2021. It
differs from the published code in three points, which change no count. It returns logits instead of
a softmax. The dropout of the stem is off in evaluation. The numbers of channels, outputs and voxels
are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorizer.errors import FactorizerError
from factorizer.models.sizes import check_3d, check_multiple, freeze
from factorizer.nn.blocks import make_mlp
from factorizer.nn.unet import resize_position

TOTAL_STRIDE = 8

# The published network has these, and they are in its parameter count, but no output depends on
# them: a last norm whose result is dropped, and a linear embedding beside the convolutional one.
UNUSED = (
    "unused_norm.weight",
    "unused_norm.bias",
    "unused_embedding.weight",
    "unused_embedding.bias",
)


def conv3(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv3d:
    return nn.Conv3d(in_channels, out_channels, 3, stride, padding=1)


class EncoderBlock(nn.Module):
    """GroupNorm, ReLU and convolution, twice; plus the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.GroupNorm(8, channels), nn.ReLU(), conv3(channels, channels)),
            *(nn.GroupNorm(8, channels), nn.ReLU(), conv3(channels, channels)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class DecoderBlock(nn.Module):
    """Convolution, BatchNorm and ReLU, twice; plus the input.

    The block that changes the width of the transformer does not add its input.
    """

    def __init__(self, in_channels: int, out_channels: int, *, residual: bool = True) -> None:
        super().__init__()
        self.residual = residual
        self.layers = nn.Sequential(
            *(conv3(in_channels, out_channels), nn.BatchNorm3d(out_channels), nn.ReLU()),
            *(conv3(out_channels, out_channels), nn.BatchNorm3d(out_channels), nn.ReLU()),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return x + y if self.residual else y


class UpBlock(nn.Module):
    """Halve the channels, double the resolution, join the skip, halve the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.reduce = nn.Conv3d(channels, half, 1)
        self.up = nn.ConvTranspose3d(half, half, 2, 2)
        self.join = nn.Conv3d(channels, half, 1)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return self.join(torch.cat((skip, self.up(self.reduce(x))), 1))


class Attention(nn.Module):
    """Softmax attention of all tokens to all tokens: (B, N, C) -> (B, N, C)."""

    def __init__(self, channels: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.rate = num_heads, dropout
        self.qkv = nn.Linear(channels, 3 * channels, bias=False)
        self.out_proj = nn.Linear(channels, channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))  # (B, N, 3, heads, d)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each (B, heads, N, d)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.rate if self.training else 0.0)
        return self.dropout(self.out_proj(y.transpose(1, 2).flatten(2)))


class TransformerLayer(nn.Module):
    """x + Attention(LayerNorm(x)), then x + FeedForward(LayerNorm(x))."""

    def __init__(self, channels: int, *, num_heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels)
        self.norm2 = nn.LayerNorm(channels)
        self.attention = nn.Sequential(Attention(channels, num_heads, dropout), nn.Dropout(dropout))
        self.feed_forward = make_mlp(channels, hidden, dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class TransBTS(nn.Module):
    """A convolutional encoder and decoder with skips, and a transformer between them.

    The transformer works at an eighth of the resolution.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        out_channels: int,
        spatial_size: Sequence[int],
        width: int,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        hidden: int,
        dropout_rate: float,
        stem_dropout_rate: float,
    ) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(4)]
        coarsest = widths[-1]
        self.stem = nn.Sequential(conv3(in_channels, width), nn.Dropout3d(stem_dropout_rate))
        self.encoder = nn.ModuleList()
        for channels, depth in zip(widths, (1, 2, 2, 4), strict=True):
            blocks = [EncoderBlock(channels) for _ in range(depth)]
            self.encoder.append(nn.Sequential(*blocks))
        self.down = nn.ModuleList(conv3(c, 2 * c, stride=2) for c in widths[:-1])
        self.embed = nn.Sequential(nn.BatchNorm3d(coarsest), nn.ReLU(), conv3(coarsest, embed_dim))
        self.grid = tuple(n // TOTAL_STRIDE for n in spatial_size)
        self.position = nn.Parameter(torch.zeros(1, prod(self.grid), embed_dim))
        self.dropout = nn.Dropout(dropout_rate)
        self.transformer = nn.Sequential()
        for _ in range(num_layers):
            self.transformer.append(
                TransformerLayer(
                    embed_dim, num_heads=num_heads, hidden=hidden, dropout=dropout_rate
                )
            )
        self.unused_norm = nn.LayerNorm(embed_dim)
        self.unused_embedding = nn.Linear(coarsest * in_channels, embed_dim)
        self.reduce = nn.Sequential(
            DecoderBlock(embed_dim, coarsest, residual=False), DecoderBlock(coarsest, coarsest)
        )
        self.up = nn.ModuleList(UpBlock(2 * c) for c in widths[-2::-1])
        self.decoder = nn.ModuleList(DecoderBlock(c, c) for c in widths[-2::-1])
        self.head = nn.Conv3d(width, out_channels, 1)
        freeze(self, UNUSED)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, *spatial) -> logits (B, out_channels, *spatial)."""
        check_multiple(x.shape[2:], TOTAL_STRIDE, "TransBTS")
        x = self.encoder[0](self.stem(x))
        skips = []
        for down, blocks in zip(self.down, self.encoder[1:], strict=True):
            skips.append(x)
            x = blocks(down(x))
        x = self.reduce(self.transform(self.embed(x)))
        for up, block, skip in zip(self.up, self.decoder, reversed(skips), strict=True):
            x = block(up(x, skip))
        return self.head(x)

    def transform(self, x: Tensor) -> Tensor:
        """The transformer with the voxels of a map (B, C, *grid) as tokens."""
        position = self.position.mT.unflatten(-1, self.grid)  # (1, C, *grid)
        x = x + resize_position(position, x.shape[2:])
        tokens = self.transformer(self.dropout(x.flatten(2).mT))  # (B, N, C)
        return tokens.mT.unflatten(-1, x.shape[2:])


def build_transbts(
    *,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    width: int = 16,
    embed_dim: int = 512,
    num_heads: int = 8,
    num_layers: int = 4,
    hidden: int = 4096,
    dropout_rate: float = 0.1,
    stem_dropout_rate: float = 0.2,
) -> TransBTS:
    """Build TransBTS; the defaults are the published ones.

    `width` is the number of channels at full resolution, a multiple of 8; it is doubled three
    times. `embed_dim`, `num_heads`, `num_layers` and `hidden` belong to the transformer.
    """
    check_3d(spatial_size, "TransBTS")
    check_multiple(spatial_size, TOTAL_STRIDE, "TransBTS")
    if width % 8:
        raise FactorizerError(
            f"width is {width}; it must be a multiple of 8, the groups of GroupNorm"
        )
    if embed_dim % num_heads:
        raise FactorizerError(f"embed_dim is {embed_dim}, not a multiple of num_heads {num_heads}")
    return TransBTS(
        in_channels=in_channels,
        out_channels=out_channels,
        spatial_size=spatial_size,
        width=width,
        embed_dim=embed_dim,
        num_heads=num_heads,
        num_layers=num_layers,
        hidden=hidden,
        dropout_rate=dropout_rate,
        stem_dropout_rate=stem_dropout_rate,
    )
