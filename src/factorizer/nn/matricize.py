"""Turn a feature map into a batch of matrices and back (Eq. 7-8, Algorithm 3).

A matricization cuts a map into windows, and its channels into heads of E channels. Each window of
each head is one matrix of E rows and N voxels. Global: one window, the whole map. Local: a grid of
windows. Shifted: two grids, the second on the map rolled by half a window.

A `Grid` is one such grid. It works on channels-last maps (B, *spatial, C), where it moves whole
blocks of channels. `matricize` and `dematricize` work on maps (B, C, *spatial) and are exact
inverses.

A `Cut` is what Eq. 6 needs of a matricization: `MapCut` for whole maps, `HeadCut` for windows that
are cut already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol, Self

import torch
from torch import Tensor

from factorizer.errors import FactorizerError

AXES = {2: "HW", 3: "HWD"}


@dataclass(frozen=True)
class Grid:
    """Non-overlapping windows over a map that is rolled by `shift` voxels along each axis."""

    window: tuple[int, ...]
    shift: tuple[int, ...]

    def split(self, x: Tensor) -> Tensor:
        """(B, *spatial, C) -> (B windows, N, C)."""
        axes = tuple(range(1, len(self.window) + 1))
        x = torch.roll(x, self.shift, axes) if any(self.shift) else x
        return split_windows(x, self.window).flatten(0, len(axes)).flatten(1, len(axes))

    def merge(self, windows: Tensor, spatial_size: Sequence[int]) -> Tensor:
        """(B windows, N, C) -> (B, *spatial, C), the inverse of `split`."""
        axes = tuple(range(1, len(self.window) + 1))
        counts = [s // p for s, p in zip(spatial_size, self.window, strict=True)]
        x = merge_windows(windows.reshape(-1, *counts, *self.window, windows.shape[-1]))
        return torch.roll(x, [-s for s in self.shift], axes) if any(self.shift) else x


def split_windows(x: Tensor, window: Sequence[int]) -> Tensor:
    """(B, *spatial, C) -> (B, *counts, *window, C), a view: Eq. 7 before flattening."""
    dims = len(window)
    sizes: list[int] = []
    for s, p in zip(x.shape[1:-1], window, strict=True):
        sizes += [s // p, p]
    x = x.reshape(x.shape[0], *sizes, x.shape[-1])  # (B, h, P, w, P, d, P, C)
    return x.permute(0, *range(1, 2 * dims, 2), *range(2, 2 * dims + 1, 2), 2 * dims + 1)


def merge_windows(x: Tensor) -> Tensor:
    """(B, *counts, *window, C) -> (B, *spatial, C), the inverse of `split_windows`."""
    dims = (x.ndim - 2) // 2
    order: list[int] = []
    for axis in range(1, dims + 1):
        order += [axis, axis + dims]
    x = x.permute(0, *order, 2 * dims + 1)  # (B, h, P, w, P, d, P, C)
    sizes = [x.shape[i] * x.shape[i + 1] for i in range(1, 2 * dims, 2)]
    return x.reshape(x.shape[0], *sizes, x.shape[-1])


class Matricize(ABC):
    """What the three matricizations share: the heads, and the average over their grids."""

    def __init__(self, head_dim: int) -> None:
        if head_dim < 1:
            raise FactorizerError(f"head_dim is {head_dim}; it must be at least 1")
        self.head_dim = head_dim

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"{type(self).__name__}({options})"

    @abstractmethod
    def grids(self, spatial_size: Sequence[int]) -> tuple[Grid, ...]:
        """The grids over a map of this size. Their reconstructions are averaged."""

    def fitted(self, spatial_size: Sequence[int]) -> Self:
        """The matricization for a map of this size, with windows that divide it."""
        return self

    def check_channels(self, channels: int) -> None:
        """Raise an error unless the channels can be cut into heads."""
        if channels % self.head_dim:
            raise FactorizerError(
                f"{channels} channels cannot be cut into heads of head_dim {self.head_dim}; use a "
                f"multiple of {self.head_dim}, or another head_dim"
            )

    def matricize(self, x: Tensor) -> Tensor:
        """(B, C, *spatial) -> (B, heads, windows, E, N), all windows of the first grid first."""
        batch, channels, *size = x.shape
        self.check_channels(channels)
        maps = x.movedim(1, -1)
        parts = [grid.split(maps).unflatten(0, (batch, -1)) for grid in self.grids(size)]
        windows = torch.cat(parts, 1)  # (B, windows, N, C)
        return windows.unflatten(-1, (-1, self.head_dim)).permute(0, 3, 1, 4, 2)

    def dematricize(self, matrices: Tensor, spatial_size: Sequence[int]) -> Tensor:
        """(B, heads, windows, E, N) -> (B, C, *spatial), the average over the grids."""
        grids = self.grids(spatial_size)
        voxels = prod(grids[0].window)
        count = len(grids) * prod(spatial_size) // voxels
        if (matrices.shape[2], matrices.shape[4]) != (count, voxels):
            raise FactorizerError(
                f"matrices of shape {tuple(matrices.shape)} do not come from a map of "
                f"{tuple(spatial_size)} voxels, which has {count} windows of {voxels}; give the "
                "spatial size of the matricized map"
            )
        windows = matrices.permute(0, 2, 4, 1, 3).flatten(3)  # (B, windows, N, C)
        parts = zip(grids, windows.chunk(len(grids), 1), strict=True)
        maps = [grid.merge(part.flatten(0, 1), spatial_size) for grid, part in parts]
        return (sum(maps[1:], maps[0]) / len(maps)).movedim(-1, 1)


class GlobalMatricize(Matricize):
    """Flatten the whole map: matrices of E rows and H W D columns (Sec. 3.4.1).

    Args:
        head_dim: E, the channels of a head. It must divide the channels of the map.

    >>> import torch
    >>> from factorizer import GlobalMatricize
    >>> x = torch.rand(1, 8, 16, 16, 16)
    >>> matrices = GlobalMatricize(head_dim=4).matricize(x)
    >>> tuple(matrices.shape)  # (B, heads, windows, E, N)
    (1, 2, 1, 4, 4096)
    """

    def grids(self, spatial_size: Sequence[int]) -> tuple[Grid, ...]:
        return (Grid(tuple(spatial_size), (0,) * len(spatial_size)),)


class LocalMatricize(Matricize):
    """Cut the map into a grid of windows: matrices of E rows and P^3 columns (Eq. 7).

    Args:
        head_dim: E, the channels of a head. It must divide the channels of the map.
        window: P, the voxels of a window along every axis, or one number per axis.

    >>> import torch
    >>> from factorizer import LocalMatricize
    >>> x = torch.rand(1, 8, 16, 16, 16)
    >>> local = LocalMatricize(head_dim=4, window=8)
    >>> matrices = local.matricize(x)
    >>> tuple(matrices.shape)  # (B, heads, windows, E, N)
    (1, 2, 8, 4, 512)
    >>> torch.equal(local.dematricize(matrices, (16, 16, 16)), x)
    True
    """

    def __init__(self, head_dim: int, window: int | Sequence[int]) -> None:
        super().__init__(head_dim)
        self.window = window if isinstance(window, int) else tuple(window)

    def grids(self, spatial_size: Sequence[int]) -> tuple[Grid, ...]:
        window = per_axis(self.window, len(spatial_size), "window")
        for axis, size, p in zip(AXES[len(window)], spatial_size, window, strict=True):
            if size % p:
                valid = -(-size // p) * p
                raise FactorizerError(
                    f"axis {axis} has {size} voxels, not a multiple of window {p}; pad to {valid}"
                )
        return tuple(Grid(window, shift) for shift in self.shifts(window))

    def shifts(self, window: tuple[int, ...]) -> list[tuple[int, ...]]:
        """By how many voxels the map is rolled along each axis, for each grid."""
        return [(0,) * len(window)]

    def fitted(self, spatial_size: Sequence[int]) -> Self:
        """The same matricization with a window that divides the map.

        Along each axis it is the divisor nearest to the window, the larger one on a tie. It is not
        1, which would leave nothing to factorize.
        """
        window = per_axis(self.window, len(spatial_size), "window")
        fits = tuple(nearest_divisor(s, p) for s, p in zip(spatial_size, window, strict=True))
        return type(self)(self.head_dim, fits)


class ShiftedWindowMatricize(LocalMatricize):
    """Local windows, and again on the map rolled by half a window; both are averaged (Eq. 8).

    Args:
        head_dim: E, the channels of a head. It must divide the channels of the map.
        window: P, the voxels of a window along every axis, or one number per axis.

    >>> import torch
    >>> from factorizer import ShiftedWindowMatricize
    >>> x = torch.rand(1, 8, 16, 16, 16)
    >>> matrices = ShiftedWindowMatricize(head_dim=4, window=8).matricize(x)
    >>> tuple(matrices.shape)  # (B, heads, windows of both grids, E, N)
    (1, 2, 16, 4, 512)
    """

    def shifts(self, window: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [*super().shifts(window), tuple(p // 2 for p in window)]


class Cut(Protocol):
    """How channels-last voxels (..., C) become matrices (..., E, N), and the way back."""

    def matricize(self, x: Tensor) -> Tensor: ...

    def dematricize(self, matrices: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class MapCut:
    """The cut of a map (B, *spatial, C) of one size into (B, heads, windows, E, N)."""

    kind: Matricize
    spatial_size: tuple[int, ...]

    @property
    def grids(self) -> tuple[Grid, ...]:
        return self.kind.grids(self.spatial_size)

    def matricize(self, x: Tensor) -> Tensor:
        return self.kind.matricize(x.movedim(-1, 1))

    def dematricize(self, matrices: Tensor) -> Tensor:
        return self.kind.dematricize(matrices, self.spatial_size).movedim(1, -1)


@dataclass(frozen=True)
class HeadCut:
    """The cut of windows (windows, N, C) into heads (windows, heads, E, N)."""

    head_dim: int

    def matricize(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2).contiguous().mT

    def dematricize(self, matrices: Tensor) -> Tensor:
        return matrices.permute(0, 3, 1, 2).flatten(2)


def per_axis(value: int | Sequence[int], dims: int, name: str) -> tuple[int, ...]:
    """One number per axis, from one number for all axes or from one for each."""
    if dims not in AXES:
        raise FactorizerError(
            f"a map has {dims} axes besides batch and channels; it must have 2 or 3"
        )
    values = (value,) * dims if isinstance(value, int) else tuple(value)
    if len(values) != dims or min(values) < 1:
        raise FactorizerError(
            f"{name} is {value}; give one positive number, or {dims}, one per axis"
        )
    return values


def nearest_divisor(size: int, target: int) -> int:
    """The divisor of `size` nearest to `target`, the larger on a tie; 1 only if either is 1."""
    smallest = 1 if size == 1 or target == 1 else 2
    divisors = [d for d in range(smallest, size + 1) if size % d == 0]
    return min(divisors, key=lambda d: (abs(d - target), -d))
