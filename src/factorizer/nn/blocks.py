"""The Factorizer block: wrapped NMF and MLP, both residual with layer normalization (Eq. 4-6).

Modules take and return maps (B, C, *spatial). Inside, everything works on channels-last parts of a
map (see tiles.py): windows (windows, N, C) for the NMF, single voxels (..., C) for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorizer.nn.matricize import Matricize
from factorizer.nn.nmf import NMF, full_precision, widen
from factorizer.nn.rank_one import rank_one_mix
from factorizer.nn.tiles import Rows, Tiling, Windows, apply_tiled, is_captured


class WrappedNMF(nn.Module):
    """Project, matricize, ReLU, NMF, dematricize, project (Eq. 6).

    The matricization is fitted to each map that comes (`fitted`); `spatial_size`, the size the
    layer is meant for, only serves its repr.
    """

    def __init__(
        self,
        channels: int,
        matricize: Matricize,
        nmf: NMF,
        *,
        spatial_size: Sequence[int],
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        matricize.check_channels(channels)
        matricize.fitted(
            spatial_size
        )  # a window that cannot be meant fails here, not in the first forward
        self.matricize, self.spatial_size = matricize, tuple(spatial_size)
        self.in_proj = nn.Linear(channels, channels, bias=False)
        self.nmf = nmf
        self.out_proj = nn.Linear(channels, channels)
        self.dropout = nn.Dropout(dropout)

    def extra_repr(self) -> str:
        size = " x ".join(map(str, self.spatial_size))
        return f"(matricize): {self.matricize.fitted(self.spatial_size)} on {size}"

    def forward(self, x: Tensor) -> Tensor:
        if self.nmf.joins_windows and not self.nmf.bypass:
            return self.mix_map(x)
        return apply_tiled(self.mix, x, tilings=self.tilings(x), params=self.parameters())

    def mix_map(self, x: Tensor) -> Tensor:
        """Eq. 6 on a whole map (B, C, *spatial), where tiles would part windows that belong
        together."""
        size = x.shape[2:]
        cut = self.matricize.fitted(size)
        matrices = cut.matricize(self.in_proj(x.movedim(1, -1)).movedim(-1, 1)).relu()
        y = cut.dematricize(self.nmf(matrices), size)
        return self.dropout(self.out_proj(y.movedim(1, -1))).movedim(-1, 1)

    def tilings(self, x: Tensor) -> Sequence[Tiling]:
        """The grids of windows over x (B, C, *spatial), whose results are averaged; all voxels once
        without NMF."""
        if self.nmf.bypass:
            return [Rows()]
        size = x.shape[2:]
        return [Windows(grid) for grid in self.matricize.fitted(size).grids(size)]

    def mix(self, windows: Tensor) -> Tensor:
        """Eq. 6 on windows (windows, N, C): matricized, but for the cut of the channels into
        heads."""
        x = self.in_proj(windows)
        x = x if self.nmf.takes_any_sign else x.relu_()
        if self.nmf.bypass:
            return self.dropout(self.out_proj(x))
        with full_precision(x):
            y = self.reconstruct(widen(x))
        return self.dropout(y.to(x.dtype))

    def reconstruct(self, x: Tensor) -> Tensor:
        """NMF of every head and out-projection: x (windows, N, C) >= 0 -> (windows, N, C)."""
        head_dim, nmf = self.matricize.head_dim, self.nmf
        weight, bias = (p.to(x.dtype) for p in (self.out_proj.weight, self.out_proj.bias))
        if nmf.is_rank_one_iteration and not is_captured():
            nmf.check()
            _, g0 = nmf.initial_factors(head_dim, x.shape[1], dtype=x.dtype)
            return rank_one_mix(x, g0, weight, bias, head_dim=head_dim, num_iters=nmf.num_iters)
        matrices = (
            x.unflatten(-1, (-1, head_dim)).transpose(1, 2).contiguous().mT
        )  # (windows, heads, E, N)
        return F.linear(nmf(matrices).permute(0, 3, 1, 2).flatten(2), weight, bias)


class ResidualNMF(nn.Module):
    """Y = WrappedNMF(LayerNorm(X)) + X, the first line of Eq. 4."""

    def __init__(self, channels: int, wrapped_nmf: WrappedNMF) -> None:
        super().__init__()
        self.norm, self.wrapped_nmf = nn.LayerNorm(channels), wrapped_nmf

    def forward(self, x: Tensor) -> Tensor:
        if self.wrapped_nmf.nmf.joins_windows and not self.wrapped_nmf.nmf.bypass:
            return self.wrapped_nmf(self.norm(x.movedim(1, -1)).movedim(-1, 1)) + x
        return apply_tiled(
            self.on_windows, x, tilings=self.wrapped_nmf.tilings(x), params=self.parameters()
        )

    def on_windows(self, x: Tensor) -> Tensor:
        return self.wrapped_nmf.mix(self.norm(x)) + x


def make_mlp(channels: int, hidden: int, dropout: float) -> nn.Sequential:
    """Two linear layers with GELU between them (Eq. 5)."""
    return nn.Sequential(
        nn.Linear(channels, hidden),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, channels),
        nn.Dropout(dropout),
    )


class ResidualMLP(nn.Module):
    """Z = MLP(LayerNorm(Y)) + Y, the second line of Eq. 4, with the MLP of Eq. 5."""

    def __init__(self, channels: int, hidden: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.mlp = make_mlp(channels, hidden, dropout)

    def forward(self, x: Tensor, *, overwrite: bool = False) -> Tensor:
        """`overwrite` lets inference put the result in the place of x."""
        overwrite = overwrite and not torch.is_grad_enabled()
        return apply_tiled(
            self.on_voxels, x, tilings=[Rows()], params=self.parameters(), overwrite=overwrite
        )

    def on_voxels(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm(x)) + x


class Adapter(nn.Module):
    """A pointwise layer without bias, from one map or several taken together to one of the width
    wanted."""

    def __init__(self, in_channels: int, out_channels: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.proj = nn.Linear(in_channels, out_channels, bias=False)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, *maps: Tensor) -> Tensor:
        return apply_tiled(self.on_voxels, *maps, tilings=[Rows()], params=self.parameters())

    def on_voxels(self, *maps: Tensor) -> Tensor:
        return self.dropout(self.proj(torch.cat(maps, -1)))


class FactorizerBlock(nn.Module):
    """Eq. 4, after an adapter where the width changes; None leaves a sub-block out.

    The mixer is the residual NMF, or what takes its place; its result must be a new map.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        mixer: nn.Module | None,
        mlp: ResidualMLP | None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        same = in_channels == out_channels
        self.adapter = (
            nn.Identity() if same else Adapter(in_channels, out_channels, dropout=dropout)
        )
        self.mixer = mixer or nn.Identity()
        self.mlp = mlp or nn.Identity()

    def forward(self, *maps: Tensor) -> Tensor:
        x = self.adapter(*maps)
        y = self.mixer(x)
        if isinstance(self.mlp, ResidualMLP):
            is_ours = y is not x and not self.mixer._forward_hooks  # which may keep it
            return self.mlp(y, overwrite=is_ours)
        return self.mlp(y)
