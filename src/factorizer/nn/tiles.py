"""Apply a function to a feature map tile by tile.

The networks here are bound by memory traffic, not by arithmetic. A 64^3 map of 32 channels has 32
MiB, and to write and read back each intermediate of a block costs more than to compute it. A tile
of a few MiB stays in the processor's cache instead. In training only the input is kept. The
backward pass computes the intermediates of each tile again, in the cache, so that a block needs as
much memory as its input.

The result is that of the function on the whole map, up to rounding. Where tiles are no use, the
function is applied to the whole map: on a GPU, under autocast, and when a model is compiled,
exported or traced.

Hooks on modules inside the function see parts instead of maps. They see them again in the backward
pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from factorizer.nn.matricize import Grid, merge_windows, split_windows
from factorizer.nn.nmf import full_precision, widen
from factorizer.nn.pool import new_map

TILE_ELEMENTS = 2**20  # 4 MiB of float32

TileFunction = Callable[..., Tensor]
Assign = Callable[[Tensor, Tensor], Tensor]
WRITE, ADD = Tensor.copy_, Tensor.add_  # the first tiling writes its tiles, the others add theirs


class Tile(Protocol):
    """A part of a channels-last map (B, *spatial, C) that can be read and written.

    With several tilings a part is scaled in place after it was read, so it must be a copy.
    """

    def read(self, x: Tensor) -> Tensor: ...

    def put(self, x: Tensor, part: Tensor, assign: Assign) -> None: ...


class Tiling(Protocol):
    """A way to cut a map into tiles that cover it once."""

    def split(self, x: Tensor) -> Tensor: ...

    def merge(self, parts: Tensor, spatial_size: Sequence[int]) -> Tensor: ...

    def tiles(self, shape: Sequence[int]) -> Iterator[Tile]: ...


def apply_tiled(
    fn: TileFunction,
    *maps: Tensor,
    tilings: Sequence[Tiling],
    params: Iterable[Tensor],
    overwrite: bool = False,
) -> Tensor:
    """Apply `fn` to the parts of maps (B, C, *spatial) and average over the tilings.

    `fn` takes a part (..., C) of each map and returns a part of the same shape, except for C.
    `params` are the tensors that it uses and that may need a gradient. `overwrite` lets the result
    replace the map; it needs one tiling, one width and no gradients.
    """
    maps = tuple(x.movedim(1, -1) for x in maps)  # (B, *spatial, C)
    params = tuple(params)
    if not is_eager_cpu(maps[0]):
        outs = [t.merge(fn(*map(t.split, maps)), maps[0].shape[1:-1]) for t in tilings]
        y = sum(outs[1:], outs[0]) / len(outs) if len(outs) > 1 else outs[0]
    else:
        maps = tuple(x.contiguous() for x in maps)
        if torch.is_grad_enabled() and any(t.requires_grad for t in (*maps, *params)):
            y = _Tiled.apply(fn, tilings, len(maps), *maps, *params)
        else:
            y = forward_tiled(fn, maps, tilings, out=maps[0] if overwrite else None)
    return y.movedim(-1, 1)


def is_eager_cpu(x: Tensor) -> bool:
    """Whether the CPU computes with x now and in its own precision, so that tiles are of use."""
    return x.device.type == "cpu" and not is_captured() and not torch.is_autocast_enabled("cpu")


def is_captured() -> bool:
    """Whether the call is being recorded (compiled, exported or traced) rather than executed."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def forward_tiled(
    fn: TileFunction,
    maps: Sequence[Tensor],
    tilings: Sequence[Tiling],
    *,
    out: Tensor | None = None,
) -> Tensor:
    shape, y = maps[0].shape, out
    for index, tiling in enumerate(tilings):
        for tile in tiling.tiles(shape):
            part = take_share(fn(*map(tile.read, maps)), len(tilings))
            y = new_map(maps[0], part.shape[-1]) if y is None else y
            tile.put(y, part, WRITE if index == 0 else ADD)
    assert y is not None, "a map has at least one tile"
    return y


def take_share(part: Tensor, count: int) -> Tensor:
    """One tiling's share of an average over `count`, in place."""
    return part.mul_(1 / count) if count > 1 else part


class _Tiled(torch.autograd.Function):
    """`forward_tiled` with a backward that recomputes each tile."""

    @staticmethod
    def forward(
        ctx: Any, fn: TileFunction, tilings: Sequence[Tiling], num_maps: int, *tensors: Tensor
    ) -> Tensor:
        ctx.fn, ctx.tilings, ctx.num_maps = fn, tilings, num_maps
        ctx.settings = settings_of(fn)
        ctx.save_for_backward(*tensors)
        ctx.rng_state = torch.get_rng_state()  # so that dropout draws the same masks in backward
        return forward_tiled(fn, tensors[:num_maps], tilings)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        if settings_of(ctx.fn) != ctx.settings:
            raise RuntimeError(
                "a layer's settings (train or eval, rank, num_iters, solver, bypass) or its "
                "weights were changed between the forward and the backward pass, which uses "
                "them again; change them before the forward pass, and restore them after "
                "the backward pass"
            )
        saved = ctx.saved_tensors  # taken once, as activation checkpointing asks
        maps, params = saved[: ctx.num_maps], saved[ctx.num_maps :]
        params_needed = ctx.needs_input_grad[3 + ctx.num_maps :]
        wanted = [p for p, needed in zip(params, params_needed, strict=True) if needed]
        grad_y = grad_y.contiguous()
        grad_maps = [new_map(x, x.shape[-1]) for x in maps]
        totals = [torch.zeros_like(widen(p)) for p in wanted]
        with torch.random.fork_rng(devices=[]), full_precision(grad_y):
            torch.set_rng_state(ctx.rng_state)
            for index, tiling in enumerate(ctx.tilings):
                for tile in tiling.tiles(maps[0].shape):
                    with torch.enable_grad():
                        parts = [tile.read(x).requires_grad_() for x in maps]
                        out = ctx.fn(*parts)
                    upstream = take_share(tile.read(grad_y), len(ctx.tilings))
                    grads = torch.autograd.grad(out, [*parts, *wanted], upstream)
                    for grad_map, grad in zip(grad_maps, grads, strict=False):
                        tile.put(grad_map, grad, WRITE if index == 0 else ADD)
                    for total, grad in zip(totals, grads[len(maps) :], strict=True):
                        total += grad
        left = (total.to(p.dtype) for total, p in zip(totals, wanted, strict=True))
        return (
            None,
            None,
            None,
            *grad_maps,
            *(next(left) if needed else None for needed in params_needed),
        )


