"""Matricizations are exactly invertible, agree with Algorithm 3, and refuse wrong sizes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from factorizer import GlobalMatricize, LocalMatricize, ShiftedWindowMatricize
from factorizer.nn.matricize import Matricize, nearest_divisor
from testkit import textbook

KINDS = ("global", "local", "shifted")


def make(kind: str, head_dim: int, window: tuple[int, ...]) -> Matricize:
    if kind == "global":
        return GlobalMatricize(head_dim)
    return {"local": LocalMatricize, "shifted": ShiftedWindowMatricize}[kind](head_dim, window)


@given(
    data=st.data(),
    kind=st.sampled_from(KINDS),
    dims=st.sampled_from([2, 3]),
    batch=st.integers(1, 3),
)
def test_round_trip_is_exact(data: st.DataObject, kind: str, dims: int, batch: int) -> None:
    window = tuple(data.draw(st.integers(1, 5)) for _ in range(dims))
    size = tuple(p * data.draw(st.integers(1, 3)) for p in window)
    head_dim, heads = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    x = torch.rand(batch, head_dim * heads, *size)
    matricize = make(kind, head_dim, window)
    matrices = matricize.matricize(x)
    assert matrices.shape[:2] == (batch, heads)
    assert matrices.shape[3] == head_dim
    assert torch.equal(matricize.dematricize(matrices, size), x)


@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_matricize_keeps_every_voxel_once_per_grid(data: st.DataObject, kind: str) -> None:
    window = (2, 3, 4)
    size = tuple(p * data.draw(st.integers(1, 3)) for p in window)
    x = torch.arange(2 * 4 * size[0] * size[1] * size[2]).view(2, 4, *size).float()
    values = make(kind, 2, window).matricize(x).flatten().sort().values
    copies = 2 if kind == "shifted" else 1
    assert torch.equal(values, x.flatten().sort().values.repeat_interleave(copies))


@pytest.mark.parametrize("size", [(48, 48, 48), (80, 16, 8), (96, 8, 8), (40, 56, 40)])
def test_agrees_with_algorithm_3(size: tuple[int, ...]) -> None:
    x = torch.rand(2, 8, *size)
    local = LocalMatricize(4, 8).matricize(x).flatten(0, 2)
    assert torch.equal(local, textbook.local_matricize(x, 4, 8))
    both = ShiftedWindowMatricize(4, 8).matricize(x)
    regular, shifted = (part.flatten(0, 2) for part in both.chunk(2, 2))
    assert torch.equal(torch.cat((regular, shifted)), textbook.sw_matricize(x, 4, 8))
    other = torch.rand_like(both)
    expected = textbook.sw_dematricize(
        torch.cat([part.flatten(0, 2) for part in other.chunk(2, 2)]), x, 8
    )
    torch.testing.assert_close(ShiftedWindowMatricize(4, 8).dematricize(other, size), expected)


def test_global_is_a_reshape() -> None:
    x = torch.rand(2, 6, 3, 4, 5)
    assert torch.equal(GlobalMatricize(3).matricize(x), x.view(2, 2, 1, 3, 60))


def test_odd_windows_shift_by_the_floor_of_half() -> None:
    x = torch.arange(10.0).view(1, 1, 10, 1)
    shifted = ShiftedWindowMatricize(1, (5, 1)).matricize(x)[0, 0, 2:, 0]
    assert torch.equal(shifted, x.flatten().roll(2).view(2, 5))


@pytest.mark.parametrize("kind", ["local", "shifted"])
def test_a_size_that_does_not_divide_names_axis_size_window_and_remedy(kind: str) -> None:
    matricize = make(kind, 2, (4, 8, 4))
    with pytest.raises(
        ValueError, match="axis W has 130 voxels, not a multiple of window 8; pad to 136"
    ):
        matricize.matricize(torch.zeros(1, 2, 8, 130, 8))


def test_channels_that_do_not_divide_and_wrong_windows_are_refused() -> None:
    with pytest.raises(
        ValueError, match="6 channels cannot be cut into heads of head_dim 4; use a multiple of 4"
    ):
        GlobalMatricize(4).matricize(torch.zeros(1, 6, 8, 8))
    with pytest.raises(
        ValueError, match=r"window is \(4, 4\); give one positive number, or 3, one per axis"
    ):
        LocalMatricize(2, (4, 4)).matricize(torch.zeros(1, 2, 8, 8, 8))


def test_impossible_heads_maps_and_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="head_dim is 0; it must be at least 1"):
        GlobalMatricize(0)
    with pytest.raises(
        ValueError, match="a map has 1 axes besides batch and channels; it must have 2 or 3"
    ):
        LocalMatricize(2, 4).matricize(torch.zeros(1, 2, 8))
    local = LocalMatricize(2, 4)
    matrices = local.matricize(torch.zeros(2, 2, 8, 8))
    with pytest.raises(
        ValueError, match=r"do not come from a map of \(4, 8\) voxels, which has 2 windows of 16"
    ):
        local.dematricize(matrices, (4, 8))


@pytest.mark.parametrize(
    ("size", "window", "fit"),
    [
        (48, 8, 8),
        (24, 8, 8),
        (12, 8, 6),
        (6, 8, 6),
        (3, 8, 3),
        (5, 8, 5),
        (10, 8, 10),
        (20, 8, 10),
        (14, 8, 7),
        (6, 4, 3),
    ],
)
def test_fitted_takes_the_nearest_divisor(size: int, window: int, fit: int) -> None:
    expected = min(
        (d for d in range(1, size + 1) if size % d == 0), key=lambda d: (abs(d - window), -d)
    )
    assert nearest_divisor(size, window) == expected
    assert fit == expected
    assert ShiftedWindowMatricize(8, window).fitted((size, 16, size)).window == (fit, window, fit)


def test_a_window_of_one_voxel_is_only_taken_where_it_is_wanted() -> None:
    """A rank-one factorization of such a matrix is exact, so the layer would do nothing."""
    assert [nearest_divisor(size, 8) for size in (11, 17, 19, 23, 31)] == [11, 17, 19, 23, 31]
    assert nearest_divisor(11, 4) == 11
    assert nearest_divisor(1, 8) == 1
    assert nearest_divisor(12, 1) == 1


def test_the_larger_divisor_wins_a_tie() -> None:
    assert nearest_divisor(12, 5) == 6
