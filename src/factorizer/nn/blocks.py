"""The Factorizer block: wrapped NMF and MLP, both residual with layer normalization (Eq. 4-6).

Modules take and return maps (B, C, *spatial). Inside, everything works on channels-last parts of a
map (see tiles.py): on windows (windows, N, C) for the NMF, on single voxels (..., C) otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorizer.nn import native
from factorizer.nn.matricize import Cut, Grid, HeadCut, MapCut, Matricize
from factorizer.nn.nmf import NMF, full_precision, widen
from factorizer.nn.rank_one import rank_one_mix
from factorizer.nn.tiles import Rows, Tiling, Windows, apply_tiled, is_captured, is_eager_cpu


class WrappedNMF(nn.Module):
    """Project, matricize, ReLU, NMF, dematricize, project (Eq. 6).

    A map (B, C, *spatial) gives a map of the same shape.

    Args:
        channels: C.
        matricize: How the map is cut into matrices. It is fitted to the size of every map.
        nmf: The factorization of the matrices.
        spatial_size: The size of the maps that the layer is meant for. It is checked here and
            shown by `repr`; maps of other sizes work too.
        dropout: The rate of dropout after the last projection.

    >>> import torch
    >>> from factorizer import NMF, ShiftedWindowMatricize, WrappedNMF
    >>> matricize = ShiftedWindowMatricize(head_dim=4, window=8)
    >>> layer = WrappedNMF(16, matricize, NMF(), spatial_size=(16, 16, 16))
    >>> tuple(layer(torch.rand(1, 16, 16, 16, 16)).shape)
    (1, 16, 16, 16, 16)
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
        matricize.fitted(spatial_size)  # an impossible window fails here, not in the first forward
        self.matricize = matricize
        self.spatial_size = tuple(spatial_size)
        self.in_proj = nn.Linear(channels, channels, bias=False)
        self.nmf = nmf
        self.out_proj = nn.Linear(channels, channels)
        self.dropout = nn.Dropout(dropout)

    def extra_repr(self) -> str:
        size = " x ".join(map(str, self.spatial_size))
        return f"(matricize): {self.matricize.fitted(self.spatial_size)} on {size}"

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, *spatial) -> (B, C, *spatial)."""
        if self.needs_whole_map:
            return self.mix(x.movedim(1, -1), self.cut_of(x)).movedim(-1, 1)
        return apply_tiled(self.mix_windows, x, tilings=self.tilings(x), params=self.parameters())

    @property
    def needs_whole_map(self) -> bool:
        """Whether tiles would separate windows that are factorized together."""
        return self.nmf.joins_windows and not self.nmf.bypass

    def cut_of(self, x: Tensor) -> MapCut:
        """The cut of a whole map (B, C, *spatial)."""
        size = x.shape[2:]
        return MapCut(self.matricize.fitted(size), size)

    def tilings(self, x: Tensor) -> Sequence[Tiling]:
        """How a map (B, C, *spatial) is cut into tiles. Several tilings are averaged.

        These are the grids of windows. A bypassed NMF needs no windows: every voxel comes once.
        """
        if self.nmf.bypass:
            return [Rows()]
        size = x.shape[2:]
        return [Windows(grid) for grid in self.matricize.fitted(size).grids(size)]

    def mix_windows(self, windows: Tensor) -> Tensor:
        """Eq. 6 on windows (windows, N, C), which are matrices except for the cut into heads."""
        return self.mix(windows, HeadCut(self.matricize.head_dim))

    def mix(self, x: Tensor, cut: Cut) -> Tensor:
        """Eq. 6 on voxels (..., C) that `cut` turns into matrices -> (..., C)."""
        x = self.project(x)
        if self.nmf.bypass:
            return self.dropout(self.out_proj(x))
        if self.nmf.joins_windows:  # a whole map, which would take twice the memory if widened
            return self.dropout(self.reconstruct(x, cut))
        with full_precision(x):
            y = self.reconstruct(widen(x), cut)
        return self.dropout(y.to(x.dtype))

    def project(self, x: Tensor) -> Tensor:
        """The first projection and ReLU: voxels (..., C) -> (..., C).

        ReLU comes before matricize here. Both orders are the same, as matricize only moves numbers.
        """
        x = self.in_proj(x)
        return x if self.nmf.takes_any_sign else x.relu_()

    def factors(self, x: Tensor, cut: Cut) -> tuple[Tensor, Tensor]:
        """Projected voxels (..., C) -> F (..., E, R) and G (..., N, R) of the matrices of `cut`."""
        return self.nmf.factorize(cut.matricize(x))

    def reconstruct(self, x: Tensor, cut: Cut) -> Tensor:
        """Projected voxels (..., C) -> F G^T, dematricized and projected (..., C)."""
        head_dim, nmf = self.matricize.head_dim, self.nmf
        weight, bias = self.out_proj.weight.to(x.dtype), self.out_proj.bias.to(x.dtype)
        if nmf.is_rank_one_iteration and not is_captured():  # the same in fewer products
            nmf.check()
            _, g0 = nmf.initial_factors(head_dim, x.shape[1], dtype=x.dtype)
            return rank_one_mix(x, g0, weight, bias, head_dim=head_dim, num_iters=nmf.num_iters)
        f, g = self.factors(x, cut)
        return F.linear(cut.dematricize((f @ g.mT).to(x.dtype)), weight, bias)


class ResidualNMF(nn.Module):
    """Y = WrappedNMF(LayerNorm(X)) + X, the first line of Eq. 4.

    A map (B, C, *spatial) gives a new map of the same shape.

    Args:
        channels: C.
        wrapped_nmf: The layer of Eq. 6, for as many channels.

    >>> import torch
    >>> from factorizer import NMF, LocalMatricize, ResidualNMF, WrappedNMF
    >>> wrapped = WrappedNMF(16, LocalMatricize(4, 8), NMF(), spatial_size=(16, 16, 16))
    >>> layer = ResidualNMF(16, wrapped)
    >>> tuple(layer(torch.rand(1, 16, 16, 16, 16)).shape)
    (1, 16, 16, 16, 16)
    """

    def __init__(self, channels: int, wrapped_nmf: WrappedNMF) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.wrapped_nmf = wrapped_nmf

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, *spatial) -> (B, C, *spatial)."""
        wrapped = self.wrapped_nmf
        if wrapped.needs_whole_map:
            return wrapped(self.norm(x.movedim(1, -1)).movedim(-1, 1)) + x
        if is_eager_cpu(x) and self.is_rank_one_of_plain_layers():
            grids = wrapped.cut_of(x).grids
            if native.serves(x, grids):
                return self.on_native_map(x.movedim(1, -1), grids).movedim(-1, 1)
        return apply_tiled(self.on_windows, x, tilings=wrapped.tilings(x), params=self.parameters())

    def on_windows(self, x: Tensor) -> Tensor:
        return self.wrapped_nmf.mix_windows(self.norm(x)) + x

    def is_rank_one_of_plain_layers(self) -> bool:
        """Whether nn/native.py computes the same.

        Its parts must be PyTorch's own layers, without hooks that would have to be called.
        """
        wrapped = self.wrapped_nmf
        parts = (self.norm, wrapped, wrapped.in_proj, wrapped.nmf, wrapped.out_proj)
        is_plain = not any(has_hooks(part) for part in (*parts, wrapped.dropout))
        kinds = (nn.LayerNorm, WrappedNMF, nn.Linear, NMF, nn.Linear)
        is_plain &= all(type(part) is kind for part, kind in zip(parts, kinds, strict=True))
        drops = wrapped.dropout.training and wrapped.dropout.p > 0
        nmf = wrapped.nmf
        return is_plain and not drops and nmf.is_rank_one_iteration and not nmf.bypass

    def on_native_map(self, x: Tensor, grids: Sequence[Grid]) -> Tensor:
        """(B, *spatial, C) -> the same shape."""
        wrapped, head_dim = self.wrapped_nmf, self.wrapped_nmf.matricize.head_dim
        wrapped.nmf.check()
        _, g0 = wrapped.nmf.initial_factors(head_dim, prod(grids[0].window), dtype=x.dtype)
        return native.residual_nmf(
            x,
            (self.norm.weight, self.norm.bias),
            wrapped.in_proj.weight,
            wrapped.out_proj.weight,
            wrapped.out_proj.bias,
            g0,
            epsilon=self.norm.eps,
            head_dim=head_dim,
            num_iters=wrapped.nmf.num_iters,
            grids=grids,
        )

    def factors(self, x: Tensor) -> tuple[Tensor, Tensor, MapCut]:
        """What the layer factorizes a map (B, C, *spatial) into, and how the map is cut.

        F (B, heads, windows, E, R) has unit columns, G (B, heads, windows, N, R) has the scale.
        """
        wrapped = self.wrapped_nmf
        cut = wrapped.cut_of(x)
        f, g = wrapped.factors(wrapped.project(self.norm(x.movedim(1, -1))), cut)
        return f, g, cut


