"""Slabs back onto the image's grid, against the whole array put back at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from factorizer.data.images import VoxelGrid, canonical_grid, restore_orientation
from factorizer.data.preprocess import Frame, restore
from factorizer.inference.restore import restore_slabs


@pytest.mark.parametrize("rows", [1, 3, 8, 100])
@pytest.mark.parametrize(
    ("shape", "resampled", "box"),
    [
        ((12, 9, 7), (12, 9, 7), ((0, 12), (0, 9), (0, 7))),
        ((12, 9, 7), (12, 9, 7), ((3, 10), (1, 8), (2, 7))),
        ((13, 9, 7), (20, 5, 11), ((4, 17), (0, 5), (3, 9))),
        ((40, 30, 8), (11, 12, 24), ((2, 11), (3, 10), (5, 20))),
        ((5, 6, 7), (1, 6, 7), ((0, 1), (0, 6), (0, 7))),
        ((6, 9, 7), (57, 9, 7), ((0, 57), (0, 9), (0, 7))),
        ((4, 5, 6), (40, 5, 6), ((7, 31), (0, 5), (0, 6))),
    ],
)
def test_slabs_are_put_back_like_the_whole(shape, resampled, box, rows: int) -> None:
    frame = Frame(
        VoxelGrid(shape, np.diag((-1.0, 2.0, 1.0, 1.0))),
        resampled,
        tuple(slice(*ends) for ends in box),
    )
    inside = [stop - start for start, stop in box]
    array = torch.rand(2, *inside)
    slabs = list(restore_slabs(torch.split(array, rows, dim=1), frame))
    whole = restore_orientation(torch.cat(slabs, 1).numpy(), frame.grid)
    assert whole.shape == (2, *shape)
    np.testing.assert_allclose(whole, restore(array.numpy(), frame, "linear"), atol=1e-6)
    assert sum(slab.shape[1] for slab in slabs) == canonical_grid(frame.grid).shape[0]


def test_a_2d_image() -> None:
    frame = Frame(VoxelGrid((30, 21), np.eye(3)), (13, 40), (slice(2, 9), slice(0, 40)))
    array = torch.rand(1, 7, 40)
    whole = torch.cat(list(restore_slabs(array.split(2, dim=1), frame)), 1).numpy()
    np.testing.assert_allclose(whole, restore(array.numpy(), frame, "linear"), atol=1e-6)