def settings_of(fn: TileFunction) -> list[Any] | None:
    """What determines the result of a module's method, besides the values of its parameters.

    These are the modes and settings of its parts, and which tensors its parameters are.
    """
    owner = getattr(fn, "__self__", None)
    if not isinstance(owner, nn.Module):
        return None
    settings: list[Any] = [(module.training, module.extra_repr()) for module in owner.modules()]
    return settings + [parameter.data_ptr() for parameter in owner.parameters()]


@dataclass(frozen=True)
class RowTile:
    """Consecutive voxels, for functions of single voxels; reads views."""

    rows: slice

    def read(self, x: Tensor) -> Tensor:
        return x.view(-1, x.shape[-1])[self.rows].detach()

    def put(self, x: Tensor, part: Tensor, assign: Assign) -> None:
        assign(x.view(-1, x.shape[-1])[self.rows], part)


@dataclass(frozen=True)
class WindowTile:
    """A box of whole windows of a grid, which may wrap around the edges of the map.

    `segments` lists, per axis, the pieces of the box as (slice of the box, slice of the map).
    """

    batch: slice
    segments: tuple[tuple[tuple[slice, slice], ...], ...]
    window: tuple[int, ...]

    def pieces(self) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
        for parts in product(*self.segments):
            box, place = zip(*parts, strict=True)
            yield (slice(None), *box), (self.batch, *place)

    @property
    def crosses_edge(self) -> bool:
        return any(len(axis) > 1 for axis in self.segments)

    def read(self, x: Tensor) -> Tensor:
        """(B, *spatial, C) -> (windows, N, C), always a copy."""
        x = x.detach()
        if self.crosses_edge:
            sizes = [axis[-1][0].stop for axis in self.segments]
            box = x.new_empty((len(range(*self.batch.indices(x.shape[0]))), *sizes, x.shape[-1]))
            for inside, place in self.pieces():
                box[inside] = x[place]
        else:
            box = x[next(self.pieces())[1]]
        dims = len(self.window)
        windows = split_windows(box, self.window).clone(memory_format=torch.contiguous_format)
        return windows.flatten(0, dims).flatten(1, dims)

    def put(self, x: Tensor, part: Tensor, assign: Assign) -> None:
        """(windows, N, C) into or onto (B, *spatial, C)."""
        counts = [axis[-1][0].stop // p for axis, p in zip(self.segments, self.window, strict=True)]
        part = part.view(-1, *counts, *self.window, part.shape[-1])
        if self.crosses_edge:
            box = merge_windows(part)
            for inside, place in self.pieces():
                assign(x[place], box[inside])
        else:
            assign(split_windows(x[next(self.pieces())[1]], self.window), part)


@dataclass(frozen=True)
class Windows:
    """The windows of a grid."""

    grid: Grid

    def split(self, x: Tensor) -> Tensor:
        return self.grid.split(x)

    def merge(self, parts: Tensor, spatial_size: Sequence[int]) -> Tensor:
        return self.grid.merge(parts, spatial_size)

    def tiles(self, shape: Sequence[int]) -> Iterator[WindowTile]:
        """Boxes of windows of about `TILE_ELEMENTS`, cut along the leading axes first."""
        window = self.grid.window
        steps, size = [], list(shape)
        for axis, unit in enumerate((1, *window)):
            wanted = size[axis] * TILE_ELEMENTS // prod(size)
            size[axis] = min(size[axis], max(unit, wanted // unit * unit))
            steps.append(size[axis])
        shift = (0, *self.grid.shift)
        ranges = [range(0, n, step) for n, step in zip(shape[:-1], steps, strict=True)]
        for starts in product(*ranges):
            batch, *segments = (
                locate(start, min(start + step, n), s, n)
                for start, step, s, n in zip(starts, steps, shift, shape[:-1], strict=True)
            )
            yield WindowTile(batch[0][1], tuple(segments), window)


def locate(start: int, stop: int, shift: int, size: int) -> tuple[tuple[slice, slice], ...]:
    """Where voxels start..stop of a rolled axis are: (slice of the box, slice of the map)."""
    first, length = (start - shift) % size, stop - start
    left = min(length, size - first)
    pieces = [(slice(0, left), slice(first, first + left))]
    if left < length:
        pieces.append((slice(left, length), slice(0, length - left)))
    return tuple(pieces)


class Rows:
    """All voxels of a map, each on its own."""

    def split(self, x: Tensor) -> Tensor:
        return x

    def merge(self, parts: Tensor, spatial_size: Sequence[int]) -> Tensor:
        return parts

    def tiles(self, shape: Sequence[int]) -> Iterator[RowTile]:
        rows, step = prod(shape[:-1]), max(1, TILE_ELEMENTS // shape[-1])
        return (RowTile(slice(start, start + step)) for start in range(0, rows, step))