def has_hooks(module: nn.Module) -> bool:
    """Whether something is to be called before or after a module computes."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


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
    """Z = MLP(LayerNorm(Y)) + Y, the second line of Eq. 4, with the MLP of Eq. 5.

    A map (B, C, *spatial) gives a map of the same shape.

    Args:
        channels: C.
        hidden: The width between the two linear layers.
        dropout: The rate of dropout after each of them.

    >>> import torch
    >>> from factorizer import ResidualMLP
    >>> tuple(ResidualMLP(16, hidden=32)(torch.rand(1, 16, 8, 8, 8)).shape)
    (1, 16, 8, 8, 8)
    """

    def __init__(self, channels: int, hidden: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.mlp = make_mlp(channels, hidden, dropout)

    def forward(self, x: Tensor, *, overwrite: bool = False) -> Tensor:
        """(B, C, *spatial) -> (B, C, *spatial). Inference may `overwrite` x with the result."""
        overwrite = overwrite and not torch.is_grad_enabled()
        return apply_tiled(
            self.on_voxels, x, tilings=[Rows()], params=self.parameters(), overwrite=overwrite
        )

    def on_voxels(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm(x)) + x


class Adapter(nn.Module):
    """A linear layer on every voxel, without bias: several maps (B, C_i, *spatial) -> one map."""

    def __init__(self, in_channels: int, out_channels: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.proj = nn.Linear(in_channels, out_channels, bias=False)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, *maps: Tensor) -> Tensor:
        return apply_tiled(self.on_voxels, *maps, tilings=[Rows()], params=self.parameters())

    def on_voxels(self, *maps: Tensor) -> Tensor:
        return self.dropout(self.proj(torch.cat(maps, -1)))


class FactorizerBlock(nn.Module):
    """Eq. 4: a mixer, then an MLP. An adapter comes first where the width changes.

    One or several maps, `in_channels` together, give one map (B, out_channels, *spatial).

    Args:
        in_channels: The channels of all input maps together.
        out_channels: The channels of the result.
        mixer: The residual NMF, or a layer that takes its place and returns a new map. None leaves
            it out.
        mlp: The residual MLP. None leaves it out.
        dropout: The rate of dropout after the adapter.

    >>> import torch
    >>> from factorizer import NMF, FactorizerBlock, LocalMatricize
    >>> from factorizer import ResidualMLP, ResidualNMF, WrappedNMF
    >>> wrapped = WrappedNMF(16, LocalMatricize(4, 8), NMF(), spatial_size=(16, 16, 16))
    >>> block = FactorizerBlock(8, 16, mixer=ResidualNMF(16, wrapped), mlp=ResidualMLP(16, 32))
    >>> tuple(block(torch.rand(1, 8, 16, 16, 16)).shape)
    (1, 16, 16, 16, 16)
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
        self.adapter: nn.Module = nn.Identity()
        if in_channels != out_channels:
            self.adapter = Adapter(in_channels, out_channels, dropout=dropout)
        self.mixer = mixer or nn.Identity()
        self.mlp = mlp or nn.Identity()

    def forward(self, *maps: Tensor) -> Tensor:
        """Maps (B, C_i, *spatial) -> (B, out_channels, *spatial)."""
        x = self.adapter(*maps)
        y = self.mixer(x)
        if isinstance(self.mlp, ResidualMLP):
            is_ours = y is not x and not self.mixer._forward_hooks  # a hook may keep it
            return self.mlp(y, overwrite=is_ours)
        return self.mlp(y)


def nmf_blocks(network: nn.Module) -> dict[str, ResidualNMF]:
    """The residual NMFs of a network along the data path, by module name."""
    named = network.named_modules()
    return {name: module for name, module in named if isinstance(module, ResidualNMF)}


def nmf_layers(network: nn.Module) -> list[NMF]:
    """The NMF layers of a network along the data path; empty if it has none."""
    return [block.wrapped_nmf.nmf for block in nmf_blocks(network).values()]
