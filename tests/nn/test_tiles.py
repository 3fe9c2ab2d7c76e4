"""Working tile by tile changes nothing except rounding, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from factorizer import LocalMatricize, ShiftedWindowMatricize
from factorizer.nn import tiles
from factorizer.nn.tiles import Rows, Windows, apply_tiled


def run(fn, params: list[Tensor], maps: list[Tensor], tilings: list) -> list[Tensor]:
    """The output and every gradient."""
    maps = [x.clone().requires_grad_() for x in maps]
    y = apply_tiled(fn, *maps, tilings=tilings, params=params)
    upstream = torch.rand(y.shape, generator=torch.Generator().manual_seed(3), dtype=y.dtype)
    return [y, *torch.autograd.grad(y, [*maps, *params], upstream)]


def run_whole(monkeypatch: pytest.MonkeyPatch, *args) -> list[Tensor]:
    with monkeypatch.context() as patch:
        patch.setattr(tiles, "is_captured", lambda: True)
        return run(*args)


@pytest.mark.parametrize("elements", [1, 500, 4000, 2**19])
@pytest.mark.parametrize(
    ("size", "window"),
    [((8, 12, 4), (4, 4, 2)), ((6, 9, 10), (3, 3, 5)), ((8, 4, 4), 4), ((12, 10), (4, 5))],
)
def test_windows_agree_with_the_whole_map(
    monkeypatch, elements: int, size: tuple[int, ...], window
) -> None:
    monkeypatch.setattr(tiles, "TILE_ELEMENTS", elements)
    layer = nn.Linear(6, 6).double()
    maps = [torch.rand(3, 6, *size, dtype=torch.float64) for _ in range(2)]
    grids = ShiftedWindowMatricize(2, window).grids(size)

    def fn(x: Tensor, other: Tensor) -> Tensor:
        return layer(x) * x.mean(1, keepdim=True) + other.square()

    args = fn, list(layer.parameters()), maps, [Windows(grid) for grid in grids]
    for got, expected in zip(run(*args), run_whole(monkeypatch, *args), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("elements", [1, 100, 2**19])
def test_rows_agree_with_the_whole_map(monkeypatch, elements: int) -> None:
    monkeypatch.setattr(tiles, "TILE_ELEMENTS", elements)
    layer = nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 6)).double()
    args = (
        layer,
        list(layer.parameters()),
        [torch.rand(2, 6, 5, 4, 3, dtype=torch.float64)],
        [Rows()],
    )
    for got, expected in zip(run(*args), run_whole(monkeypatch, *args), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("size", [(16, 16, 16), (8, 24, 16)])
def test_tiles_cover_the_map_once_and_stay_small(monkeypatch, size: tuple[int, ...]) -> None:
    monkeypatch.setattr(tiles, "TILE_ELEMENTS", 2048)
    for grid in ShiftedWindowMatricize(2, 4).grids(size):
        seen = torch.zeros(2, *size, 4)
        for tile in Windows(grid).tiles(seen.shape):
            part = tile.read(seen)
            assert part.numel() <= 2048
            tile.put(seen, part + 1, tiles.WRITE)
        assert (seen == 1).all()


def test_windows_of_a_tile_are_windows_of_the_grid(monkeypatch) -> None:
    monkeypatch.setattr(tiles, "TILE_ELEMENTS", 700)
    x = torch.rand(2, 8, 8, 8, 3)
    for grid in ShiftedWindowMatricize(1, 4).grids((8, 8, 8)):
        parts = [tile.read(x) for tile in Windows(grid).tiles(x.shape)]
        tiled, whole = torch.cat(parts).flatten(1), grid.split(x).flatten(1)
        assert sorted(tiled.tolist()) == sorted(whole.tolist())


def test_dropout_draws_the_same_mask_in_the_backward_pass(monkeypatch) -> None:
    monkeypatch.setattr(tiles, "TILE_ELEMENTS", 64)
    x = torch.ones(1, 4, 8, 8, requires_grad=True)
    drop = nn.Dropout(0.5)
    grids = LocalMatricize(2, 4).grids((8, 8))
    tilings = [Windows(grid) for grid in grids]
    y = apply_tiled(lambda part: drop(part), x, tilings=tilings, params=[])
    state = torch.get_rng_state()
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    assert 0 < (y == 0).sum() < y.numel()
    assert torch.equal(state, torch.get_rng_state())


def test_frozen_parameters_get_no_gradient_and_the_others_theirs() -> None:
    layer = nn.Linear(4, 4)
    layer.bias.requires_grad_(False)
    x = torch.rand(1, 4, 8, 8)
    apply_tiled(layer, x, tilings=[Rows()], params=layer.parameters()).sum().backward()
    assert layer.bias.grad is None
    torch.testing.assert_close(layer.weight.grad, x.sum((0, 2, 3)).expand(4, 4))
