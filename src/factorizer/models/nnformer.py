"""nnFormer: window attention in encoder and decoder, joined by attention to the skips.

H.-Y. Zhou et al., "nnFormer: Volumetric medical image segmentation via a 3D transformer", IEEE
Transactions on Image Processing 32 (2023) 4036-4045, the variant for brain tumours. It differs from
the published code in one point, which changes no count: each relative offset has its own row of the
bias table, where in the code several share one.

Maps are channels last, (B, H, W, D, C), except inside convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from monai.networks.layers.drop_path import DropPath
from torch import Tensor, nn

from factorizer.errors import FactorizerError
from factorizer.models.sizes import check_3d, check_multiple
from factorizer.nn.matricize import Grid
from factorizer.nn.unet import Stage

TOTAL_STRIDE = 32  # 4 of the embedding, then 3 times 2
MASKED = -100.0  # added to the score of voxels that are neighbours only because the map was rolled


class ChannelsLast(nn.Module):
    """A convolution on a channels-last map."""

    def __init__(self, conv: nn.Conv3d | nn.ConvTranspose3d) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x.movedim(-1, 1)).movedim(1, -1)


def conv(in_channels: int, out_channels: int, stride: int) -> ChannelsLast:
    return ChannelsLast(nn.Conv3d(in_channels, out_channels, 3, stride, padding=1))


def conv_transpose(in_channels: int, out_channels: int, stride: int) -> ChannelsLast:
    return ChannelsLast(nn.ConvTranspose3d(in_channels, out_channels, stride, stride))


def make_embedding(in_channels: int, width: int) -> nn.Sequential:
    """Four convolutions to a quarter of the resolution."""
    half = width // 2
    return nn.Sequential(
        *(conv(in_channels, half, 2), nn.GELU(), nn.LayerNorm(half)),
        *(conv(half, half, 1), nn.GELU(), nn.LayerNorm(half)),
        *(conv(half, width, 2), nn.GELU(), nn.LayerNorm(width)),
        *(conv(width, width, 1), nn.LayerNorm(width)),
    )


class WindowAttention(nn.Module):
    """Multi-head attention inside windows, with a learned bias for each relative offset.

    Queries, keys and values are projections of the same map. With `own_queries` the queries are
    given, and only keys and values are projections of the map.
    """

    def __init__(
        self, channels: int, num_heads: int, *, window: int, shift: int, own_queries: bool
    ) -> None:
        super().__init__()
        if channels % num_heads:
            raise FactorizerError(
                f"{channels} channels cannot be cut into {num_heads} heads; use a multiple"
            )
        self.num_heads = num_heads
        self.window = window
        self.shift = shift
        self.proj = nn.Linear(channels, (2 if own_queries else 3) * channels)
        self.out_proj = nn.Linear(channels, channels)
        self.bias_table = nn.Parameter(torch.empty((2 * window - 1) ** 3, num_heads))
        nn.init.trunc_normal_(self.bias_table, std=0.02)

    def forward(self, x: Tensor, queries: Tensor | None = None) -> Tensor:
        """(B, H, W, D, C) -> (B, H, W, D, C)."""
        size = x.shape[1:4]
        x = self.pad(x)
        padded, grid = x.shape[1:4], Grid((self.window,) * 3, (-self.shift,) * 3)
        heads = self.split_heads(self.proj(grid.split(x)))  # q, k, v or k, v
        if queries is not None:
            heads = torch.cat((self.split_heads(grid.split(self.pad(queries))), heads))
        q, k, v = heads  # each (windows, heads, N, d)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.scores(padded, x))
        y = grid.merge(self.out_proj(y.transpose(1, 2).flatten(2)), padded)
        return y[:, : size[0], : size[1], : size[2]]

    def pad(self, x: Tensor) -> Tensor:
        """Add zeros at the end of each axis of (B, H, W, D, C) to a multiple of the window."""
        h, w, d = (-n % self.window for n in x.shape[1:4])
        return F.pad(x, (0, 0, 0, d, 0, w, 0, h))

    def split_heads(self, x: Tensor) -> Tensor:
        """(windows, N, k C) -> (k, windows, heads, N, d)."""
        head_dim = self.out_proj.in_features // self.num_heads
        return x.unflatten(-1, (-1, self.num_heads, head_dim)).permute(2, 0, 3, 1, 4)

    def scores(self, size: Sequence[int], like: Tensor) -> Tensor:
        """The bias and the mask that are added to the scores: (1 or windows, heads, N, N)."""
        axis = torch.arange(self.window, device=like.device)
        place = torch.cartesian_prod(axis, axis, axis)  # (N, 3)
        offset = place[:, None] - place + self.window - 1  # (N, N, 3), 0 .. 2 window - 2
        weights = (2 * self.window - 1) ** torch.arange(2, -1, -1, device=like.device)
        rows = (offset * weights).sum(-1)  # (N, N)
        bias = self.bias_table[rows].permute(2, 0, 1)[None]  # (1, heads, N, N)
        if not self.shift:
            return bias.to(like.dtype)
        mask = self.rolled_mask(size, like.device).unsqueeze(1)  # (windows, 1, N, N)
        return (bias + MASKED * mask).repeat(len(like), 1, 1, 1).to(like.dtype)

    def rolled_mask(self, size: Sequence[int], device: torch.device) -> Tensor:
        """Which pairs of voxels in a window are from opposite ends of the map: (windows, N, N)."""
        labels = torch.zeros(1, *size, 1, device=device)
        for axis, length in enumerate(size, start=1):
            place = torch.arange(length, device=device)
            part = (place >= length - self.window).int() + (place >= length - self.shift).int()
            shape = [1] * 5
            shape[axis] = length
            labels = 3 * labels + part.view(shape)
        windows = Grid((self.window,) * 3, (0,) * 3).split(labels).squeeze(-1)  # (windows, N)
        return windows[:, None] != windows[..., None]


class Block(nn.Module):
    """Attention and MLP, both residual with LayerNorm. A skip is attended to from the map."""

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        window: int,
        shift: int,
        drop_path: float,
        from_skip: bool = False,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels)
        self.norm2 = nn.LayerNorm(channels)
        self.attention = WindowAttention(
            channels, num_heads, window=window, shift=shift, own_queries=from_skip
        )
        self.mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        )
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor:
        if skip is None:
            y = x + self.drop_path(self.attention(self.norm1(x)))
        else:
            y = x + skip + self.drop_path(self.attention(self.norm1(skip), queries=self.norm1(x)))
        return y + self.drop_path(self.mlp(self.norm2(y)))


class NNFormer(nn.Module):
    """Four levels of window attention down, three up, a head on each of the three."""

    def __init__(
        self,
        *,
        in_channels: int,
        out_channels: int,
        spatial_size: Sequence[int],
        embed_dim: int,
        stage_depths: Sequence[int],
        num_heads: Sequence[int],
        window_size: int,
        drop_path_rate: float,
        deep_supervision: bool,
    ) -> None:
        super().__init__()
        self.deep_supervision = deep_supervision
        levels = range(len(stage_depths))
        widths = [embed_dim * 2**level for level in levels]

        def make_stage(level: int, heads: int, rates: Sequence[float], from_skip: bool) -> Stage:
            smallest = min(spatial_size) // (4 * 2**level)
            fits = smallest > window_size
            blocks = []
            for index, rate in enumerate(rates):
                is_shifted = index > 0 if from_skip else index % 2 == 1
                block = Block(
                    widths[level],
                    heads,
                    window=window_size if fits else smallest,
                    shift=window_size // 2 if fits and is_shifted else 0,
                    drop_path=rate,
                    from_skip=from_skip and index == 0,
                )
                blocks.append(block)
            return Stage(blocks)

        down_rates = spread_rates(drop_path_rate, stage_depths)
        up_rates = spread_rates(drop_path_rate, stage_depths[-2::-1])
        self.embed = make_embedding(in_channels, embed_dim)
        self.encoder = nn.ModuleList(
            make_stage(i, num_heads[i], down_rates[i], False) for i in levels
        )
        self.down = nn.ModuleList(
            nn.Sequential(nn.GELU(), nn.LayerNorm(c), conv(c, 2 * c, 2)) for c in widths[:-1]
        )
        self.skip_norms = nn.ModuleList(nn.LayerNorm(c) for c in widths)
        self.up = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(2 * c), conv_transpose(2 * c, c, 2)) for c in widths[-2::-1]
        )
        self.decoder = nn.ModuleList(
            make_stage(i, num_heads[i + 1], rates, True)
            for i, rates in zip(levels[-2::-1], up_rates, strict=True)
        )
        heads = widths[:3] if deep_supervision else widths[:1]
        self.heads = nn.ModuleList(conv_transpose(c, out_channels, 4) for c in heads)

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        """(B, in_channels, *spatial) -> logits (B, out_channels, *spatial).

        In training with `deep_supervision` it is a list of them, the full resolution first.
        """
        check_multiple(x.shape[2:], TOTAL_STRIDE, "nnFormer")
        x = self.embed(x.movedim(1, -1))
        skips = []
        for level, stage in enumerate(self.encoder):
            x = stage(self.down[level - 1](x) if level else x)
            skips.append(self.skip_norms[level](x))
        x = skips.pop()
        maps = []
        for up, stage in zip(self.up, self.decoder, strict=True):
            x = stage(up(x), skips.pop())
            maps.append(x)
        supervised = self.training and self.deep_supervision
        heads = self.heads if supervised else self.heads[:1]
        logits = [head(x).movedim(-1, 1) for head, x in zip(heads, reversed(maps), strict=False)]
        return logits if supervised else logits[0]


def spread_rates(highest: float, depths: Sequence[int]) -> list[list[float]]:
    """The drop-path rate of each block, by level. It rises evenly from 0 to `highest`."""
    rates = torch.linspace(0, highest, sum(depths), device="cpu")
    return [level.tolist() for level in rates.split(list(depths))]


def build_nnformer(
    *,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    embed_dim: int = 192,
    stage_depths: Sequence[int] = (2, 2, 2, 2),
    num_heads: Sequence[int] = (3, 6, 12, 24),
    window_size: int = 4,
    drop_path_rate: float = 0.2,
    deep_supervision: bool = True,
) -> NNFormer:
    """Build nnFormer; the defaults are the paper's.

    `stage_depths` and `num_heads` are given for each encoder level, the finest first. A decoder
    level has the depth of its encoder level and the heads of the level below. Windows are not
    larger than the map.
    """
    check_3d(spatial_size, "nnFormer")
    check_multiple(spatial_size, TOTAL_STRIDE, "nnFormer")
    if len(stage_depths) != 4 or len(num_heads) != 4 or min(stage_depths) < 1:
        raise FactorizerError(
            f"stage_depths is {tuple(stage_depths)} and num_heads {tuple(num_heads)}; give 4 "
            "positive numbers each"
        )
    return NNFormer(
        in_channels=in_channels,
        out_channels=out_channels,
        spatial_size=spatial_size,
        embed_dim=embed_dim,
        stage_depths=stage_depths,
        num_heads=num_heads,
        window_size=window_size,
        drop_path_rate=drop_path_rate,
        deep_supervision=deep_supervision,
    )
